//! The real compiler on small kernels. Prepares the toolchain where that has not been done.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use fusewire_toolchain::{Arch, CompileError, Level, Library, Rlib, Target, Toolchain, Unit, cache};

const HEAD: &str = "#![no_std]\n#![feature(abi_ptx)]\n\
    #[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n";

const PANICS: &str = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn sum(values: *mut u32, len: usize, at: usize) {
    let values = unsafe { core::slice::from_raw_parts_mut(values, len) };
    values[at] = values.iter().max().copied().unwrap() / values[at + 1];
}
"#;

const USES_HELPER: &str = r#"
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn apply(values: *mut u32, len: usize, at: usize) {
    let values = unsafe { core::slice::from_raw_parts_mut(values, len) };
    values[at] = helper::near(values, at) + helper::far::far(at as u32);
}
"#;

fn toolchain() -> Toolchain {
    Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap_or_else(|error| panic!("{error}"))
}

/// Source that no run before had.
fn fresh(body: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("{HEAD}{body}\n// {} {now}\n", std::process::id())
}

fn helper(toolchain: &Toolchain, target: &Target) -> Rlib {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/device/helper/lib.rs");
    let library = Library { name: "helper", root: &root, externs: &[], target, cfgs: &[] };
    let rlib = toolchain.library(&library).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(toolchain.cached_library(&library).as_ref(), Some(&rlib));
    rlib
}

#[test]
fn find_agrees_with_prepare() {
    let prepared = toolchain();
    let found = Toolchain::find().unwrap();
    assert_eq!(found.fingerprint(), prepared.fingerprint());
    assert_eq!(found.source(), prepared.source());
    assert!(found.version().starts_with("rustc "), "{}", found.version());
}

#[test]
fn a_kernel_becomes_an_entry_and_is_kept() {
    let toolchain = toolchain();
    let target = Target::new(Arch::SM_90);
    let source = fresh("#[unsafe(no_mangle)] pub extern \"ptx-kernel\" fn nothing() {}");
    let unit = Unit::new("entry", &source, &target);
    assert!(toolchain.cached_kernel(&unit).is_none());

    let first = toolchain.kernel(&unit).unwrap();
    assert!(first.text.contains(".visible .entry nothing"), "{}", first.text);
    assert!(first.text.contains(".version 8.6") && first.text.contains(".target sm_90"), "{}", first.text);
    assert!(!first.from_cache);

    let second = toolchain.kernel(&unit).unwrap();
    assert!(second.from_cache);
    assert_eq!(second.text, first.text);
    assert_eq!(toolchain.cached_kernel(&unit).unwrap().text, first.text);
    eprintln!("compiled in {:.3} s, from the cache in {:.4} s", first.seconds, second.seconds);

    let other = Target::new(Arch::SM_80);
    assert!(toolchain.cached_kernel(&Unit::new("entry", &source, &other)).is_none());
}

#[test]
fn panics_are_linked_in() {
    let source = fresh(PANICS);
    let ptx = toolchain().kernel(&Unit::new("panics", &source, &Target::new(Arch::SM_90))).unwrap();
    assert!(ptx.text.contains("panic_bounds_check"));
    assert!(!ptx.text.contains(".extern .func"), "{}", ptx.text);
}

#[test]
fn libraries_of_another_architecture_are_inlined() {
    let toolchain = toolchain();
    let library = helper(&toolchain, &Target::new(Arch::SM_80));
    let source = fresh(USES_HELPER);
    let target = Target::new(Arch::SM_90);
    let externs = [("helper", &library)];
    let ptx = toolchain.kernel(&Unit { externs: &externs, ..Unit::new("apply", &source, &target) }).unwrap();
    let calls: Vec<&str> = ptx.text.lines().filter(|line| line.contains("call.uni")).collect();
    assert!(calls.iter().any(|call| call.contains("far")), "{calls:?}");
    assert!(calls.iter().all(|call| call.contains("far") || call.contains("panic")), "{calls:?}");
    assert!(!ptx.text.contains(".extern .func"));
}

#[test]
fn an_error_has_its_place() {
    let source = format!("{HEAD}pub fn wrong() -> u32 {{\n    let x: () = 5u8;\n    7\n}}\n");
    let target = Target::new(Arch::SM_90);
    let file = PathBuf::from("/project/src/hooks.rs");
    let unit = Unit { file: Some(&file), ..Unit::new("wrong", &source, &target) };
    let error = toolchain().kernel(&unit).unwrap_err();
    assert!(error.to_string().contains("--> /project/src/hooks.rs:5:17"), "{error}");
    let CompileError::Diagnostics(diagnostics) = error else { panic!("{error:?}") };
    let error = diagnostics.iter().find(|diagnostic| diagnostic.level == Level::Error).unwrap();
    assert_eq!(error.code.as_deref(), Some("E0308"));
    let span = error.primary().unwrap();
    assert_eq!(
        (span.file.as_str(), span.line, span.column, span.end_column),
        ("/project/src/hooks.rs", 5, 17, 20)
    );
    assert_eq!(diagnostics.iter().filter(|diagnostic| diagnostic.level == Level::Error).count(), 1);
}

