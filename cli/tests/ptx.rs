//! `cargo fusewire ptx` on a package that is never built: sources are enough.

use std::{path::Path, process::Command};

const LIB: &str = r#"
use fusewire::prelude::*;

/// Documented before.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), archs(sm_80, sm_90))]
pub(crate) mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index()]
    }
}

pub mod inner {
    #[fusewire::comm_kernel(elements(f32, Bf16))]
    mod copy {
        pub struct Args<'a, T> {
            pub input: &'a [T],
            pub output: Out<'a, T>,
        }
    }
    #[comm_kernel(transports(Nvl))]
    fn ring<O: Ops>(kernel: &Kernel<O>) -> Flow {
        kernel.sync();
        Ok(())
    }
    #[comm_kernel(transports(Nvl), schedules(sendrecv), values(4, 8))]
    mod taps {
        pub struct Args<'a, const N: usize> {
            pub input: &'a [f32],
            pub output: Out<'a, f32>,
            pub taps: [f32; N],
        }
        pub fn produce<const N: usize>(ctx: &Produce, args: &Args<N>) -> f32 {
            args.taps[N - 1] * args.input[ctx.index()]
        }
    }
}
"#;
const BROKEN: &str = "#[comm_kernel]\nmod broken {\n    pub struct Args<'a> {\n        pub input: &'a [f32],\n        pub output: Out<'a, f32>,\n    }\n    fn produce(ctx: &Produce, args: &Args) -> f32 {\n        println!();\n        0.0\n    }\n}\n#[comm_kernel]\nmod refused {}\n";

fn package() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("Cargo.toml", "[package]\nname = \"k\"\n");
    write("src/lib.rs", LIB);
    write("src/bad/broken.rs", BROKEN);
    write("other/Cargo.toml", "[package]\nname = \"other\"\n");
    write("other/src/lib.rs", "#[comm_kernel] mod elsewhere {}");
    folder
}

