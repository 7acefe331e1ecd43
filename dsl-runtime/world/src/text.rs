//! Text that came from elsewhere, made fit for a terminal.

use std::fmt;

/// More characters than this are cut.
const LONGEST: usize = 1024;

/// Shows a text with control characters, bidirectional overrides and the like escaped, and cut if very long.
pub(crate) struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for (nth, c) in self.0.chars().enumerate() {
            match c {
                _ if nth == LONGEST => return f.write_str(".."),
                '"' | '\'' | '\\' => f.write_char(c)?,
                c => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_but_print() {
        let text = "ab\x1b[31m\r\n\u{9b}\u{202e}\u{0}\u{7f}\"é'";
        assert_eq!(Printable(text).to_string(), "ab\\u{1b}[31m\\r\\n\\u{9b}\\u{202e}\\0\\u{7f}\"é'");
        assert_eq!(Printable(&"x".repeat(5000)).to_string().len(), LONGEST + 2);
    }
}
