//! What the host halves share: options, the collective set-up of a region, faults, tear-down.

mod abort;
mod alike;
mod board;
mod domains;
mod error;
mod fault;
mod foreign;
mod ledger;
mod link;
mod mapping;
mod options;
mod record;
mod share;
pub(crate) mod symmetric;
mod table;
mod warning;
mod words;

pub use abort::AbortHandle;
pub use alike::{Agreed, Collective, Protocols};
pub use board::Board;
pub use domains::Domains;
pub use error::{Error, Result};
pub use fault::{Bound, CallField, Fault, Operation, Place, Refusal};
pub(crate) use foreign::Refused;
pub use foreign::{Foreign, NotExportable};
pub use ledger::{Cut, Launched, OWN_SCHEDULE};
pub use link::{Health, Launching, Link, Machine, Queue, Region};
pub use mapping::Mapping;
pub use options::Options;
pub(crate) use share::machine;
pub use share::share;
pub use symmetric::{Symmetric, map_all};
pub use table::Table;
pub use warning::{Waiting, Warning, on_warning};
pub(crate) use words::Words;

use fusewire_device::ops::Ops;
use std::sync::Arc;

/// A transport: made by a collective `rendezvous`, owned by the user, named by kernels as a type.
///
/// The device operations are an associated type: a kernel launched on `X` was compiled for `X::Ops`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transport",
    label = "expected `Shm`, `Nvl`, or another type that implements `Transport`"
)]
///
/// # Safety
/// `ops` gives the operations on the region of `link`, for as long as a link of which it is a part is alive, and runs where its machine
/// is. Launches queue kernels by the one and keep the other.
pub unsafe trait Transport: Send + Sync + 'static {
    /// The device half.
    type Ops: Ops;
    /// As users name it.
    const NAME: &'static str;

    /// State shared with launches and graphs, which may outlive the transport.
    fn link(&self) -> &Arc<Link>;
    /// The device half for this rank's kernels.
    ///
    /// # Safety
    /// The value, and copies of it, are used as long as [`Transport::link`] lives, by one launch at a time, and asked for ranks, channels
    /// and signals that there are.
    unsafe fn ops(&self) -> Self::Ops;

    /// This rank.
    fn rank(&self) -> usize {
        self.link().world().rank()
    }
    /// Ranks.
    fn world_size(&self) -> usize {
        self.link().world().size()
    }
    /// Whether a kernel on this transport was aborted, on this rank or on a peer.
    ///
    /// # Errors
    /// The fault, for as long as the transport is poisoned: until [`Transport::renew`].
    fn check(&self) -> Result<()> {
        self.link().check()
    }
    /// Ends every wait of kernels on this transport, on this rank and on its peers: [`Error::Fault`] with
    /// [`Operation::Aborted`] names this rank and says `reason` (its first 1024 bytes). From then on the transport is poisoned on every rank,
    /// as after any fault: launches end at once, until [`Transport::renew`].
    ///
    /// From any thread, at any time; of several aborts, and of an abort and a fault, the first counts on each rank. It waits for no kernel and
    /// no peer: it writes a word, and hands the reason to the world. What [`Transport::renew`] or [`Transport::close`] waits for on the host
    /// goes on: both need the peers. After a `close` it does nothing.
    ///
    /// # Errors
    /// If peers cannot be told: the world's store is out of reach, or is a [`Bootstrap`](fusewire_world::Bootstrap) without notices. This
    /// rank's kernels have been stopped all the same, and the peers' end at their deadline.
    fn abort(&self, reason: &str) -> Result<()> {
        self.link().abort(reason)
    }
    /// For [`AbortHandle::abort`] on threads that do not share the transport.
    fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.link())
    }
    /// Agrees the transport anew after a fault: lines, positions and records start from zero. Collective; waits for what this rank has queued
    /// on it. Windows are renewed by themselves, behind this.
    ///
    /// # Errors
    /// If a rank is lost or does not come.
    fn renew(&self) -> Result<()> {
        self.link().renew()
    }
    /// Ends the transport. Collective: waits for what this rank has queued on it, then until every rank has closed it too or is gone.
    /// Launchers and graphs of it refuse launches from here on. A program whose ranks end alike needs no `close`: dropping the transport lets
    /// go of it, without waiting where ranks map each other's memory; over adapters it waits as this does, and cannot say what went wrong.
    ///
    /// # Errors
    /// [`Error::World`] naming the ranks that do not come within the world's timeout: what adapters may still reach then stays until the
    /// process ends. Faults of kernels come from [`Transport::check`].
    fn close(self) -> Result<()>
    where
        Self: Sized,
    {
        self.link().close()
    }
}

/// Compares the protocol and a layout over all ranks. Collective.
///
/// # Errors
/// Where ranks differ, naming rank and field; if a rank does not come.
pub fn agree(
    world: &fusewire_world::World,
    topic: &str,
    layout: &fusewire_device::mapped::Layout,
) -> Result<()> {
    world.agree(
        topic,
        &[
            ("protocol version", fusewire_device::PROTOCOL.to_string()),
            ("channels", layout.channels.to_string()),
            ("bytes per channel", layout.window.to_string()),
            ("signals", layout.signals.to_string()),
            ("heap bytes", layout.heap.to_string()),
            ("LL128 channels", layout.ll128_channels.to_string()),
            ("LL channels", layout.ll_channels.to_string()),
        ],
    )?;
    Ok(())
}
