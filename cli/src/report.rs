//! What `setup` and `doctor` looked at, in one form: the subject, what was found, what was expected, what to do.

use std::{fmt, io::Write};

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there and can be used.
    Good,
    /// It is not there; something else works without it.
    Absent,
    /// It is needed, and it is missing or unusable.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What it is.
    pub subject: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found; later lines are details.
    pub found: String,
    /// What was expected and what to do, where that is not what was found.
    pub mend: Option<Mend>,
}

/// How a thing becomes what it should be.
#[derive(Clone, Debug)]
pub struct Mend {
    /// What was expected, and what works without it.
    pub expected: String,
    /// What to do.
    pub action: String,
}

impl Finding {
    /// A thing as it should be.
    pub fn good(subject: &'static str, found: impl Into<String>) -> Finding {
        Finding { subject, state: State::Good, found: found.into(), mend: None }
    }

    /// A thing that is not as it should be, and that something works without.
    pub fn absent(
        subject: &'static str,
        found: impl Into<String>,
        expected: impl Into<String>,
        action: impl Into<String>,
    ) -> Finding {
        let mend = Some(Mend { expected: expected.into(), action: action.into() });
        Finding { subject, state: State::Absent, found: found.into(), mend }
    }

    /// A thing that nothing works without.
    pub fn bad(
        subject: &'static str,
        found: impl Into<String>,
        expected: impl Into<String>,
        action: impl Into<String>,
    ) -> Finding {
        Finding { state: State::Bad, ..Finding::absent(subject, found, expected, action) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.state {
            State::Good => "ok",
            State::Absent => "--",
            State::Bad => "!!",
        };
        let indent = |text: &str| text.replace('\n', "\n                       ");
        write!(f, "{mark:3} {:18} {}", self.subject, indent(&self.found))?;
        if let Some(Mend { expected, action }) = &self.mend {
            write!(f, "\n{:23}expected: {}\n{:23}to do: {}", "", indent(expected), "", indent(action))?;
        }
        Ok(())
    }
}

/// Prints findings and a last line. A reader who leaves early is no error.
pub fn print(findings: &[Finding], last: &str) {
    let lines: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    let _ = std::io::stdout().write_all(format!("{lines}\n{last}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_and_what_to_do_line_up() {
        let text =
            Finding::bad("device compiler", "none\nreally", "one\nof two", "run this\nand that").to_string();
        let columns: Vec<_> = ["none", "really", "expected: one", "of two", "to do: run this", "and that"]
            .iter()
            .map(|word| text.lines().find_map(|line| line.find(word)).unwrap())
            .collect();
        assert_eq!(columns, [23; 6], "{text}");
        assert!(text.starts_with("!! "));
    }
}
