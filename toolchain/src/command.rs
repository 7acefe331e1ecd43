//! Runs helper programs and words their failures.

use std::process::{Command, Output, Stdio};

use crate::error::Error;

/// Runs `command` to its end; a program that is missing or fails is an error that quotes the end of what it wrote.
pub(crate) fn run(step: &str, command: &mut Command) -> Result<Output, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let fail = |why: String| Error::Command { step: step.to_owned(), program: program.clone(), why };
    let output = command.stdin(Stdio::null()).output().map_err(|error| fail(error.to_string()))?;
    if output.status.success() {
        Ok(output)
    } else {
        Err(fail(format!("{}\n{}", output.status, tail(&output.stderr))))
    }
}

/// Runs `command` and gives what it wrote.
pub(crate) fn text(step: &str, command: &mut Command) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&run(step, command)?.stdout).into_owned())
}

/// The last lines of what a program wrote: enough to see why it failed.
pub(crate) fn tail(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// A command that sees nothing of the caller's environment but where programs, home and temporary files are.
///
/// Cargo sets much that would leak into a compilation (`LD_LIBRARY_PATH` of the host's compiler above all), and a
/// cached result must not depend on it.
pub(crate) fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    for name in ["PATH", "HOME", "TMPDIR", "TEMP", "TMP"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        let error = run("testing", &mut Command::new("no-such-program")).unwrap_err().to_string();
        assert!(error.contains("`no-such-program` failed while testing"), "{error}");
    }

    #[test]
    fn a_failure_quotes_the_end() {
        let error = run("testing", Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().ends_with("why"), "{error}");
        assert_eq!(tail("a\n".repeat(40).as_bytes()).lines().count(), 12);
    }
}
