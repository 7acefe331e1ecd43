//! Operations for peers whose memory this rank can store to: NVLink and host shared memory.
//!
//! Every rank has one region of symmetric memory, laid out by [`Layout`], and a table of where each rank's region is mapped here.
//! A sender stores into the receiver's staging; each side polls local memory only.

use crate::arch;
use crate::atomic::{self, Modify, Relaxed, Release, System};
use crate::group::Group;
use crate::ops::{ChannelState, Line, SignalState};
use crate::protocol::{ll, ll128};

/// Bytes that nothing else shares with a signal line: two GPUs' and any adapter's accesses never meet in one line.
pub const LINE: u64 = 128;

/// What a region is made of; equal on all ranks. Offsets are in bytes from the region's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Layout {
    /// Ranks.
    pub world: u32,
    /// Channels to each peer.
    pub channels: u32,
    /// User signals from each peer.
    pub signals: u32,
    /// Channels that have line buffers; there are twice as many buffers, see [`crate::ops::Direct::ll128_channels`].
    pub ll128_channels: u32,
    /// Channels that have LL buffers; in the same way.
    pub ll_channels: u32,
    /// 0: all bytes of a layout are a field's.
    pub reserved: u32,
    /// Bytes of staging of one channel; a power of two, 1 KiB to 2 GiB.
    pub window: u64,
    /// Bytes of heap; a multiple of 128.
    pub heap: u64,
}

/// Bytes of a page.
const PAGE: u64 = 4096;

impl Layout {
    #[inline(always)]
    const fn signal_lines(&self) -> u64 {
        2 * self.channels as u64 + self.signals as u64
    }

    /// Offset of the abort word.
    #[inline(always)]
    pub const fn abort(&self) -> u64 {
        0
    }

    /// Offset of `line` as raised by `writer`.
    #[inline(always)]
    pub const fn line(&self, writer: u32, line: Line) -> u64 {
        let k = match line {
            Line::Ready(c) => c as u64,
            Line::Free(c) => self.channels as u64 + c as u64,
            Line::User(id) => 2 * self.channels as u64 + id as u64,
        };
        LINE * (1 + writer as u64 * self.signal_lines() + k)
    }

    /// Offset of the channel state towards `peer`.
    #[inline(always)]
    pub const fn state(&self, peer: u32, channel: u32) -> u64 {
        LINE * (1
            + self.world as u64 * self.signal_lines()
            + peer as u64 * (self.channels + self.signals) as u64
            + channel as u64)
    }

    /// Offset of the signal counts towards `peer`.
    #[inline(always)]
    pub const fn signal_state(&self, peer: u32, id: u32) -> u64 {
        self.state(peer, self.channels + id)
    }

    /// Offset of the LL128 channels' state towards `peer`.
    #[inline(always)]
    pub const fn line_state(&self, peer: u32, channel: u32) -> u64 {
        self.state(self.world, 0) + 16 * (peer as u64 * 2 * self.ll128_channels as u64 + channel as u64)
    }

    /// Offset of the line buffers that `writer` fills.
    #[inline(always)]
    pub const fn lines(&self, writer: u32, channel: u32) -> u64 {
        self.line_state(self.world, 0).next_multiple_of(PAGE)
            + ll128::BUFFERS * (writer as u64 * 2 * self.ll128_channels as u64 + channel as u64)
    }

    /// Offset of a ring of staging; the first is the first byte that a reset need not clear.
    #[inline(always)]
    pub const fn staging(&self, writer: u32, channel: u32) -> u64 {
        self.lines(self.world, 0).next_multiple_of(PAGE)
            + (writer as u64 * self.channels as u64 + channel as u64) * self.window
    }

    /// Offset of the heap.
    #[inline(always)]
    pub const fn heap(&self) -> u64 {
        self.staging(self.world, 0)
    }

    /// Offset of the LL buffers that `writer` fills. They come last: where the others are is worked out in many kernels, and costs each of them registers.
    #[inline(always)]
    pub const fn ll(&self, writer: u32, channel: u32) -> u64 {
        self.heap() + self.heap + ll::BUFFERS * (writer as u64 * 2 * self.ll_channels as u64 + channel as u64)
    }

    /// Offset of the LL channels' state towards `peer`.
    #[inline(always)]
    pub const fn ll_state(&self, peer: u32, channel: u32) -> u64 {
        self.ll(self.world, 0) + 16 * (peer as u64 * 2 * self.ll_channels as u64 + channel as u64)
    }

