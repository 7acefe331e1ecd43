//! The program itself, run as a person runs it.

use std::{
    path::Path,
    process::{Command, Output},
};

fn fusewire(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-fusewire"));
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

/// A machine without any source of a compiler: no rustup, no package tools, an empty cache.
fn bare(command: &mut Command, folder: &Path) {
    command.env_clear().env("HOME", folder).env("PATH", folder).env("FUSEWIRE_CACHE", folder.join("cache"));
}

#[test]
fn setup_then_doctor() {
    let (done, out, err) = run(&mut fusewire(&["fusewire", "setup"]));
    assert!(done, "{err}");
    assert!(out.contains("ok  device compiler    rustc ") && out.contains("ok  cache "), "{out}");

    let (done, setup, _) = run(&mut fusewire(&["setup"]));
    assert!(done && setup.contains("Nothing was left to prepare."), "{setup}");

    let (done, out, err) = run(&mut fusewire(&["doctor"]));
    assert!(done, "{out}{err}");
    // What `setup` tells is told by `doctor` in the same words.
    let compiler = out.lines().next().unwrap();
    assert!(compiler.starts_with("ok  device compiler") && setup.contains(compiler), "{setup}{out}");
    for subject in ["ok  device compiler", "ptxas", "CUDA driver", "RDMA adapters", "host", "/dev/shm"] {
        assert!(out.contains(subject), "{subject}: {out}");
    }
}

#[test]
fn a_bare_machine_is_told_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut doctor = fusewire(&["doctor"]);
    bare(&mut doctor, folder.path());
    let (done, out, _) = run(&mut doctor);
    assert!(!done);
    assert!(
        out.contains("!!  device compiler") && out.contains("to do: run `cargo fusewire setup`"),
        "{out}"
    );

    let mut setup = fusewire(&["setup"]);
    bare(&mut setup, folder.path());
    let (done, _, err) = run(&mut setup);
    assert!(!done);
    for part in [
        "FUSEWIRE_DEVICE_RUSTC: not set",
        "rustup toolchains: none in",
        "Debian or Ubuntu packages: `apt-config` failed",
        "rustup target add nvptx64-nvidia-cuda",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path().join("cache/tmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_wrong_override_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = fusewire(&["setup"]);
    bare(&mut setup, folder.path());
    let (done, _, err) = run(setup.env("FUSEWIRE_DEVICE_RUSTC", "/nowhere/rustc"));
    assert!(!done);
    assert!(err.contains("FUSEWIRE_DEVICE_RUSTC is `/nowhere/rustc`, which cannot be used"), "{err}");
}
