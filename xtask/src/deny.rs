//! Licences and sources of all dependencies, by cargo-deny and `deny.toml`.

use crate::steps::{self, Outcome, cargo};
use fusewire_toolchain::cache;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Older ones do not read what today's cargo says of a workspace.
const VERSION: &str = "0.20.2";

/// Finds cargo-deny, or builds it into the cache. The error is the reason why it is left out.
pub fn prepare(install: bool) -> Outcome {
    if there() {
        return Ok(());
    }
    if !install {
        return Err(
            "cargo-deny is missing, and `--no-install` was given; cargo install cargo-deny --locked".into()
        );
    }
    println!(
        "building cargo-deny {VERSION} into {}, for the check of licences (`--no-install` leaves it out)",
        folder().display()
    );
    let mut command = cargo();
    command.args([
        "install",
        "cargo-deny",
        "--version",
        &format!("={VERSION}"),
        "--locked",
        "--quiet",
        "--root",
    ]);
    // It runs for a second: a release build would take minutes more. Its build folder is a temporary one.
    command
        .arg(folder())
        .args(["--debug", "--force"])
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("CARGO_TARGET_DIR");
    steps::run("cargo install cargo-deny", &mut command)?;
    if there() {
        Ok(())
    } else {
        Err(format!("cargo-deny was built, but does not run: {}", folder().display()))
    }
}

/// Runs the checks.
pub fn run() -> Outcome {
    steps::run("cargo deny", deny().args(["check", "bans", "licenses", "sources"]))
}

fn there() -> bool {
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet(deny().arg("--version")).is_ok_and(|status| status.success())
}

/// `cargo deny`: the user's own, else the cache's.
fn deny() -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(OsString::from(":"));
    path.push(folder().join("bin"));
    let mut command = cargo();
    command.arg("deny").env("PATH", path);
    command
}

fn folder() -> PathBuf {
    cache::dir().join("tools").join(format!("cargo-deny-{VERSION}"))
}
