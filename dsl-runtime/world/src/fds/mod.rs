//! File descriptors from rank to rank of one host.

pub(crate) mod sockets;
pub(crate) mod threads;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::{Rank, Result};

/// Names one exchange: the group's id, and the exchange's sequence number in that group.
pub(crate) type ExchangeKey = (u64, u64);

/// How descriptors travel in this world.
pub(crate) enum Carrier {
    /// All ranks are threads of this process.
    Threads(Arc<threads::Table>),
    /// Each rank has a socket.
    Sockets(sockets::Mailbox),
}

/// One exchange, as seen by one rank.
pub(crate) struct Exchange<'a> {
    pub key: ExchangeKey,
    pub me: Rank,
    /// World ranks of this host, in the group's order, this rank among them.
    pub locals: &'a [Rank],
    /// Fails where one of these ranks is lost or gone. Only to be asked of those still waited for: who has given
    /// its descriptors may go.
    pub check: &'a dyn Fn(&[Rank]) -> Result<()>,
    pub deadline: Instant,
}

/// Descriptors by place in [`Exchange::locals`].
pub(crate) type Received = Vec<Vec<OwnedFd>>;
