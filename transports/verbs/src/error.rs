//! What can go wrong, on which adapter, and what to do about it.

use std::io;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An RDMA error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// rdma-core is not installed, or too old.
    #[error(
        "no RDMA adapter: {library} cannot be loaded ({why}). Install rdma-core's libraries (Debian: ibverbs-providers), \
         or use a transport that needs no adapter"
    )]
    NoLibrary {
        /// Its file name.
        library: &'static str,
        /// What the loader said.
        why: String,
    },
    /// There is no adapter, or none that the caller's filter lets through.
    #[error(
        "no RDMA adapter: {why}. `ibv_devices` lists them; FUSEWIRE_IB_HCA chooses one; transports within a host need none"
    )]
    NoAdapter {
        /// What was found instead.
        why: String,
    },
    /// A port has no link.
    #[error(
        "port {port} of RDMA adapter {adapter} is not active (its state is {state}); see `rdma link`, or choose another with FUSEWIRE_IB_HCA"
    )]
    PortDown {
        /// The adapter.
        adapter: String,
        /// The port's number.
        port: u8,
        /// `ibv_port_state`, as a number.
        state: u32,
    },
    /// The adapter cannot do that.
    #[error("RDMA adapter {adapter} has no {what}")]
    Unsupported {
        /// The adapter.
        adapter: String,
        /// What is missing, and what to use instead.
        what: &'static str,
    },
    /// A verb failed.
    #[error("{call} on RDMA adapter {adapter} failed while {doing}: {source}")]
    Call {
        /// The function.
        call: &'static str,
        /// The adapter.
        adapter: String,
        /// What it was called for.
        doing: String,
        /// What it said.
        source: io::Error,
    },
    /// The caller asked for something that cannot be.
    #[error("{what}")]
    Misuse {
        /// What, and what to do instead.
        what: String,
    },
}

impl Error {
    /// A misuse.
    pub fn misuse(what: impl Into<String>) -> Self {
        Error::Misuse { what: what.into() }
    }

    /// A failed call, by `errno`.
    pub(crate) fn call(call: &'static str, adapter: &str, doing: impl Into<String>) -> Self {
        let source = io::Error::last_os_error();
        Error::Call { call, adapter: adapter.to_owned(), doing: doing.into(), source }
    }

    /// A failed call that returns the error's number (or -1, with `errno`).
    pub(crate) fn returned(code: i32, call: &'static str, adapter: &str, doing: impl Into<String>) -> Self {
        let source = if code > 0 { io::Error::from_raw_os_error(code) } else { io::Error::last_os_error() };
        Error::Call { call, adapter: adapter.to_owned(), doing: doing.into(), source }
    }

    /// Whether the reason is that this machine has no RDMA to use.
    pub fn is_no_adapter(&self) -> bool {
        matches!(self, Error::NoLibrary { .. } | Error::NoAdapter { .. } | Error::PortDown { .. })
    }
}
