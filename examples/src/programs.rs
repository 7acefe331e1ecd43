//! Programs as tests run them.

use std::process::{Command, Output};

/// Runs a program to its end.
///
/// # Panics
/// If it does not start.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// What it printed.
///
/// # Panics
/// If it fails.
pub fn succeeds(program: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(program, arguments);
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}\n{text}{}",
        String::from_utf8_lossy(&stderr)
    );
    text
}
