//! How a transport's ranks are divided, for algorithms that go by domains.

use std::fmt::Write;

/// How a transport's ranks are in domains, within which they reach each other by other links than everybody else. The same on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Domains {
    /// They are not.
    #[default]
    None,
    /// Ranks `d n .. (d + 1) n` are domain `d`, all of so many ranks `n`: a power of two from 2 on, in a world of several domains.
    Aligned(u32),
    /// In another way: what was expected, what was found, and what to do.
    Other(String),
}

/// What steps by domains ask for.
const EXPECTED: &str =
    "steps by domains need two domains or more of 2, 4, 8, .. consecutive ranks each, all of one size";

impl Domains {
    /// Those of a world in which the lowest rank of each rank's domain is `lowest[rank]`.
    pub(crate) fn of(lowest: &[usize]) -> Self {
        let sizes = |first: usize| lowest.iter().filter(|rank| **rank == first).count();
        let (world, each) = (lowest.len(), sizes(lowest.first().copied().unwrap_or(0)));
        let firsts: Vec<usize> = (0..world).filter(|rank| lowest[*rank] == *rank).collect();
        let other = |found: String, todo: &str| Domains::Other(format!("{EXPECTED}; here {found}: {todo}"));
        if firsts.len() < 2 {
            return other(format!("all {world} ranks are in one domain"), "leave the protocol open");
        }
        if let Some(rank) = (1..world).find(|rank| lowest[*rank] < lowest[rank - 1]) {
            let found = format!(
                "rank {rank} is in the domain of rank {}, and rank {} is not",
                lowest[rank],
                rank - 1
            );
            return other(
                found,
                "number the ranks of each domain one behind the other, or leave the protocol open",
            );
        }
        if firsts.iter().any(|first| sizes(*first) != each) {
            let mut found = String::from("domains have");
            for (number, first) in firsts.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                let _ = write!(found, "{comma} {}", sizes(*first));
            }
            return other(found + " ranks", "start as many ranks in each, or leave the protocol open");
        }
        if each < 2 || !each.is_power_of_two() {
            let ranks = if each == 1 { "rank" } else { "ranks" };
            return other(
                format!("each domain has {each} {ranks}"),
                "start a power of two of them in each, or leave the protocol open",
            );
        }
        Domains::Aligned(each as u32)
    }

    /// Ranks of each, if they are aligned.
    pub fn aligned(&self) -> Option<u32> {
        match self {
            Domains::Aligned(each) => Some(*each),
            Domains::None | Domains::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_domains_are_found_and_others_are_told() {
        for (each, domains) in [(2, 2), (2, 3), (4, 2), (8, 5)] {
            let lowest: Vec<usize> = (0..each * domains).map(|rank| rank / each * each).collect();
            assert_eq!(Domains::of(&lowest), Domains::Aligned(each as u32));
        }
        for (lowest, found) in [
            (&[0, 0, 0, 0][..], "all 4 ranks are in one domain"),
            (&[0], "all 1 ranks are in one domain"),
            (&[0, 1, 0, 1], "rank 2 is in the domain of rank 0, and rank 1 is not"),
            (&[0, 1, 1, 0], "rank 3 is in the domain of rank 0, and rank 2 is not"),
            (&[0, 0, 2, 2, 4], "domains have 2, 2, 1 ranks"),
            (&[0, 1, 1], "domains have 1, 2 ranks"),
            (&[0, 1, 2], "each domain has 1 rank:"),
            (&[0, 0, 0, 3, 3, 3], "each domain has 3 ranks:"),
        ] {
            let Domains::Other(text) = Domains::of(lowest) else { panic!("{lowest:?} is aligned") };
            assert!(
                text.contains(found)
                    && text.starts_with(EXPECTED)
                    && text.contains("leave the protocol open"),
                "{text}"
            );
        }
    }
}