fn ptx(folder: &Path, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-fusewire"));
    let output =
        command.args(["fusewire", "ptx", "--manifest-path"]).arg(folder).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn lists_what_is_there() {
    let folder = package();
    let (done, out, err) = ptx(folder.path(), &["--list"]);
    assert!(done, "{err}");
    let expected = "\
bad::broken::broken  src/bad/broken.rs:2
    schedules   all_to_all sendrecv
    transports  Shm Nvl
    archs       sm_80
bad::broken::refused  src/bad/broken.rs:13
    refused: a hook module needs its arguments: `pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> }`
copy  src/lib.rs:6
    schedules   all_to_all
    transports  Shm Nvl
    archs       sm_80 sm_90
inner::copy  src/lib.rs:18
    schedules   all_to_all sendrecv
    transports  Shm Nvl
    elements    f32 Bf16
    archs       sm_80
inner::ring  src/lib.rs:25
    a schedule of its own
    transports  Nvl
    archs       sm_80
inner::taps  src/lib.rs:30
    schedules   sendrecv
    transports  Nvl
    values      4 8
    archs       sm_80
";
    assert_eq!(out, expected);
    let manifest = folder.path().join("Cargo.toml");
    assert_eq!(ptx(&manifest, &["--list", "taps"]).1, expected[expected.find("inner::taps").unwrap()..]);
}

#[test]
fn prints_what_is_asked_for() {
    let folder = package();
    for (arguments, parts) in [
        (&["inner::copy"][..], &[".entry copy__all_to_all__nvl__f32(", ".target sm_80"][..]),
        (
            &[
                "inner::copy",
                "--element",
                "F8E5M2",
                "--schedule",
                "sendrecv",
                "--arch",
                "sm_100",
                "--unroll",
                "2",
            ],
            &[".entry copy__sendrecv__nvl__F8E5M2__u2(", ".target sm_100"],
        ),
        (
            &["ring", "--arch", "sm_90a", "--transport", "Nvl"],
            &[".entry ring__custom__nvl(", ".target sm_90a"],
        ),
        (&["taps"], &[".entry taps__sendrecv__nvl__4("]),
        (&["taps", "--value", "16"], &[".entry taps__sendrecv__nvl__16("]),
        (&["copy", "--protocol", "ll128"], &[".entry copy__all_to_all_ll128__nvl("]),
        (&["inner::ring", "--line-info"], &["\t.file\t", "src/lib.rs\""]),
    ] {
        let (done, out, err) = ptx(folder.path(), arguments);
        assert!(done, "{arguments:?}: {err}");
        for part in parts {
            assert!(out.contains(part), "{arguments:?}: no {part}");
        }
    }
}

#[test]
fn explains_by_ptxas() {
    fusewire_toolchain::ptxas::Ptxas::find_or_install().unwrap();
    let (done, out, err) = ptx(package().path(), &["ring", "--explain"]);
    assert!(done, "{err}");
    for part in ["ring__custom__nvl for sm_80", "registers", "spills", "stack", "PTX"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn says_what_there_is_instead() {
    let folder = package();
    let nowhere = folder.path().join("src");
    for (path, arguments, parts) in [
        (
            folder.path(),
            &["rign"][..],
            &["there is no kernel `rign`: did you mean `ring`?", "  inner::ring"][..],
        ),
        (
            folder.path(),
            &["inner::copy", "--schedule", "all2all"],
            &["did you mean `all_to_all`?", "sendrecv"],
        ),
        (folder.path(), &["ring", "--transport", "Shm"], &["`Shm` run on CPU threads", "Nvl"]),
        (folder.path(), &["ring", "--transport", "Nvlink"], &["did you mean `Nvl`?"]),
        (folder.path(), &["ring", "--arch", "90"], &["`90` is not a GPU architecture", "sm_90"]),
        (folder.path(), &["ring", "--element", "f32"], &["leave `--element` out"]),
        (folder.path(), &["ring", "--value", "4"], &["leave `--value` out"]),
        (folder.path(), &["taps", "--value", "four"], &["`four` is no value", "a whole number"]),
        (folder.path(), &["ring", "--schedule", "sendrecv"], &["is a schedule itself"]),
        (
            folder.path(),
            &["ring", "--protocol", "ll128"],
            &["`ring` is not compiled to travel by `ll128`", "there is simple"],
        ),
        (folder.path(), &["refused"], &["a hook module needs its arguments"]),
        (
            folder.path(),
            &["broken"],
            &["src/bad/broken.rs:8:9: not on the device: cannot find macro `println`"],
        ),
        (folder.path(), &["py"], &["there is no kernel `py`"]),
        (nowhere.as_path(), &["--list"], &["there is no package at", "--manifest-path"]),
    ] {
        let (done, _, err) = ptx(path, arguments);
        assert!(!done, "{arguments:?}");
        for part in parts {
            assert!(err.contains(part), "{arguments:?}: {err}");
        }
    }
}

#[test]
fn names_the_calls_of_macros_that_write_kernels() {
    let folder = package();
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    let rules = "
macro_rules! kernels {
    ($($name:ident: $element:ty;)*) => {$(
        #[cfg_attr(all(), fusewire::comm_kernel(transports(Nvl)))]
        mod $name { pub struct Args<'a> { pub input: &'a [$element], pub output: Out<'a, $element> } }
    )*};
}
macro_rules! twice { ($name:ident) => { mod first { kernels! { $name: f32; } } mod second { kernels! { $name: u8; } } } }
macro_rules! never { () => { kernels! {} } }
macro_rules! harmless { () => { compile_error!(\"comm_kernel\") } }
";
    write("src/rules.rs", rules);
    write(
        "src/calls.rs",
        "crate::kernels! { one: f32; }\nmod deep {\n    fn run() {\n        twice!(two);\n        harmless!();\n    }\n}\nwrap! { #[comm_kernel] mod three {} }\nwrap! { kernels!(four: u8;); }\n",
    );
    write("src/bad/no_part.rs", "kernels! {");
    let (done, out, err) = ptx(folder.path(), &["--list", "ring"]);
    assert!(done, "{err}");
    let expected = "\
written by `kernels!` in calls  src/calls.rs:1
    its kernels are listed at the lines of their names, if they were built since the last edit
written by `twice!` in calls::deep  src/calls.rs:4
    its kernels are listed at the lines of their names, if they were built since the last edit
written by `wrap!` in calls  src/calls.rs:8
    its kernels are listed at the lines of their names, if they were built since the last edit
written by `wrap!` in calls  src/calls.rs:9
    its kernels are listed at the lines of their names, if they were built since the last edit
";
    assert_eq!(out[out.find("written").unwrap()..], *expected);
    let (done, _, err) = ptx(folder.path(), &["one"]);
    assert!(!done && err.contains("there is no kernel `one`"), "{err}");
    assert!(err.contains("\n  what `kernels!` writes at src/calls.rs:1\n"), "{err}");
    // What is removed is not listed.
    std::fs::remove_file(folder.path().join("src/rules.rs")).unwrap();
    let out = ptx(folder.path(), &["--list"]).1;
    assert!(
        !out.contains("`kernels!`") && !out.contains("`twice!`") && out.contains("src/calls.rs:8"),
        "{out}"
    );
}

#[test]
fn a_whole_path_names_one_and_its_end_may_name_several() {
    let folder = package();
    assert!(ptx(folder.path(), &["copy"]).1.contains(".entry copy__all_to_all__nvl("));
    std::fs::copy(folder.path().join("src/lib.rs"), folder.path().join("src/again.rs")).unwrap();
    let (done, _, err) = ptx(folder.path(), &["ring"]);
    assert!(!done && err.contains("may be any of these"), "{err}");
    assert!(err.contains("\n  again::inner::ring\n  inner::ring"), "{err}");
}
