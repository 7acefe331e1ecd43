//! Errors of launches, by who is to blame.

use fusewire_transports::host::{Fault, NotExportable};
use fusewire_transports::peers::PeersError;
use std::fmt;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
///
/// Its `Debug` is its `Display`: a `main` that returns one, or an `unwrap`, prints it as text. [`Fault`] has its fields.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something impossible; nothing was launched.
    #[error("{what}")]
    Misuse {
        /// What, and what to do instead.
        what: String,
    },
    /// A kernel ended before its work was done, or was not queued: a wait expired, it panicked, a peer launches something else.
    #[error(transparent)]
    Fault(Box<Fault>),
    /// Ranks disagree, are missing or are lost.
    #[error(transparent)]
    Peer(fusewire_world::Error),
    /// A rank died; kernels that waited for it were stopped.
    #[error("rank {rank} is lost; kernels that waited for it were told to stop. Its own output says why")]
    Lost {
        /// The rank.
        rank: usize,
    },
    /// Peers cannot map memory that another library allocated. Every rank is told.
    #[error("{}", fusewire_transports::host::Error::NotExportable { rank: *rank, why: *why })]
    NotExportable {
        /// Whose memory it is.
        rank: usize,
        /// Why not.
        why: NotExportable,
    },
    /// The CUDA driver refused something.
    #[error(transparent)]
    Device(#[from] fusewire_driver::Error),
    /// Peers or windows were misused.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// A transport could not be made or used.
    #[error(transparent)]
    Transport(fusewire_transports::host::Error),
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
    pub(crate) fn misuse(what: impl Into<String>) -> Error {
        Error::Misuse { what: what.into() }
    }

    /// Whether the call was refused without effect, by this crate or one below it.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(self, Error::Misuse { .. } | Error::Device(fusewire_driver::Error::Misuse { .. }))
    }

    /// Whether a GPU has no room for an allocation.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Error::Device(fusewire_driver::Error::OutOfMemory { .. }))
    }

    /// The fault, if a kernel was aborted.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Fault(fault) => Some(fault),
            _ => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<fusewire_world::Error> for Error {
    fn from(error: fusewire_world::Error) -> Self {
        Error::Peer(error)
    }
}

impl From<fusewire_transports::host::Error> for Error {
    fn from(error: fusewire_transports::host::Error) -> Self {
        use fusewire_transports::host::Error as E;
        match error {
            E::Misuse { what } => Error::Misuse { what },
            E::Fault(fault) => Error::Fault(fault),
            E::Lost { rank } => Error::Lost { rank },
            E::NotExportable { rank, why } => Error::NotExportable { rank, why },
            E::World(error) => Error::Peer(error),
            E::Cuda(error) => Error::Device(error),
            E::Peers(error) => Error::Peers(error),
            E::System { what, source } => Error::System { what, source },
            other => Error::Transport(other),
        }
    }
}

impl From<fusewire_nic::Error> for Error {
    fn from(error: fusewire_nic::Error) -> Self {
        Error::Transport(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_says_it_in_words() {
        let error = Error::misuse("0 channels; a launch uses at least one");
        assert_eq!(format!("Error: {error:?}"), "Error: 0 channels; a launch uses at least one");
    }
}