    /// What a reset clears: control words, lines and state at the start, and LL buffers and their state at the end; offset and bytes of each.
    pub const fn cleared(&self) -> [(u64, u64); 2] {
        [(0, self.control_bytes()), (self.ll(0, 0), self.total() - self.ll(0, 0))]
    }

    /// Bytes of control words, lines and state at the start, which a reset clears.
    pub const fn control_bytes(&self) -> u64 {
        self.staging(0, 0)
    }

    /// Bytes of the region.
    pub const fn total(&self) -> u64 {
        self.ll_state(self.world, 0)
    }
}

/// What a [`Mapped`] is made of: numbers and addresses, which nothing follows here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MappedParts {
    /// The region's layout.
    pub layout: Layout,
    /// This rank.
    pub rank: u32,
    /// Host: not 0 if every rank can read every other rank's process; then the table goes on with their `world` process ids.
    pub processes: u32,
    /// Address of this rank's region.
    pub own: u64,
    /// Address of a table of `world` addresses: every rank's region, as mapped here.
    pub bases: u64,
}

/// The device half shared by transports with mapped peers.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Mapped(MappedParts);

impl Mapped {
    /// Where the address of this rank's region is in it: checks of compiled kernels tell accesses by it.
    #[doc(hidden)]
    pub const OWN: usize = core::mem::offset_of!(MappedParts, own);
    /// Where the address of the peers' table is in it.
    #[doc(hidden)]
    pub const BASES: usize = core::mem::offset_of!(MappedParts, bases);

    /// The operations on these regions.
    ///
    /// # Safety
    /// Table and regions are as the parts say, where the value is used and as long as it or a copy of it is; regions were zero at first,
    /// and only operations on them access them. Whoever has the value names ranks, channels and signals that there are.
    #[inline(always)]
    pub const unsafe fn new(parts: MappedParts) -> Self {
        Mapped(parts)
    }

    /// What it is made of.
    #[inline(always)]
    pub const fn parts(&self) -> &MappedParts {
        &self.0
    }

    /// As `base`; the load stays where it is.
    #[inline(always)]
    pub fn peer_base(&self, peer: u32) -> u64 {
        // SAFETY: as there.
        unsafe { (self.0.bases as *const u64).add(peer as usize).read_volatile() }
    }
    #[inline(always)]
    fn base(&self, peer: u32) -> u64 {
        // SAFETY: the table has `world` entries, written before any launch; schedules pass ranks below `world`.
        unsafe { (self.0.bases as *const u64).add(peer as usize).read() }
    }
}

