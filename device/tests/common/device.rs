//! Compiles kernels that use this crate, as the macro does.

#![allow(dead_code)] // each test uses a part

use fusewire_toolchain::{
    Arch, Library, Target, Toolchain, Unit,
    ptxas::{Ptxas, PtxasReport},
};
use std::path::Path;

pub const ARCHS: [Arch; 3] = [Arch::SM_80, Arch::SM_90, Arch::SM_100];

/// For tests that take minutes: sm_90, and the others where `FUSEWIRE_TEST_MATRIX=whole` asks for them. What those choose otherwise are instructions
/// for 8-bit floats and registers; `dsl-macros/codegen/tests/sound.rs` looks at spills of sm_80.
pub fn archs() -> &'static [Arch] {
    match std::env::var("FUSEWIRE_TEST_MATRIX").is_ok_and(|which| which == "whole") {
        true => &ARCHS,
        false => &ARCHS[1..2],
    }
}

const HEAD: &str = "#![no_std]\n#![feature(abi_ptx)]\n#![allow(warnings)]\nextern crate fusewire_device;\n\
    use fusewire_device::{args::*, atomic::*, element::*, group::*, hooks::*, kernel::*, launch::*, pack::*, prelude::*, protocol::*, schedule::*, *};\n\
    #[derive(Clone, Copy)]\n#[repr(C)]\npub struct Peers(mapped::Mapped);\nfusewire_device::mapped_ops!(Peers, \"peers\");\n";

/// The PTX of `source` with this crate, the largest block of each entry named as the macro does.
pub fn compile(name: &str, source: &str, arch: Arch) -> String {
    let toolchain = Toolchain::prepare(&mut |event| eprintln!("{event}")).unwrap_or_else(|e| panic!("{e}"));
    let target = Target::new(arch);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let library = Library { name: "fusewire_device", root: &root, externs: &[], target: &target, cfgs: &[] };
    let rlib = toolchain.library(&library).unwrap_or_else(|error| panic!("{error}"));
    let externs = [("fusewire_device", &rlib)];
    let source = format!("{HEAD}{source}");
    let unit = Unit { externs: &externs, ..Unit::new(name, &source, &target) };
    let text = toolchain.kernel(&unit).unwrap_or_else(|error| panic!("{error}")).text;
    let mut out = String::new();
    let mut threads = 0;
    for line in text.lines() {
        if line.contains(".entry ") {
            threads = if line.contains("transposed_") || line.contains(" sum_") { 256 } else { 512 };
        }
        if threads > 0 && line.starts_with('{') {
            out.push_str(&format!(".maxntid {threads}, 1, 1\n.minnctapersm 1\n"));
            threads = 0;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// What `of` gives of each, an architecture or a part of what is compiled for it, side by side.
pub fn each<I: Copy + Send, T: Send>(all: &[I], of: impl Fn(I) -> T + Sync) -> Vec<T> {
    let of = &of;
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|&one| scope.spawn(move || of(one))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// What ptxas makes of it.
pub fn assemble(ptx: &str, arch: Arch) -> PtxasReport {
    let ptxas = Ptxas::find_or_install().unwrap_or_else(|error| panic!("{error}"));
    ptxas.check(ptx, arch).unwrap_or_else(|error| panic!("{error}"))
}

/// The instructions of entry `name`: declarations, labels and comments left out, blanks made single.
pub fn body(ptx: &str, name: &str) -> Vec<String> {
    let start = ptx.find(&format!(".entry {name}(")).unwrap_or_else(|| panic!("no entry {name}"));
    let (_, rest) = ptx[start..].split_once("\n{").expect("a body");
    let (body, _) = rest.split_once("\n}").expect("an end");
    let clean =
        |line: &str| line.split("//").next().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ");
    body.lines().map(clean).filter(|line| !line.is_empty()).collect()
}

/// Lines that hold an instruction.
pub fn instructions(body: &[String]) -> impl Iterator<Item = &str> {
    let real = |line: &&str| !line.ends_with(':') && (!line.starts_with('.') || line.starts_with(".local"));
    body.iter().map(String::as_str).filter(real)
}