#[test]
fn an_error_in_a_librarys_macro_is_at_its_call() {
    let toolchain = toolchain();
    let target = Target::new(Arch::SM_90);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("lib.rs");
    let text =
        "#![no_std]\n#[macro_export]\nmacro_rules! wrong { ($x:expr) => {{ let y: bool = $x + 1u8; y }} }\n";
    std::fs::write(&root, text).unwrap();
    let library = Library { name: "macros", root: &root, externs: &[], target: &target, cfgs: &[] };
    let library = toolchain.library(&library).unwrap();
    let source = format!("{HEAD}pub fn k() -> bool {{\n    macros::wrong!(2u8)\n}}\n");
    let externs = [("macros", &library)];
    let error =
        toolchain.kernel(&Unit { externs: &externs, ..Unit::new("k", &source, &target) }).unwrap_err();
    let CompileError::Diagnostics(diagnostics) = error else { panic!("{error:?}") };
    let place = diagnostics.iter().find_map(|diagnostic| diagnostic.primary_in("k.rs")).unwrap();
    assert_eq!((place.line, place.column), (5, 5), "{diagnostics:?}");
    std::fs::remove_dir_all(library.path().parent().unwrap()).unwrap();
}

#[test]
fn what_the_cache_would_miss_is_refused() {
    let toolchain = toolchain();
    let target = Target::new(Arch::SM_90);
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let source = fresh(&format!("pub const TEXT: &str = include_str!({other:?});"));
    let error = toolchain.kernel(&Unit::new("reads", &source, &target)).unwrap_err();
    assert!(matches!(&error, CompileError::Misuse { .. }), "{error:?}");
    assert!(error.to_string().contains("Cargo.toml"), "{error}");

    let source = fresh(
        "unsafe extern \"C\" { fn nowhere(); }\n\
        #[unsafe(no_mangle)] pub extern \"ptx-kernel\" fn k() { unsafe { nowhere() } }",
    );
    let error = toolchain.kernel(&Unit::new("calls", &source, &target)).unwrap_err();
    assert!(error.to_string().contains("defined nowhere on the device: nowhere"), "{error}");

    let root = Path::new("no/such/lib.rs");
    let library = Library { name: "none", root, externs: &[], target: &target, cfgs: &[] };
    assert!(matches!(toolchain.library(&library), Err(CompileError::Misuse { .. })));
}

#[test]
fn a_library_sees_its_changes_and_cfgs() {
    let toolchain = toolchain();
    let target = Target::new(Arch::SM_90);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("lib.rs");
    std::fs::write(&root, "#![no_std]\n#[cfg(feature = \"on\")]\npub fn on() {}\n").unwrap();
    let library = Library { name: "changing", root: &root, externs: &[], target: &target, cfgs: &[] };
    let plain = toolchain.library(&library).unwrap();
    let on = toolchain.library(&Library { cfgs: &["feature=\"on\""], ..library.clone() }).unwrap();
    assert_ne!(plain.key(), on.key());
    let source = fresh("pub fn k() { changing::on() }");
    let with = |rlib| {
        let externs = [("changing", rlib)];
        toolchain.kernel(&Unit { externs: &externs, ..Unit::new("k", &source, &target) })
    };
    assert!(matches!(with(&plain), Err(CompileError::Diagnostics(_))));
    with(&on).unwrap();

    std::fs::write(&root, "#![no_std]\npub fn on() {}\n").unwrap();
    let changed = toolchain.library(&library).unwrap();
    assert_ne!(changed.key(), plain.key());
    with(&changed).unwrap();
    for rlib in [plain, on, changed] {
        std::fs::remove_dir_all(rlib.path().parent().unwrap()).unwrap();
    }
}

#[test]
fn a_library_uses_a_library() {
    let toolchain = toolchain();
    let target = Target::new(Arch::SM_90);
    let below = helper(&toolchain, &target);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("lib.rs");
    std::fs::write(&root, "#![no_std]\npub fn twice(x: u32) -> u32 { helper::far::far(x) * 2 }\n").unwrap();
    let library =
        Library { name: "above", root: &root, externs: &[("helper", &below)], target: &target, cfgs: &[] };
    let above = toolchain.library(&library).unwrap();
    let source = fresh(
        "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(x: *mut u32) { unsafe { *x = above::twice(*x) } }",
    );
    let externs = [("above", &above)];
    let ptx = toolchain.kernel(&Unit { externs: &externs, ..Unit::new("k", &source, &target) }).unwrap();
    assert!(!ptx.text.contains(".extern .func"), "{}", ptx.text);
    std::fs::remove_dir_all(above.path().parent().unwrap()).unwrap();
}

const SHARED: &str = "FUSEWIRE_TEST_SHARED_SOURCE";

/// Compiles what the parent names, or something of its own, and says where it came from.
#[test]
fn child_compiles() {
    let source = std::env::var(SHARED).unwrap_or_else(|_| fresh(PANICS));
    let ptx = toolchain().kernel(&Unit::new("shared", &source, &Target::new(Arch::SM_90))).unwrap();
    println!("from_cache={} length={}", ptx.from_cache, ptx.text.len());
}

#[test]
fn two_processes_compile_once() {
    toolchain();
    let source = fresh(PANICS);
    let spawn = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_compiles", "--nocapture"]).env(SHARED, &source);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| spawn()).collect();
    let said: Vec<String> = children
        .into_iter()
        .map(|child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    let count = |text: &str| said.iter().filter(|said| said.contains(text)).count();
    assert_eq!((count("from_cache=false"), count("from_cache=true")), (1, 3), "{said:?}");
}

#[test]
fn nothing_is_left_behind() {
    let source = fresh(PANICS);
    toolchain().kernel(&Unit::new("tidy", &source, &Target::new(Arch::SM_90))).unwrap();
    let left = |entry: &Path| {
        // Other tests may be compiling: only this crate's name counts.
        entry.join("tidy.rs").exists()
    };
    let entries = std::fs::read_dir(cache::dir().join("tmp")).unwrap();
    assert!(!entries.flatten().any(|entry| left(&entry.path())));
}
