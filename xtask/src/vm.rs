//! InfiniBand verbs in a small VM: two soft-RoCE adapters under QEMU's software emulation.

use crate::steps::{self, Outcome, root};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Exit code of `build.sh` where a machine cannot have the VM.
const CANNOT: i32 = 77;

/// Kernel and initramfs, from the cache or made now.
///
/// # Errors
/// Outer: they should have been made and were not. Inner: why this machine cannot have them.
pub fn prepare(install: bool) -> Outcome<Result<(), String>> {
    let script = scripts().join("build.sh");
    if install {
        println!(
            "installing on this system what the VM needs of it, where it is missing: QEMU, busybox, cpio (`--no-install` leaves it out)"
        );
    }
    let output = Command::new(&script)
        .args(install.then_some("--deps"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", script.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(Ok(())),
        Some(CANNOT) => Ok(Err(text.lines().last().unwrap_or("no reason was given").to_owned())),
        _ => Err(format!("building the VM ended with {}: {text}", output.status)),
    }
}

/// The programs in the script's order: name of the target, and whether it has tests.
const PROGRAMS: [(&str, bool); 6] = [
    ("verbs-selftest", false),
    ("fusewire_transports", true),
    ("p2p", true),
    ("gpu-suite", false),
    ("infiniband", false),
    ("no_adapter", true),
];

/// Runs everything in one VM, with the programs of the tests of all crates.
///
/// # Errors
/// What failed to build; that the VM's script failed, which says what.
pub fn run() -> Outcome {
    let all = steps::programs()?;
    let path = |(name, tests)| steps::program(&all, name, tests).map(|p| &p.path);
    let programs = PROGRAMS.into_iter().map(path).collect::<Outcome<Vec<_>>>()?;
    let mut run = Command::new(scripts().join("run.sh"));
    run.args(["-t", "600"]).arg(scripts().join("all.sh")).args(programs);
    steps::run("the VM", run.current_dir(root()))
}

fn scripts() -> PathBuf {
    root().join("tests/vm")
}
