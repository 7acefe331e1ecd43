//! A project made by `cargo fusewire new` builds, runs and passes its tests, outside this workspace.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn fusewire(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-fusewire"));
    told(command.current_dir(folder).args(arguments))
}

fn told(command: &mut Command) -> (bool, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// Kept between runs, so that only the project itself is built anew.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("new")
}

#[test]
fn a_new_project_builds_runs_and_tests() {
    let folder = tempfile::tempdir().unwrap();
    let (done, out) = fusewire(folder.path(), &["new", "my-kernels"]);
    assert!(done, "{out}");
    let project = folder.path().join("my-kernels");
    // It asks for a version, which this workspace stands in for.
    let manifest = project.join("Cargo.toml");
    let mut text = std::fs::read_to_string(&manifest).unwrap();
    assert!(text.contains(concat!("fusewire = \"", env!("CARGO_PKG_VERSION"), "\"\n")), "{text}");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dsl-runtime");
    text.push_str(&format!("\n[patch.crates-io]\nfusewire = {{ path = {source:?} }}\n"));
    std::fs::write(&manifest, text).unwrap();
    // The versions that this workspace is tested with.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    std::fs::copy(lock, project.join("Cargo.lock")).unwrap();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(&project).env("CARGO_TARGET_DIR", target()).env_remove("RUSTFLAGS");
        told(command.args(arguments))
    };
    let (done, out) = cargo(&["run", "--quiet"]);
    assert!(done && out.contains("every value is right"), "{out}");
    let (done, out) = cargo(&["test", "--quiet"]);
    assert!(done, "{out}");
    let (done, out) = cargo(&["fmt", "--check"]);
    assert!(done, "{out}");

    let (done, out) = fusewire(&project, &["ptx", "--list"]);
    assert!(done && out.starts_with("scale_add  src/lib.rs:9"), "{out}");
    let (done, out) = fusewire(&project, &["ptx", "scale_add", "--arch", "sm_90"]);
    assert!(done && out.contains(".entry scale_add__all_to_all__nvl"), "{out}");
    written_kernels_are_known(&project, &cargo);
}

/// Adds a macro that writes two kernels, and its call, to the project.
const WRITTEN: &str = "
macro_rules! scaled {
    ($($name:ident: $element:ty, $by:expr;)*) => {$(
        #[fusewire::comm_kernel(transports(Shm, Nvl), schedules(all_gather))]
        pub mod $name {
            pub struct Args<'a> {
                pub input: &'a [$element],
                pub output: Out<'a, $element>,
            }
            pub fn produce(ctx: &Produce, args: &Args) -> $element {
                args.input[ctx.index()] * $by
            }
        }
    )*};
}
pub mod written {
    scaled! {
        floats: f32, 1.0 + 2.0;
        words: u32, 3;
    }
}
";

/// Kernels that a macro writes are listed, and shown, while the project is built as it is.
fn written_kernels_are_known(project: &Path, cargo: &dyn Fn(&[&str]) -> (bool, String)) {
    let file = project.join("src/lib.rs");
    let before = std::fs::read_to_string(&file).unwrap();
    let line = before.lines().count();
    std::fs::write(&file, format!("{before}{WRITTEN}")).unwrap();
    let listed = || fusewire(project, &["ptx", "--list"]).1;
    let call = format!("written by `scaled!` in written  src/lib.rs:{}\n", line + 17);
    assert!(listed().contains(&call), "{}", listed());
    let (done, out) = cargo(&["check", "--quiet"]);
    assert!(done, "{out}");
    for (name, line) in [("floats", line + 18), ("words", line + 19)] {
        let known = format!("written::{name}  src/lib.rs:{line}\n    schedules   all_gather\n");
        assert!(listed().contains(&known), "{}", listed());
    }
    assert!(!listed().contains("scaled!"), "{}", listed());
    // An expression that the macro was given keeps its operands together.
    let (done, out) = fusewire(project, &["ptx", "floats"]);
    assert!(done && out.contains(".entry floats__all_gather__nvl") && out.contains("0f40400000"), "{out}");
    // What was removed or renamed is not known any more.
    std::fs::write(&file, format!("{before}{}", WRITTEN.replace("floats:", "doubles:"))).unwrap();
    assert!(listed().contains(&call) && !listed().contains("floats"), "{}", listed());
    let (done, out) = cargo(&["check", "--quiet"]);
    assert!(done, "{out}");
    assert!(listed().contains("written::doubles") && !listed().contains("floats"), "{}", listed());
    std::fs::write(&file, before).unwrap();
    assert!(!listed().contains("written"), "{}", listed());
}

#[test]
fn fusewire_comes_from_where_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let made = |arguments: &[&str]| {
        let name = arguments[1];
        let (done, out) = fusewire(folder.path(), arguments);
        assert!(done, "{out}");
        std::fs::read_to_string(folder.path().join(name).join("Cargo.toml")).unwrap()
    };
    let manifest = made(&["new", "a", "--git", "https://example.org/fusewire"]);
    assert!(manifest.contains("fusewire = { git = \"https://example.org/fusewire\" }"), "{manifest}");
    let manifest = made(&["new", "c-d", "--python", "--git", "https://example.org/fusewire"]);
    let capi = "fusewire-capi = { git = \"https://example.org/fusewire\", default-features = false }";
    assert!(
        manifest.contains(capi) && folder.path().join("c-d/python/c_d/__init__.py").exists(),
        "{manifest}"
    );
    let manifest = made(&["new", "b", "--checkout"]);
    assert!(manifest.contains("fusewire = { path = \"/"), "{manifest}");
}

#[test]
fn what_cannot_be_made_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("there")).unwrap();
    for (arguments, why) in [
        (&["new", "there"][..], "`there` is there already"),
        (&["new", "a b"], "cannot be a package's name"),
        (&["new", "k", "--checkout=there"], "there is no checkout of fusewire at `there`"),
    ] {
        let (done, out) = fusewire(folder.path(), arguments);
        assert!(!done && out.contains(why), "{out}");
    }
    assert!(!folder.path().join("k").exists());
}
