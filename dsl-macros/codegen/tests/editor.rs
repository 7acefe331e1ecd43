//! In an editor an expansion starts no compiler and downloads nothing.
#![cfg(unix)]

use fusewire_codegen::{Mode, expand};
use std::{os::unix::fs::PermissionsExt, process::Command};

const ITEM: &str = "mod copy { pub struct Args<'a> { pub input: &'a [f32], pub output: Out<'a, f32> } }";

/// Run by the test below, in a process of its own: the environment says where compilers are.
#[test]
#[ignore = "run by `no_compiler_is_started`"]
fn expands() {
    let tokens = expand("transports(Nvl)".parse().unwrap(), ITEM.parse().unwrap(), Mode::Editor).to_string();
    assert!(tokens.contains("fn all_to_all") && !tokens.contains("compile_error"), "{tokens}");
}

#[test]
fn no_compiler_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let (bin, ran) = (folder.path().join("bin"), folder.path().join("ran"));
    std::fs::create_dir(&bin).unwrap();
    for name in ["rustc", "apt-get", "apt-config", "rustup"] {
        std::fs::write(bin.join(name), format!("#!/bin/sh\necho {name} $* >> {}\nexit 1\n", ran.display()))
            .unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "expands"]).env("PATH", &bin).env("HOME", folder.path());
    child.env("FUSEWIRE_CACHE", folder.path().join("cache")).env_remove("RUSTUP_HOME");
    for compiler in [None, Some(bin.join("rustc"))] {
        if let Some(compiler) = compiler {
            child.env("FUSEWIRE_DEVICE_RUSTC", compiler);
        }
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        // To ask a named compiler for its version is not to compile; nothing else may run.
        let started = std::fs::read_to_string(&ran).unwrap_or_default();
        let compiled: Vec<_> =
            started.lines().filter(|l| !l.contains("-vV") && !l.contains("--version")).collect();
        assert!(compiled.is_empty(), "{started}");
    }
}
