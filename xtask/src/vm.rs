//! InfiniBand verbs in a small VM: two soft-RoCE adapters under QEMU's software emulation.

use crate::steps::{self, Outcome, cargo, root, target};
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

/// Builds the programs and runs everything in one VM. `tested`: the tests of all crates were built, whose programs serve.
///
/// # Errors
/// What failed to build; that the VM's script failed, which says what.
pub fn run(tested: bool) -> Outcome {
    let programs = if tested { of_all_tests()? } else { of_its_own()? };
    let mut run = Command::new(scripts().join("run.sh"));
    run.args(["-t", "600"]).arg(scripts().join("all.sh")).args(programs);
    steps::run("the VM", run.current_dir(root()))
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

fn of_all_tests() -> Outcome<Vec<PathBuf>> {
    let programs = steps::programs()?;
    let path = |(name, tests): (&str, bool)| {
        let found = programs.iter().find(|p| p.name == name && p.tests == tests);
        found.map(|p| p.path.clone()).ok_or_else(|| format!("`cargo test` builds no program `{name}`"))
    };
    PROGRAMS.into_iter().map(path).collect()
}

fn of_its_own() -> Outcome<Vec<PathBuf>> {
    let build =
        |what: &str, arguments: &[&str]| steps::run(what, cargo().args(["build", "--quiet"]).args(arguments));
    build("building the verbs' self-test", &["-p", "fusewire-verbs", "--example", "verbs-selftest"])?;
    build("building the conformance suite", &["-p", "fusewire-tests", "--bin", "gpu-suite"])?;
    build("building the example", &["-p", "fusewire-examples", "--bin", "infiniband"])?;
    let built = |name: &str| target().join("debug").join(name);
    let units = test_program("fusewire-transports", &["--lib"])?;
    let chunks = test_program("fusewire-transports", &["--test", "p2p"])?;
    let mlx5 = test_program("fusewire-mlx5", &["--test", "no_adapter"])?;
    Ok(vec![built("examples/verbs-selftest"), units, chunks, built("gpu-suite"), built("infiniband"), mlx5])
}

/// A test program of a package, built; cargo says where it is.
fn test_program(package: &str, which: &[&str]) -> Outcome<PathBuf> {
    let mut build = cargo();
    build.args(["test", "--no-run", "-p", package]).args(which);
    let what = format!("building {package}'s test {}", which.join(" "));
    let output = build.output().map_err(|e| format!("{what}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let path = text.lines().rev().find_map(|line| {
        // Executable tests/p2p.rs (target/debug/deps/p2p-0123456789abcdef)
        let (_, path) = line.trim().strip_prefix("Executable")?.split_once('(')?;
        Some(root().join(path.strip_suffix(')')?))
    });
    match path {
        Some(path) if output.status.success() => Ok(path),
        _ => Err(format!("{what}: {text}")),
    }
}

fn scripts() -> PathBuf {
    root().join("tests/vm")
}
