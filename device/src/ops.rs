//! The seam of a transport on the device: what a schedule may ask for.
//!
//! [`Ops`] is what every transport has: windows of staging, signal lines, channel state. [`Put`] and [`Get`] reach the peers'
//! symmetric heaps; a transport that lacks one does not implement it, and a schedule that needs it does not compile there.
//! Dispatch is static: a kernel is compiled once for each transport it is asked for.
//!
//! **Order.** Everything a group stored, flushed or put towards a peer before `signal` is visible to whoever has seen the value of
//! that signal by [`Watch::until`](crate::wait::Watch::until). There is no order between different peers.

use crate::group::Group;

/// A 128-byte signal line, one for each (writer, line) pair in the memory of the rank that waits on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Stream position up to which the writer's data on this channel has arrived.
    Ready(u32),
    /// Stream position up to which the writer has consumed this rank's data on this channel.
    Free(u32),
    /// A signal of the user's own.
    User(u32),
}

impl Line {
    /// The channel or signal number.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        match self {
            Line::Ready(n) | Line::Free(n) | Line::User(n) => n,
        }
    }
}

/// State of one channel to one peer, in the memory of the rank it belongs to; written by that rank's kernels alone.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct ChannelState {
    /// Stream position of the next byte to send.
    pub sent: u64,
    /// Stream position of the next byte to receive.
    pub received: u64,
}

/// Counts of a user's signal to and from one peer.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct SignalState {
    /// Signals sent to the peer.
    pub sent: u64,
    /// Signals of the peer that were waited for.
    pub awaited: u64,
}

/// What every transport's device half offers. A value is plain data, passed to kernels by value.
///
/// # Safety
/// Pointers returned are valid for the accesses named, for as long as a kernel runs; lines and state start zeroed; `signal` orders as
/// the module says.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the device half of a transport",
    label = "does not implement `Ops`"
)]
pub unsafe trait Ops: Copy + Send + Sync + 'static {
    /// Name in symbols and messages.
    const NAME: &'static str;

    /// This rank.
    fn rank(&self) -> u32;
    /// Ranks.
    fn world(&self) -> u32;
    /// Channels to each peer.
    fn channels(&self) -> u32;
    /// User signals from each peer.
    fn signals(&self) -> u32;
    /// Bytes of staging of one channel; a power of two.
    fn window(&self) -> u64;
    /// Bytes of the symmetric heap of each rank.
    fn heap_bytes(&self) -> u64;
    /// This rank's own symmetric heap.
    fn heap(&self) -> *mut u8;
    /// Ranks of a domain, where ranks reach those of their own domain by other links than all others, and domains are aligned: ranks `d n .. (d + 1) n` are
    /// domain `d`, all of as many ranks `n`, a power of two from 2 on, in a world of several. Else 0. The same on all ranks.
    #[inline(always)]
    fn domain(&self) -> u32 {
        0
    }
    /// Where this rank's threads store what `peer` is to receive on `channel`: a ring of `window()` bytes. They may load what they stored there, until they store there
    /// anew.
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8;
    /// Where the bytes that `peer` sends on `channel` arrive: a ring of `window()` bytes.
    fn incoming(&self, peer: u32, channel: u32) -> *const u8;
    /// The line that `peer` raises at this rank.
    fn line(&self, peer: u32, line: Line) -> *const u64;
    /// Cursors of this rank's end of a channel.
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState;
    /// Counts of this rank's end of a user signal.
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState;

    /// Hands bytes `from..to` of the stream (positions modulo `window()`), stored by the group, to the peer. Nothing to do where
    /// `outgoing` is the peer's memory. Called by all threads, after a group sync.
    ///
    /// # Safety
    /// The peer has freed those bytes of the ring.
    unsafe fn flush<G: Group>(&self, group: &G, peer: u32, channel: u32, from: u64, to: u64);

    /// Raises this rank's `line` at `peer` to `value`, after everything the group did before its last sync; [`Line::Free`] after what it
    /// loaded, whatever it stored. Called by all threads; one of them acts, and may do so behind the others' backs.
    ///
    /// # Safety
    /// Values of one line only grow (as signed differences), and one group at a time raises it.
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64);

    /// Raises the abort word of `peer`, if it is not raised yet. Best effort.
    fn raise_abort(&self, peer: u32, code: u64);

    /// Calls `then` with these operations as those that are [`Direct`], if they are.
    #[inline(always)]
    fn direct<T: WithDirect>(&self, then: T) -> Option<T::Out> {
        let _ = then;
        None
    }

    /// Whether every rank can read the memory of every other rank's process: the same answer on all ranks.
    #[cfg(not(target_arch = "nvptx64"))]
    fn reads_processes(&self) -> bool {
        false
    }

    /// Reads `bytes` at address `from` of the process of `peer`; whether that could be done.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes`, and not accessed concurrently.
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn read_process(&self, peer: u32, from: u64, to: *mut u8, bytes: usize) -> bool {
        let _ = (peer, from, to, bytes);
        false
    }
}

