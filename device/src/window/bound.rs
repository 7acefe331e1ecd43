//! A window in a running kernel.

use super::{DeviceWindow, LinkKind, Links, Refused, Route, WindowPeer};
use crate::group::Group;
use crate::kernel::Kernel;
use crate::ops::Ops;
use crate::wait::{ABORTED, About, Fault, Flow, kind};
use core::panic::Location;

/// Where an operation was called.
pub(super) type At = &'static Location<'static>;

/// A window's operations in a running kernel.
///
/// Each names the group that works it: [`Thread`](crate::group::Thread) where one thread alone calls, [`Warp`](crate::group::Warp)
/// or [`Block`](crate::group::Block) where all of its threads call with the same arguments. Ranks, ids and offsets that do not exist
/// end the kernel with an error that names the call's file and line; pass [`Flow`] on with `?`.
#[derive(Clone, Copy)]
pub struct Window<'k, O, L: Links> {
    pub(super) kernel: &'k Kernel<O>,
    pub(super) device: &'k DeviceWindow<'k, L>,
}

impl<O: Ops> Kernel<O> {
    /// The operations of a window.
    #[inline(always)]
    pub fn window<'k, L: Links>(&'k self, window: &'k DeviceWindow<'_, L>) -> Window<'k, O, L> {
        Window { kernel: self, device: window }
    }
}

/// An operation on a word of a peer: who, which, and where it was called.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub operation: u32,
    pub peer: u32,
    pub id: u32,
    pub at: At,
}

impl Call {
    /// The numbers are only those of an error if they do not fit.
    #[inline(always)]
    pub fn new(operation: u32, peer: usize, id: usize, at: At) -> Self {
        Call { operation, peer: peer as u32, id: id as u32, at }
    }
}

impl<O: Ops, L: Links> Window<'_, O, L> {
    /// This rank.
    #[inline(always)]
    pub fn rank(&self) -> usize {
        self.device.parts.rank as usize
    }

    /// Ranks.
    #[inline(always)]
    pub fn world(&self) -> usize {
        self.device.parts.layout.world as usize
    }

    /// Signals from each peer.
    #[inline(always)]
    pub fn signals(&self) -> usize {
        self.device.parts.layout.signals as usize
    }

    /// Barriers.
    #[inline(always)]
    pub fn barriers(&self) -> usize {
        self.device.parts.layout.barriers as usize
    }

    /// Counters to each peer.
    #[inline(always)]
    pub fn counters(&self) -> usize {
        self.device.parts.layout.counters as usize
    }

    /// How a rank is reached; `None` for one that does not exist.
    #[inline(always)]
    pub fn kind(&self, peer: usize) -> Option<LinkKind> {
        if peer == self.rank() {
            return Some(LinkKind::Own);
        }
        let exists = peer < self.world();
        exists.then(|| if self.far(self.entry(peer as u32)) { LinkKind::Rdma } else { LinkKind::Mapped })
    }

    #[inline(always)]
    pub(super) fn entry(&self, peer: u32) -> &WindowPeer {
        // SAFETY: the table has `world` entries, written before any launch and kept as long as launches run; callers have compared
        // `peer` with it.
        unsafe { &*(self.device.parts.peers as *const WindowPeer).add(peer as usize) }
    }

    /// Whether an adapter reaches the peer: known when compiled, where the window's type says so.
    #[inline(always)]
    pub(super) fn far(&self, peer: &WindowPeer) -> bool {
        L::RDMA && (!L::MAPPED || peer.kind == LinkKind::Rdma as u32)
    }

    /// The peer of a call, if it exists and is not this rank.
    #[inline(always)]
    #[track_caller]
    pub(super) fn peer(&self, call: Call, peer: usize) -> Flow<&WindowPeer> {
        self.kernel.running()?;
        if peer >= self.world() {
            return Err(self.refuse(call, kind::NO_RANK, self.world() as u64, peer as u64));
        }
        if peer == self.rank() {
            return Err(self.refuse(call, kind::SELF, 0, 0));
        }
        Ok(self.entry(peer as u32))
    }

    /// That an id exists.
    #[inline(always)]
    #[track_caller]
    pub(super) fn id(&self, call: Call, id: usize, limit: u32) -> Flow {
        self.kernel.running()?;
        if id < limit as usize {
            return Ok(());
        }
        Err(self.refuse(call, kind::NO_ID, u64::from(limit), id as u64))
    }

    /// Ends the kernel over a call that cannot be.
    #[inline(always)]
    pub(super) fn refuse(&self, call: Call, kind: u32, limit: u64, given: u64) -> crate::wait::Stopped {
        let fault = Fault { kind, expected: limit, seen: given, ..Fault::NONE };
        self.report(call, fault);
        self.kernel.stop()
    }

    #[inline(always)]
    fn report(&self, call: Call, fault: Fault) {
        let (ops, watch) = self.kernel.parts();
        let about = About { peer: call.peer, channel: call.id, operation: call.operation };
        watch.give_up_at(ops, about, fault, call.at);
    }

    /// Ends the kernel if a thread of the group has found a fault. Called by all threads of the group.
    #[inline(always)]
    pub(super) fn settle<G: Group>(&self, group: &G, call: Call, fault: Fault) -> Flow {
        self.kernel.suits::<G>();
        if !group.any(fault.kind != 0) {
            return Ok(());
        }
        let (ops, watch) = self.kernel.parts();
        if fault.kind == ABORTED {
            watch.pass_on(ops);
        } else if fault.kind != 0 {
            self.report(call, fault);
        }
        Err(self.kernel.stop())
    }

    /// Before a group publishes: all that its threads did is done, and none of its block has panicked.
    #[inline(always)]
    pub(super) fn ready<G: Group>(&self, group: &G) -> Flow {
        let (ops, watch) = self.kernel.parts();
        self.kernel.suits::<G>();
        group.sync();
        watch.check_panic(ops).map_err(|_| self.kernel.stop())
    }

    /// The way to a peer that an adapter reaches.
    #[inline(always)]
    pub(super) fn route(&self, entry: &WindowPeer) -> Route {
        let (_, watch) = self.kernel.parts();
        Route { peer: entry.index, block: self.kernel.block() as u32, control: watch.control() }
    }

    /// What an adapter said, for the whole group.
    #[inline(always)]
    pub(super) fn posted<G: Group>(&self, group: &G, call: Call, outcome: Result<(), Refused>) -> Flow {
        let fault = match outcome {
            Ok(()) => Fault::NONE,
            Err(Refused::Stopped) => Fault { kind: ABORTED, ..Fault::NONE },
            Err(Refused::Expired) => Fault { kind: kind::EXPIRED, ..Fault::NONE },
            Err(Refused::Adapter { syndrome, entry }) => {
                Fault { kind: kind::ADAPTER, expected: syndrome, seen: entry, ..Fault::NONE }
            }
        };
        self.settle(group, call, fault)
    }
}
