//! The token, and the proof of knowing it.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

pub(crate) const NONCE_LEN: usize = 32;

/// A job's secret. Its bytes are never printed and never sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Token(pub [u8; 32]);

impl Token {
    pub fn random() -> Result<Self> {
        Ok(Self(random()?))
    }

    /// From a text that the ranks share, like a job's id: as secret as that text is.
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

/// Which side proves; a proof of one side is useless to the other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Store,
    Rank,
}

/// Everything that a proof speaks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transcript {
    pub version: u16,
    pub store_nonce: [u8; NONCE_LEN],
    pub rank_nonce: [u8; NONCE_LEN],
    pub rank: u64,
    pub size: u64,
}

impl Transcript {
    pub fn prove(&self, side: Side, token: &Token) -> [u8; 32] {
        self.mac(side, token).finalize().into_bytes().into()
    }

    /// In constant time.
    pub fn check(&self, side: Side, token: &Token, proof: &[u8; 32]) -> bool {
        self.mac(side, token).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side, token: &Token) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&token.0).expect("HMAC takes keys of any length");
        mac.update(match side {
            Side::Store => b"fusewire store\0",
            Side::Rank => b"fusewire rank\0\0",
        });
        mac.update(&self.version.to_le_bytes());
        mac.update(&self.store_nonce);
        mac.update(&self.rank_nonce);
        mac.update(&self.rank.to_le_bytes());
        mac.update(&self.size.to_le_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_speaks_for_one_side_one_token_and_every_field() {
        let token = Token::from_text("a");
        let transcript =
            Transcript { version: 1, store_nonce: [1; 32], rank_nonce: [2; 32], rank: 3, size: 4 };
        let proof = transcript.prove(Side::Rank, &token);
        assert!(transcript.check(Side::Rank, &token, &proof));
        assert!(!transcript.check(Side::Store, &token, &proof));
        assert!(!transcript.check(Side::Rank, &Token::from_text("b"), &proof));
        for other in [
            Transcript { version: 2, ..transcript },
            Transcript { store_nonce: [9; 32], ..transcript },
            Transcript { rank_nonce: [9; 32], ..transcript },
            Transcript { rank: 9, ..transcript },
            Transcript { size: 9, ..transcript },
        ] {
            assert!(!other.check(Side::Rank, &token, &proof));
        }
        let mut flipped = proof;
        flipped[31] ^= 1;
        assert!(!transcript.check(Side::Rank, &token, &flipped));
    }

    #[test]
    fn hmac_is_the_standard_one() {
        // RFC 4231, test case 2.
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let digest = mac.finalize().into_bytes();
        let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn a_token_does_not_print() {
        assert_eq!(format!("{:?}", Token([7; 32])), "Token(..)");
    }
}
