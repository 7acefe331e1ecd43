//! InfiniBand verbs in a small VM: two soft-RoCE adapters under QEMU's software emulation.

use crate::steps::{self, Outcome, cargo, root, target};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exit code of `build.sh` where a machine cannot have the VM.
const CANNOT: i32 = 77;

/// Kernel and initramfs, from the cache or made now.
///
/// # Errors
/// Outer: they should have been made and were not. Inner: why this machine cannot have them.
pub fn prepare() -> Outcome<Result<(), String>> {
    let script = scripts().join("build.sh");
    let output = Command::new(&script)
        .arg("--deps")
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

/// Builds the programs and runs everything in one VM.
pub fn run() -> Outcome {
    steps::run(
        "building the verbs' self-test",
        cargo().args(["build", "--quiet", "-p", "fusewire-verbs", "--example", "selftest"]),
    )?;
    let selftest = target().join("debug/examples/selftest");
    in_vm(&["verbs.sh".as_ref(), &selftest])
}

/// Runs a script of `tests/vm` inside.
fn in_vm(command: &[&Path]) -> Outcome {
    let mut run = Command::new(scripts().join("run.sh"));
    run.args(["-t", "170"]).arg(scripts().join(command[0])).args(&command[1..]);
    steps::run("the VM", run.current_dir(root()))
}

fn scripts() -> PathBuf {
    root().join("tests/vm")
}
