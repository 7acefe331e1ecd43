//! What `doctor` found, and how it is printed.

use std::fmt;

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
    /// What to do about it.
    pub advice: Option<String>,
}

impl Finding {
    /// A thing that is there.
    pub fn good(subject: &'static str, found: impl Into<String>) -> Finding {
        Finding { subject, state: State::Good, found: found.into(), advice: None }
    }

    /// A thing that is not there, what is lost with it and what to do.
    pub fn absent(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { subject, state: State::Absent, found: found.into(), advice: Some(advice.into()) }
    }

    /// A thing that must be there.
    pub fn bad(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { subject, state: State::Bad, found: found.into(), advice: Some(advice.into()) }
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
        match &self.advice {
            Some(advice) => write!(f, "\n    {:16} > {}", "", indent(advice)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_and_advice_line_up() {
        let text = Finding::bad("device compiler", "none\nreally", "run this\nand that").to_string();
        let columns: Vec<_> = ["none", "really", "run this", "and that"]
            .iter()
            .map(|word| text.lines().find_map(|line| line.find(word)).unwrap())
            .collect();
        assert_eq!(columns, [23; 4], "{text}");
        assert!(text.starts_with("!! "));
    }
}
