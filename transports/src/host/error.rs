//! Errors of transports, by who is to blame.

use super::Fault;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with a transport.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be.
    #[error("{what}")]
    Misuse {
        /// What, and what to do instead.
        what: String,
    },
    /// A kernel ended before its work was done, on this rank or on a peer. The transport is poisoned until `renew`.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
    /// A rank is gone. The transport is of no further use.
    #[error("rank {rank} is lost; kernels on this transport were told to stop. Its own output says why")]
    Lost {
        /// The rank.
        rank: usize,
    },
    /// Peers cannot map memory that somebody else allocated. Every rank is told.
    #[error("the memory of rank {rank} cannot be mapped by its peers: {why}")]
    NotExportable {
        /// Whose memory it is.
        rank: usize,
        /// Why not.
        why: super::NotExportable,
    },
    /// Ranks disagree, are missing or are lost.
    #[error(transparent)]
    World(#[from] fusewire_world::Error),
    /// The adapter refused something, or there is none.
    #[error(transparent)]
    Nic(#[from] fusewire_nic::Error),
    /// The CUDA driver refused something.
    #[error(transparent)]
    Cuda(#[from] fusewire_driver::Error),
    /// No RDMA adapter, or one that refused something.
    #[error(transparent)]
    Rdma(#[from] fusewire_verbs::Error),
    /// Peers or windows were not used as they can be.
    #[error(transparent)]
    Peers(#[from] crate::peers::PeersError),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Error {
        let what = what.into();
        move |errno| Error::System { what, source: errno.into() }
    }
}
