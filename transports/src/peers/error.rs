//! What can be wrong with the use of a [`MultiPeerTransport`](super::MultiPeerTransport) and of windows over it.

use std::fmt;

/// Misuse, by kind. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeersError {
    /// Something was asked for that exists only after `exchange`.
    NotExchanged {
        /// What was asked for.
        what: &'static str,
    },
    /// `exchange` was called a second time.
    AlreadyExchanged {
        /// Of what.
        what: &'static str,
    },
    /// The transport was closed.
    Closed {
        /// What was asked for.
        what: &'static str,
    },
    /// A rank that does not exist.
    NoSuchRank {
        /// The rank.
        rank: usize,
        /// Ranks are below it.
        world: usize,
    },
    /// This rank, where a peer is needed.
    OwnRank {
        /// The rank.
        rank: usize,
    },
    /// Two ranks that neither share memory nor have an adapter each.
    Unreachable {
        /// One rank.
        from: usize,
        /// The other.
        to: usize,
        /// Why not by memory, and why not by adapter.
        why: String,
    },
    /// The peer's memory cannot be stored to.
    NotMapped {
        /// The peer.
        peer: usize,
    },
    /// There is no adapter, or it is turned off.
    NoAdapter {
        /// What needs it.
        what: &'static str,
    },
    /// A buffer of another device, of no sharable memory, or of another transport.
    Foreign {
        /// What is wrong with it.
        what: String,
    },
    /// Memory that was not registered, or not any more.
    NotRegistered {
        /// Its address.
        address: u64,
    },
    /// A configuration that cannot be.
    Configuration {
        /// What, and what to do instead.
        what: String,
    },
}

impl fmt::Display for PeersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotExchanged { what } => {
                write!(f, "{what} exists only after its `exchange`, which every rank calls")
            }
            Self::AlreadyExchanged { what } => {
                write!(f, "{what} was exchanged already: `exchange` is called once")
            }
            Self::Closed { what } => {
                write!(f, "{what} was asked of a transport that is closed; make another one")
            }
            Self::NoSuchRank { rank, world } => write!(f, "there is no rank {rank} in a world of {world}"),
            Self::OwnRank { rank } => write!(f, "rank {rank} is this rank itself; name a peer"),
            Self::Unreachable { from, to, why } => {
                write!(f, "ranks {from} and {to} cannot reach each other: {why}")
            }
            Self::NotMapped { peer } => write!(
                f,
                "the memory of rank {peer} cannot be stored to from here; it is reached by an adapter: take `DeviceWindow<Mixed>`"
            ),
            Self::NoAdapter { what } => {
                write!(f, "{what} needs an InfiniBand adapter, and this rank has none, or it is turned off")
            }
            Self::Foreign { what } => f.write_str(what),
            Self::NotRegistered { address } => write!(
                f,
                "the memory at {address:#x} is not registered, or not any more; register the buffer that it belongs to"
            ),
            Self::Configuration { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for PeersError {}
