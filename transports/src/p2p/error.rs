//! Errors of transports between two hosts' programs.

use super::Mode;
use crate::rdma::Status;
use std::time::Duration;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong between this rank and a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be.
    #[error("{what}")]
    Misuse {
        /// What, and what to do instead.
        what: String,
    },
    /// The transport to this peer exists in the other mode, here or there.
    #[error(
        "the transport to rank {peer} is {have:?}, but {asked:?} was asked for: one peer, one mode, the same on both ranks"
    )]
    ModeMismatch {
        /// The peer.
        peer: usize,
        /// What it is.
        have: Mode,
        /// What it should be.
        asked: Mode,
    },
    /// A wait expired; the transport goes on.
    #[error("waited {waited:.3?} for {what} of rank {peer}")]
    Timeout {
        /// The peer.
        peer: usize,
        /// "a control message", "a chunk" or "a chunk to be taken".
        what: &'static str,
        /// How long.
        waited: Duration,
    },
    /// An adapter could not carry out a request. The transport is of no further use.
    #[error("{what} to rank {peer} failed: {}", status.describe())]
    Failed {
        /// The peer.
        peer: usize,
        /// Which request.
        what: &'static str,
        /// How it ended.
        status: Status,
    },
    /// A control message of another kind than the one that was due.
    #[error("rank {peer} sent a control message of kind {kind} and {bytes} bytes, which is no {expected}")]
    Unexpected {
        /// The peer.
        peer: usize,
        /// The kind it has.
        kind: u32,
        /// Bytes of its payload.
        bytes: usize,
        /// What was due.
        expected: &'static str,
    },
    /// No adapter, or one that refused something.
    #[error(transparent)]
    Rdma(#[from] crate::rdma::Error),
    /// Ranks are missing or lost.
    #[error(transparent)]
    World(#[from] fusewire_world::Error),
    /// No memory.
    #[error(transparent)]
    Host(#[from] crate::host::Error),
}

impl Error {
    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Error::Misuse { what: what.into() }
    }
}
