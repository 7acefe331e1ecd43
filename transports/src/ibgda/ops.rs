//! The seam for schedules.
//!
//! Every rank has one region of registered memory: what [`Layout`] describes, and after it
//!
//! | part | who writes | who reads |
//! |---|---|---|
//! | outgoing rings, one for each (peer, channel) | kernels of the rank | its adapter |
//! | a copy of the heap for each peer | kernels of the rank, or its adapter for `get` | its adapter, or the kernels |
//!
//! `flush` writes a part of an outgoing ring to the same place of the peer's staging; `signal` writes the line, 8 bytes inside the
//! entry, behind it. A channel stays on one queue pair for ever, whichever block works it: were a call's line and the next call's on
//! two, the older value could arrive last. Puts and signals of the user's own share the first queue pair. `put` and `get` may name any
//! memory, registered or not; they go through the copy of the peer's heap.

use super::endpoint::{Endpoint, IbgdaPeer, Work};
use super::wait::Broken;
use super::{LocalBuffer, RemoteBuffer};
use crate::device::arch;
use crate::device::group::Group;
use crate::device::mapped::{Layout, copy};
use crate::device::ops::{ChannelState, Get, Line, Ops, Put, SignalState};
use crate::device::wait::{About, Control, give_up_here, kind, operation};

/// The queue pair of puts, gets and signals of the user's own.
const PUTS: u32 = 0;

/// How long an abort may wait for a place in a full queue.
const ABORT_PATIENCE_NS: u64 = 10_000_000;

/// A peer and its region.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct PeerRegion {
    /// How to reach it.
    pub peer: IbgdaPeer,
    /// Its region.
    pub region: RemoteBuffer,
}

/// Device operations of [`Ibgda`](super).
///
/// Abort words are the one place where adapters and kernels both swap: a rank claims its own, a peer raises it by a compare-and-swap of
/// its adapter. The two are not atomic with each other on every machine. If they meet, either reason may be the one that stays; both name
/// a fault that happened.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IbgdaOps {
    /// The symmetric part of the region.
    pub(crate) layout: Layout,
    /// This rank's region.
    pub(crate) own: LocalBuffer,
    /// Address of a table of `world` [`PeerRegion`]s; this rank's own leads back to itself.
    pub(crate) peers: u64,
    /// This rank.
    pub(crate) rank: u32,
    /// Zero.
    pub(crate) reserved: u32,
}

/// Offset of the outgoing ring for `peer` in a region.
pub const fn outgoing_offset(layout: &Layout, peer: u32, channel: u32) -> u64 {
    layout.total().next_multiple_of(4096)
        + (peer as u64 * layout.channels as u64 + channel as u64) * layout.window
}

/// Offset of the copy of the heap of `peer`.
pub const fn heap_copy_offset(layout: &Layout, peer: u32) -> u64 {
    outgoing_offset(layout, layout.world, 0) + peer as u64 * layout.heap
}

/// Bytes of a region.
pub const fn region_bytes(layout: &Layout) -> u64 {
    heap_copy_offset(layout, layout.world).next_multiple_of(4096)
}

impl IbgdaOps {
    #[inline(always)]
    fn peer(&self, peer: u32) -> PeerRegion {
        // SAFETY: the table has `world` entries, written before any launch; schedules pass ranks below `world`.
        unsafe { (self.peers as *const PeerRegion).add(peer as usize).read() }
    }

    /// Queue pair `queue` towards `peer` (modulo their number), and the peer's region.
    #[inline(always)]
    fn endpoint(&self, peer: u32, queue: u32) -> (Endpoint, RemoteBuffer) {
        let PeerRegion { peer, region } = self.peer(peer);
        let (control, ..) = arch::armed().unwrap_or((QUIET, 0, 0));
        // SAFETY: the tables live as long as kernels run.
        (unsafe { peer.endpoint(queue, &control) }, region)
    }

    #[inline(always)]
    fn at(&self, offset: u64) -> LocalBuffer {
        self.own.at(offset)
    }

    /// An operation did not happen: the kernel ends. The queue refuses what would follow.
    #[inline(always)]
    fn fault(&self, peer: u32, channel: u32, op: u32, why: Broken) {
        give_up_broken(self, peer, channel, op, why);
    }
}

/// For threads outside a kernel: nothing is waited for.
const QUIET: Control = Control { abort: 0, record: 0, deadline_ns: 0 };

#[cold]
#[inline(never)]
fn give_up_broken(ops: &IbgdaOps, peer: u32, channel: u32, operation: u32, why: Broken) {
    let about = About { peer, channel, operation };
    match why {
        Broken::Aborted | Broken::Elsewhere => {}
        Broken::Expired => {
            let waited = arch::armed().map_or(0, |(control, ..)| control.deadline_ns);
            give_up_here(ops, kind::EXPIRED, about, 1, 0, waited);
        }
        Broken::Adapter { syndrome, entry } => {
            give_up_here(ops, kind::ADAPTER, about, u64::from(syndrome), entry, 0);
        }
    }
}