/// Implements the operations for a transparent wrapper of [`Mapped`] whose first field is it.
#[macro_export]
macro_rules! mapped_ops {
    ($name:ident, $label:literal) => {
        // SAFETY: `Mapped`'s tables are set up by the host half from `Layout`, zeroed, and unmapped only after every rank is done.
        unsafe impl $crate::ops::Ops for $name {
            const NAME: &'static str = $label;
            #[inline(always)]
            fn rank(&self) -> u32 {
                self.0.parts().rank
            }
            #[inline(always)]
            fn world(&self) -> u32 {
                self.0.parts().layout.world
            }
            #[inline(always)]
            fn channels(&self) -> u32 {
                self.0.parts().layout.channels
            }
            #[inline(always)]
            fn signals(&self) -> u32 {
                self.0.parts().layout.signals
            }
            #[inline(always)]
            fn window(&self) -> u64 {
                self.0.parts().layout.window
            }
            #[inline(always)]
            fn heap_bytes(&self) -> u64 {
                self.0.parts().layout.heap
            }
            #[inline(always)]
            fn heap(&self) -> *mut u8 {
                self.0.heap()
            }
            #[inline(always)]
            fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
                self.0.outgoing(peer, channel)
            }
            #[inline(always)]
            fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
                self.0.incoming(peer, channel)
            }
            #[inline(always)]
            fn line(&self, peer: u32, line: $crate::ops::Line) -> *const u64 {
                self.0.line(peer, line)
            }
            #[inline(always)]
            fn state(&self, peer: u32, channel: u32) -> *mut $crate::ops::ChannelState {
                self.0.state(peer, channel)
            }
            #[inline(always)]
            fn signal_state(&self, peer: u32, id: u32) -> *mut $crate::ops::SignalState {
                self.0.signal_state(peer, id)
            }
            #[inline(always)]
            unsafe fn flush<G: $crate::group::Group>(&self, _: &G, _: u32, _: u32, _: u64, _: u64) {}
            #[inline(always)]
            unsafe fn signal<G: $crate::group::Group>(
                &self,
                group: &G,
                peer: u32,
                line: $crate::ops::Line,
                value: u64,
            ) {
                self.0.signal(group, peer, line, value);
            }
            #[inline(always)]
            fn raise_abort(&self, peer: u32, code: u64) {
                self.0.raise_abort(peer, code);
            }
            #[inline(always)]
            fn direct<T: $crate::ops::WithDirect>(&self, then: T) -> Option<T::Out> {
                Some(then.with(self))
            }
            #[cfg(not(target_arch = "nvptx64"))]
            fn reads_processes(&self) -> bool {
                self.0.parts().processes != 0
            }
            #[cfg(not(target_arch = "nvptx64"))]
            unsafe fn read_process(&self, peer: u32, from: u64, to: *mut u8, bytes: usize) -> bool {
                // SAFETY: the caller's contract.
                unsafe { self.0.read_process(peer, from, to, bytes) }
            }
        }

        // SAFETY: buffers are part of the zeroed region; NVLink and the host's memory carry a 16-byte store whole (see `line`).
        unsafe impl $crate::ops::Direct for $name {
            #[inline(always)]
            fn ll128_channels(&self) -> u32 {
                self.0.parts().layout.ll128_channels
            }
            #[inline(always)]
            fn peer_base(&self, peer: u32) -> u64 {
                self.0.peer_base(peer)
            }
            #[inline(always)]
            fn lines_out(&self, base: u64, channel: u32) -> *mut u8 {
                self.0.lines_out(base, channel)
            }
            #[inline(always)]
            fn lines_in(&self, peer: u32, channel: u32) -> *const u8 {
                self.0.lines_in(peer, channel)
            }
            #[inline(always)]
            fn line_state(&self, peer: u32, channel: u32) -> *mut $crate::ops::ChannelState {
                self.0.line_state(peer, channel)
            }
            #[inline(always)]
            fn ll_channels(&self) -> u32 {
                self.0.parts().layout.ll_channels
            }
            #[inline(always)]
            fn ll_out(&self, base: u64, channel: u32) -> *mut u8 {
                self.0.ll_out(base, channel)
            }
            #[inline(always)]
            fn ll_in(&self, peer: u32, channel: u32) -> *const u8 {
                self.0.ll_in(peer, channel)
            }
            #[inline(always)]
            fn ll_state(&self, peer: u32, channel: u32) -> *mut $crate::ops::ChannelState {
                self.0.ll_state(peer, channel)
            }
            #[inline(always)]
            fn line_out(&self, base: u64, line: $crate::ops::Line) -> *mut u64 {
                self.0.line_out(base, line)
            }
        }

        impl $crate::ops::Put for $name {
            #[inline(always)]
            unsafe fn put<G: $crate::group::Group>(
                &self,
                group: &G,
                peer: u32,
                to: u64,
                from: *const u8,
                bytes: u64,
            ) {
                // SAFETY: the caller's contract.
                unsafe { self.0.put(group, peer, to, from, bytes) };
            }
        }

        impl $crate::ops::Get for $name {
            #[inline(always)]
            unsafe fn get<G: $crate::group::Group>(
                &self,
                group: &G,
                peer: u32,
                from: u64,
                to: *mut u8,
                bytes: u64,
            ) {
                // SAFETY: the caller's contract.
                unsafe { self.0.get(group, peer, from, to, bytes) };
            }
        }
    };
}

