//! The token: a job's secret.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// A job's secret. Its bytes are never printed and never sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Token(pub [u8; 32]);

impl Token {
    pub fn random() -> Result<Self> {
        Ok(Self(random()?))
    }

    /// From a text that the ranks share: as secret as that text is.
    pub fn from_text(text: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"fusewire token\0");
        hash.update(text.as_bytes());
        Self(hash.finalize().into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::fabric(
            "drawing random bytes",
            std::io::Error::other(e.to_string()),
            "the system's random source must be readable",
        )
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_print() {
        assert_eq!(format!("{:?}", Token([7; 32])), "Token(..)");
    }
}