// SAFETY: tables and region are set up by the host half from `Layout`, zeroed, and unmapped only after every rank is done; signals are
// written on the queue pair of the data before them.
unsafe impl Ops for IbgdaOps {
    const NAME: &'static str = "ibgda";

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.rank
    }
    #[inline(always)]
    fn world(&self) -> u32 {
        self.layout.world
    }
    #[inline(always)]
    fn channels(&self) -> u32 {
        self.layout.channels
    }
    #[inline(always)]
    fn signals(&self) -> u32 {
        self.layout.signals
    }
    #[inline(always)]
    fn window(&self) -> u64 {
        self.layout.window
    }
    #[inline(always)]
    fn heap_bytes(&self) -> u64 {
        self.layout.heap
    }
    #[inline(always)]
    fn heap(&self) -> *mut u8 {
        self.at(self.layout.heap()).addr as *mut u8
    }
    #[inline(always)]
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        self.at(outgoing_offset(&self.layout, peer, channel)).addr as *mut u8
    }
    #[inline(always)]
    fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        self.at(self.layout.staging(peer, channel)).addr as *const u8
    }
    #[inline(always)]
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        self.at(self.layout.line(peer, line)).addr as *const u64
    }
    #[inline(always)]
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        self.at(self.layout.state(peer, channel)).addr as *mut ChannelState
    }
    #[inline(always)]
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        self.at(self.layout.signal_state(peer, id)).addr as *mut SignalState
    }

    #[inline(always)]
    unsafe fn flush<G: Group>(&self, group: &G, peer: u32, channel: u32, from: u64, to: u64) {
        if !group.leads() {
            return;
        }
        let (endpoint, region) = self.endpoint(peer, channel);
        let (source, target) =
            (outgoing_offset(&self.layout, peer, channel), self.layout.staging(self.rank, channel));
        let mask = self.layout.window - 1;
        let mut at = from;
        while at != to {
            // To the end of the ring, then from its start.
            let place = at & mask;
            let part = to.wrapping_sub(at).min(self.layout.window - place);
            // SAFETY: a part of this rank's registered region, for the same part of the peer's, which the peer has freed. The signal
            // that follows rings.
            let posted = unsafe {
                endpoint.put_quietly(self.at(source + place), region.at(target + place), part, false)
            };
            if let Err(why) = posted {
                return self.fault(peer, channel, operation::SEND, why);
            }
            at = at.wrapping_add(part);
        }
    }

    #[inline(always)]
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        if !group.leads() {
            return;
        }
        let queue = match line {
            Line::Ready(channel) | Line::Free(channel) => channel,
            Line::User(_) => PUTS,
        };
        let (endpoint, region) = self.endpoint(peer, queue);
        // SAFETY: a line of the peer's region; this rank is its only writer.
        if let Err(why) = unsafe { endpoint.put_value(region.at(self.layout.line(self.rank, line)), value) } {
            self.fault(peer, line.number(), operation::SIGNAL, why);
        }
    }

    #[inline(never)]
    fn raise_abort(&self, peer: u32, code: u64) {
        let PeerRegion { peer, region } = self.peer(peer);
        let control = Control { deadline_ns: ABORT_PATIENCE_NS, ..QUIET };
        // SAFETY: the tables live as long as kernels run; the abort word is 8 registered, aligned bytes.
        unsafe {
            let _ = peer.endpoint(0, &control).raise(region.at(self.layout.abort()), code);
        }
    }
}

impl Put for IbgdaOps {
    #[inline(always)]
    unsafe fn put<G: Group>(&self, group: &G, peer: u32, to: u64, from: *const u8, bytes: u64) {
        if peer == self.rank {
            // SAFETY: this rank's own heap, by the caller's contract.
            return unsafe { copy(group, self.heap().add(to as usize), from, bytes) };
        }
        let own = self.at(heap_copy_offset(&self.layout, peer) + to);
        // SAFETY: that part of the copy is this group's, as that part of the peer's heap is.
        unsafe { copy(group, own.addr as *mut u8, from, bytes) };
        group.sync();
        if group.leads() {
            let (endpoint, region) = self.endpoint(peer, PUTS);
            // SAFETY: within the copy and the peer's heap, by the caller's contract.
            if let Err(why) = unsafe { endpoint.put(own, region.at(self.layout.heap() + to), bytes) } {
                self.fault(peer, 0, operation::PUT, why);
            }
        }
    }
}

impl Get for IbgdaOps {
    #[inline(always)]
    unsafe fn get<G: Group>(&self, group: &G, peer: u32, from: u64, to: *mut u8, bytes: u64) {
        if peer == self.rank {
            // SAFETY: this rank's own heap, by the caller's contract.
            return unsafe { copy(group, to, self.heap().add(from as usize), bytes) };
        }
        let own = self.at(heap_copy_offset(&self.layout, peer) + from);
        let mut failed = false;
        group.sync();
        if group.leads() {
            let (endpoint, region) = self.endpoint(peer, PUTS);
            // SAFETY: within the copy and the peer's heap, by the caller's contract.
            let outcome = unsafe {
                endpoint
                    .get(own, region.at(self.layout.heap() + from), bytes)
                    .and_then(|work: Work| endpoint.wait_local(work))
            };
            if let Err(why) = outcome {
                failed = true;
                self.fault(peer, 0, operation::GET, why);
            }
        }
        if !group.any(failed) {
            // SAFETY: the copy is complete; the caller vouches for `to`.
            unsafe { copy(group, to, own.addr as *const u8, bytes) };
        }
    }
}