/// Writing to a peer's symmetric heap.
#[diagnostic::on_unimplemented(
    message = "transport `{Self}` has no `put`",
    label = "this schedule writes to peers' heaps",
    note = "use a transport whose device half implements `Put`, or `send_tile`/`recv_tile`"
)]
pub trait Put: Ops {
    /// Copies `bytes` from this rank's memory to offset `to` of the heap of `peer`; all threads of the group take part. Visible at
    /// the peer once it has seen a `signal` of this group that came later.
    ///
    /// # Safety
    /// `from` is valid for `bytes`; `to + bytes` is within the heap; nobody else accesses that part of the peer's heap meanwhile.
    unsafe fn put<G: Group>(&self, group: &G, peer: u32, to: u64, from: *const u8, bytes: u64);
}

/// Reading from a peer's symmetric heap.
#[diagnostic::on_unimplemented(
    message = "transport `{Self}` has no `get`",
    label = "this schedule reads peers' heaps",
    note = "use a transport whose device half implements `Get`, or let the peer `put`"
)]
pub trait Get: Ops {
    /// Copies `bytes` from offset `from` of the heap of `peer` to this rank's memory; all threads take part; complete for the whole
    /// group after its next sync.
    ///
    /// # Safety
    /// `to` is valid for `bytes`; `from + bytes` is within the heap; nobody writes that part of the peer's heap meanwhile.
    unsafe fn get<G: Group>(&self, group: &G, peer: u32, from: u64, to: *mut u8, bytes: u64);
}

/// What is done where a transport is [`Direct`]: for code that is compiled for others as well ([`Ops::direct`]).
pub trait WithDirect {
    /// What comes of it.
    type Out;
    /// Does it.
    fn with<O: Direct>(self, ops: &O) -> Self::Out;
}

/// Storing to peers' memory, so that a flag travels with its data.
///
/// # Safety
/// Buffers are [`ll128::BUFFERS`](crate::protocol::ll128::BUFFERS) or [`ll::BUFFERS`](crate::protocol::ll::BUFFERS) bytes, 128-byte aligned, zero at
/// the start. What eight lanes of a converged warp store to an aligned line of 128 bytes of `lines_out` arrives whole; of `ll_out` what one store has
/// for 8 aligned bytes.
#[diagnostic::on_unimplemented(
    message = "transport `{Self}` cannot store to peers' memory line by line",
    label = "flag-in-line exchange needs it",
    note = "use the simple protocol"
)]
pub unsafe trait Direct: Ops {
    /// Channels that have line buffers, for all-to-alls and as many again for `sendrecv`: those are numbered behind the others.
    fn ll128_channels(&self) -> u32;
    /// Where the region of `peer` is mapped: a load, to be made before it is needed.
    fn peer_base(&self, peer: u32) -> u64;
    /// Where this rank stores lines for the peer whose region is at `base`.
    fn lines_out(&self, base: u64, channel: u32) -> *mut u8;
    /// Where lines of `peer` arrive.
    fn lines_in(&self, peer: u32, channel: u32) -> *const u8;
    /// Calls so far on this rank's end. All-to-alls count in the state towards this rank itself.
    fn line_state(&self, peer: u32, channel: u32) -> *mut ChannelState;
    /// Channels that have LL buffers, and as many again, as [`Direct::ll128_channels`].
    fn ll_channels(&self) -> u32;
    /// Where this rank stores by LL for the peer whose region is at `base`.
    fn ll_out(&self, base: u64, channel: u32) -> *mut u8;
    /// Where what `peer` stores by LL arrives.
    fn ll_in(&self, peer: u32, channel: u32) -> *const u8;
    /// As [`Direct::line_state`], of LL channels.
    fn ll_state(&self, peer: u32, channel: u32) -> *mut ChannelState;
    /// Where this rank raises its `line` in the region at `base`. [`Ops::line`] is where the peer looks for it.
    fn line_out(&self, base: u64, line: Line) -> *mut u64;
}
