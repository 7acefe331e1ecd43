//! "ranks 0, 1 and 3": how lists of ranks read in messages.

use std::fmt;

use crate::Rank;

/// More ranks than this are counted, not listed.
const LISTED: usize = 16;

pub(crate) struct Ranks<'a>(pub &'a [Rank]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("no rank"),
            [one] => write!(f, "rank {one}"),
            many => {
                let shown = many.len().min(LISTED);
                write!(f, "ranks {}", many[0])?;
                for (i, rank) in many[1..shown].iter().enumerate() {
                    let last = i + 2 == many.len();
                    write!(f, "{}{rank}", if last { " and " } else { ", " })?;
                }
                if many.len() > shown { write!(f, " and {} more", many.len() - shown) } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_a_sentence() {
        assert_eq!(Ranks(&[4]).to_string(), "rank 4");
        assert_eq!(Ranks(&[0, 1]).to_string(), "ranks 0 and 1");
        assert_eq!(Ranks(&[0, 1, 3]).to_string(), "ranks 0, 1 and 3");
        let all: Vec<_> = (0..100).collect();
        assert!(Ranks(&all).to_string().ends_with("15 and 84 more"));
    }
}