#[allow(missing_docs)] // each is the operation of the same name in `ops`
impl Mapped {
    #[inline(always)]
    pub fn heap(&self) -> *mut u8 {
        (self.0.own + self.0.layout.heap()) as *mut u8
    }
    #[inline(always)]
    pub fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        (self.base(peer) + self.0.layout.staging(self.0.rank, channel)) as *mut u8
    }
    #[inline(always)]
    pub fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        (self.0.own + self.0.layout.staging(peer, channel)) as *const u8
    }
    #[inline(always)]
    pub fn lines_out(&self, base: u64, channel: u32) -> *mut u8 {
        (base + self.0.layout.lines(self.0.rank, channel)) as *mut u8
    }
    #[inline(always)]
    pub fn lines_in(&self, peer: u32, channel: u32) -> *const u8 {
        (self.0.own + self.0.layout.lines(peer, channel)) as *const u8
    }
    #[inline(always)]
    pub fn line_state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        (self.0.own + self.0.layout.line_state(peer, channel)) as *mut ChannelState
    }
    #[inline(always)]
    pub fn ll_out(&self, base: u64, channel: u32) -> *mut u8 {
        (base + self.0.layout.ll(self.0.rank, channel)) as *mut u8
    }
    #[inline(always)]
    pub fn ll_in(&self, peer: u32, channel: u32) -> *const u8 {
        (self.0.own + self.0.layout.ll(peer, channel)) as *const u8
    }
    #[inline(always)]
    pub fn ll_state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        (self.0.own + self.0.layout.ll_state(peer, channel)) as *mut ChannelState
    }
    #[inline(always)]
    pub fn line(&self, peer: u32, line: Line) -> *const u64 {
        (self.0.own + self.0.layout.line(peer, line)) as *const u64
    }
    #[inline(always)]
    pub fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        (self.0.own + self.0.layout.state(peer, channel)) as *mut ChannelState
    }
    #[inline(always)]
    pub fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        (self.0.own + self.0.layout.signal_state(peer, id)) as *mut SignalState
    }
    #[inline(always)]
    pub fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        if group.leads() {
            let at = self.line_out(self.base(peer), line);
            // SAFETY: a line of the peer's region; this rank is its only writer.
            unsafe {
                match line {
                    // On a GPU no fence: what must come first are loads, and every thread had their values before the group's sync. A
                    // fence would wait for the output's stores, which are none of the peer's business. (NCCL gives credit so, too.)
                    #[cfg(target_arch = "nvptx64")]
                    Line::Free(_) => atomic::store::<System, Relaxed, u64>(at, value),
                    _ => atomic::store::<System, Release, u64>(at, value),
                }
            }
        }
    }
    #[inline(always)]
    pub fn line_out(&self, base: u64, line: Line) -> *mut u64 {
        (base + self.0.layout.line(self.0.rank, line)) as *mut u64
    }
    #[inline(never)]
    pub fn raise_abort(&self, peer: u32, code: u64) {
        let at = (self.base(peer) + self.0.layout.abort()) as *mut u64;
        // SAFETY: the abort word of the peer's region, accessed by atomics alone.
        unsafe { <u64 as Modify<System, Relaxed>>::compare_exchange(at, 0, code) };
    }
    /// # Safety
    /// As for [`crate::ops::Ops::read_process`].
    #[cfg(not(target_arch = "nvptx64"))]
    pub unsafe fn read_process(&self, peer: u32, from: u64, to: *mut u8, bytes: usize) -> bool {
        if self.0.processes == 0 {
            return false;
        }
        // SAFETY: the table has `2 * world` entries where `processes` says so; the rest is the caller's contract.
        unsafe {
            let id = (self.0.bases as *const u64).add((self.0.layout.world + peer) as usize).read();
            arch::read_process(id, from, to, bytes)
        }
    }
    /// # Safety
    /// As for [`crate::ops::Put::put`].
    #[inline(always)]
    pub unsafe fn put<G: Group>(&self, group: &G, peer: u32, to: u64, from: *const u8, bytes: u64) {
        let to = (self.base(peer) + self.0.layout.heap() + to) as *mut u8;
        // SAFETY: the caller's contract.
        unsafe { copy(group, to, from, bytes) };
    }
    /// # Safety
    /// As for [`crate::ops::Get::get`].
    #[inline(always)]
    pub unsafe fn get<G: Group>(&self, group: &G, peer: u32, from: u64, to: *mut u8, bytes: u64) {
        let from = (self.base(peer) + self.0.layout.heap() + from) as *const u8;
        // SAFETY: the caller's contract.
        unsafe { copy(group, to, from, bytes) };
    }
}

/// Copies by all threads of the group: 16 bytes at a time where both ends are aligned, else single bytes.
///
/// # Safety
/// Both ranges are valid, do not overlap, and nobody else accesses them meanwhile.
#[inline(always)]
pub unsafe fn copy<G: Group>(group: &G, to: *mut u8, from: *const u8, bytes: u64) {
    let (lane, lanes) = (u64::from(group.lane()), u64::from(group.lanes()));
    let wide = if (to as u64 | from as u64).is_multiple_of(16) { bytes / 16 } else { 0 };
    let mut i = lane;
    while i < wide {
        // SAFETY: in range by the caller's contract, aligned by the test above.
        unsafe { arch::store_16(to.add(16 * i as usize), arch::load_16(from.add(16 * i as usize))) };
        i += lanes;
    }
    let mut i = 16 * wide + lane;
    while i < bytes {
        // SAFETY: in range by the caller's contract.
        unsafe { to.add(i as usize).write(from.add(i as usize).read()) };
        i += lanes;
    }
}
