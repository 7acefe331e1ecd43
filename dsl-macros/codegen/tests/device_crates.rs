//! What the device compiler refuses in the code of a device crate is said where the kernel has to do with it, and names the crate's own line.

use fusewire_codegen::{CompileOptions, DeviceCrate, Model, SourceFile, analyse_with, compile, find_kernels};
use fusewire_toolchain::Toolchain;
use std::path::{Path, PathBuf};

/// A device crate of one file, by a name of its own for each test.
fn device_crate(name: &str, uses: &[&str], text: &str) -> DeviceCrate {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("device-crates").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let root = folder.join("lib.rs");
    std::fs::write(&root, format!("#![cfg_attr(target_arch = \"nvptx64\", no_std)]\n{text}\n")).unwrap();
    let uses = uses.iter().map(|name| name.to_string()).collect();
    DeviceCrate { name: name.to_owned(), root, cfgs: Vec::new(), uses, transports: Vec::new() }
}

/// Whether each error is shown whatever the host's compiler finds, the text that it stands at, and what it says, of a kernel that uses the first
/// of the crates and whose `produce` ends with this expression. Paths of crates are `$NAME`.
fn said(crates: &[DeviceCrate], value: &str) -> Vec<(bool, String, String)> {
    let name = &crates[0].name;
    let file = format!(
        "// Lines before the module.\n\n\n\n
#[comm_kernel(transports(Nvl), schedules(sendrecv), uses({name}))]
mod kernel {{
    pub struct Args<'a> {{
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }}
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {{
        args.input[ctx.index()] + {value}
    }}
}}
"
    );
    let found = find_kernels(&file).unwrap().remove(0);
    let (model, errors) = analyse_with(crates.to_vec(), found.attribute, found.item);
    assert!(errors.is_empty(), "{:?}", errors.messages());
    let source = SourceFile { path: PathBuf::from("src/kernels.rs"), text: file.clone() };
    let model = Model { file: Some(source), ..model.unwrap() };
    let toolchain = Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap();
    let options = CompileOptions { arch: "sm_80".into(), line_info: false };
    let errors = compile(&toolchain, &model, &model.entries(), &options).unwrap_err();
    let shown = errors.shown();
    let mut out = Vec::new();
    for (n, (line, column, mut message)) in errors.placed().into_iter().enumerate() {
        let text: String = file.lines().nth(line - 1).unwrap().chars().skip(column).collect();
        for krate in crates {
            message = message.replace(&krate.root.display().to_string(), &format!("${}", krate.name));
        }
        out.push((n < shown, text, message));
    }
    out
}

#[test]
fn a_crate_that_does_not_compile_is_named_in_the_attribute() {
    let krate = device_crate(
        "with_a_heap",
        &[],
        "pub fn some() -> f32 { 1.0 }\n// Many lines.\n\n\n\n\n\npub fn first(len: usize) -> f32 {\n    Vec::from_iter(0..len)[0] as f32\n}",
    );
    let all = said(&[krate], "with_a_heap::some()");
    let [(shown, at, message)] = all.as_slice() else { panic!("{all:?}") };
    assert!(shown, "the host compiles that crate, so it does not say this");
    assert!(at.starts_with("with_a_heap))]"), "{at}");
    assert!(message.starts_with("not on the device: "), "{message}");
    assert!(message.contains("`Vec`") && message.contains("there is no heap on the device"), "{message}");
    assert!(message.contains("$with_a_heap:10:5, in the device crate `with_a_heap`"), "{message}");
}

#[test]
fn a_crate_that_another_uses_is_said_at_that_one() {
    let used = device_crate("with_a_method", &[], "pub fn root(x: f32) -> f32 {\n    x.sqrt()\n}");
    let user =
        device_crate("above_it", &["with_a_method"], "pub fn root(x: f32) -> f32 { with_a_method::root(x) }");
    let all = said(&[user, used], "above_it::root(2.0)");
    let [(true, at, message)] = all.as_slice() else { panic!("{all:?}") };
    assert!(at.starts_with("above_it))]"), "{at}");
    assert!(message.contains("$with_a_method:3:7, in the device crate `with_a_method`"), "{message}");
    assert!(message.contains("write `math::sqrt(..)`"), "{message}");
}

#[test]
fn what_fails_for_the_types_of_a_kernel_is_said_at_its_call() {
    let krate = device_crate(
        "with_a_limit",
        &[],
        "pub fn table<const N: usize>() -> f32 {\n    const { assert!(N <= 8, \"at most 8 rows\") };\n    N as f32\n}\npub fn larger<const N: usize>() -> f32 {\n    table::<N>()\n}",
    );
    for (call, of) in [
        ("with_a_limit::table::<16>()", "with_a_limit::table::<16>"),
        ("with_a_limit::larger::<32>()", "with_a_limit::table::<32>"),
    ] {
        let all = said(std::slice::from_ref(&krate), call);
        let [(true, at, message)] = all.as_slice() else { panic!("{all:?}") };
        assert!(at.starts_with(call), "{at}");
        assert!(message.contains("at most 8 rows") && message.contains(of), "{message}");
        assert!(message.contains("$with_a_limit:3:13, in the device crate `with_a_limit`"), "{message}");
    }
}

#[test]
fn what_begins_in_the_kernel_stays_there_and_names_the_line_of_the_crate() {
    let krate = device_crate(
        "with_two_sides",
        &[],
        "pub const fn inverse(x: u32) -> u32 {\n    1 / x\n}\n#[cfg(not(target_arch = \"nvptx64\"))]\npub fn hosted() -> f32 { 1.0 }",
    );
    let all = said(std::slice::from_ref(&krate), "const { with_two_sides::inverse(0) as f32 }");
    let [(_, at, message)] = all.as_slice() else { panic!("{all:?}") };
    assert!(at.starts_with("with_two_sides::inverse(0)"), "{at}");
    assert!(message.contains("$with_two_sides:3:5, in the device crate `with_two_sides`"), "{message}");
    let all = said(&[krate], "with_two_sides::hosted()");
    let [(true, at, message)] = all.as_slice() else { panic!("{all:?}") };
    assert!(at.starts_with("hosted()"), "{at}");
    assert!(message.contains("configured out: $with_two_sides:6:8, in the device crate"), "{message}");
}

#[test]
fn what_the_kernel_itself_gets_wrong_stays_at_its_tokens() {
    let krate = device_crate(
        "with_a_bound",
        &[],
        "pub trait Scale { fn scale(self) -> f32; }\nimpl Scale for f32 { fn scale(self) -> f32 { self } }\npub fn scaled<T: Scale>(x: T) -> f32 { x.scale() }",
    );
    let all = said(&[krate], "with_a_bound::scaled(3u32)");
    let [(false, at, message)] = all.as_slice() else { panic!("{all:?}") };
    assert!(at.starts_with("3u32"), "{at}");
    assert!(message.starts_with("not on the device: the trait bound `u32: "), "{message}");
}
