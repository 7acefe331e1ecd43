//! Host tests under the address sanitizer.

use crate::steps::{self, Outcome, TRIPLE, cargo, root, target};
use std::process::Command;

/// What handles memory by address on the host: shared and registered memory, the emulated adapters and the operations that run
/// against them, schedules over lent vectors, host buffers, files passed between ranks. Left out: what compiles kernels, which takes
/// minutes and checks texts; the interleavings, which switch stacks behind the sanitizer's back; other tests of the same code.
const PACKAGES: &[&str] = &["fusewire-device", "fusewire-transports", "fusewire-world", "fusewire"];
/// Beside the packages' unit tests.
const TESTS: &[&str] = &[
    "channel",
    "schedules",
    "turns",
    "emulated",
    "ibgda_faults",
    "ibgda_operations",
    "mesh",
    "mixed",
    "p2p",
    "processes",
];

/// The reason why the sanitizer is left out here, if there is one.
pub fn missing() -> Option<String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--print", "target-libdir", "--target", TRIPLE]).current_dir(root());
    let folder = match rustc.output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => return Some(format!("rustc knows no folder of libraries for {TRIPLE}")),
    };
    let runtime = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with("_rt.asan.a");
    let found = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(runtime)));
    (!found).then(|| format!("this Rust has no runtime of it in {folder}; toolchains of rustup have"))
}

/// Builds the tests with the sanitizer, in a target folder of their own, and runs them.
pub fn run() -> Outcome {
    let mut command = cargo();
    command.args(["test", "--no-fail-fast", "--lib", "--target", TRIPLE]);
    command
        .args(PACKAGES.iter().flat_map(|name| ["-p", name]))
        .args(TESTS.iter().flat_map(|name| ["--test", name]));
    command.arg("--target-dir").arg(target().join("sanitizer"));
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    steps::run("cargo test under the address sanitizer", &mut command)
}
