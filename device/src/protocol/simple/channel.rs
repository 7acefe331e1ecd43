//! Channels: byte streams with credits over rings of staging.
//!
//! A channel is one direction between two ranks, worked by one block at each end. Its position counts bytes in 64 bits and is never
//! reset: calls of different sizes follow each other, eager or replayed from a graph. Each call's stream is
//!
//! ```text
//! | header, 128 bytes | payload, padded to 128 bytes |
//! ```
//!
//! and travels in chunks. The sender waits until the ring has room for a chunk, stores it, and raises `Ready` to the chunk's end; the
//! receiver waits for that, consumes, and raises `Free`. The header names the call, so that a receiver with another kernel or size
//! ends at once with both values instead of waiting for bytes that never come. It is bound to its position, so that what an older
//! call left in the ring is never taken for it.

pub use super::call::{CUT, Call, KernelWord, LengthWord, SizeWord};

use crate::arch;
use crate::group::Group;
use crate::ops::{ChannelState, Line, Ops};
#[cfg(not(target_arch = "nvptx64"))]
use crate::wait::Stopped;
use crate::wait::{About, Fault, Flow, Watch, kind, operation};

/// Bytes of a call's header.
pub const HEADER: u64 = 128;

/// Bytes a call takes in a channel's stream.
#[inline(always)]
pub const fn stream_bytes(payload: u64) -> u64 {
    HEADER + payload.next_multiple_of(128)
}

/// The payload packs that lie in bytes `from..to` of a stream of `packs`: the first, and how many.
#[inline(always)]
pub fn payload_packs(from: u64, to: u64, packs: u32) -> (usize, u32) {
    let s0 = (from.max(HEADER) - HEADER) / 16;
    let s1 = (to.max(HEADER) - HEADER) / 16;
    (s0 as usize, s1.min(u64::from(packs)).saturating_sub(s0) as u32)
}

/// Place in the ring of stream byte `offset` of a call that begins at `start`. A ring has at most 2 GiB, so half of the bits do, and
/// half of the registers.
#[inline(always)]
const fn ring(start: u64, offset: u64, mask: u64) -> usize {
    ((start as u32).wrapping_add(offset as u32) & mask as u32) as usize
}

/// Where stream bytes lie from one of them on, of a ring of either end. Made before a loop: the compiler takes each store of a pack for one to
/// anywhere, and would work out an end's place again behind it.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    base: *mut u8,
    from: u32,
    mask: u32,
}

impl Ring {
    /// None, for what is not asked where it lies.
    pub(crate) const NONE: Self = Ring { base: core::ptr::null_mut(), from: 0, mask: 0 };

    /// Where pack `s` lies.
    #[inline(always)]
    pub(crate) fn pack(&self, s: u32) -> *mut u8 {
        self.base.wrapping_add((self.from.wrapping_add(16 * s) & self.mask) as usize)
    }

    /// Where byte `done` lies, and how many of the `left` bytes from there on lie behind it in one piece, before the ring begins anew.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn piece(&self, done: usize, left: usize) -> (*mut u8, usize) {
        let at = (self.from.wrapping_add(done as u32) & self.mask) as usize;
        (self.base.wrapping_add(at), left.min(self.mask as usize + 1 - at))
    }

    /// The first `bytes` by such pieces: how many bytes are before each, where it lies, and its length.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn pieces(self, bytes: usize) -> impl Iterator<Item = (usize, *mut u8, usize)> {
        let mut next = 0;
        core::iter::from_fn(move || {
            let done = next;
            let (at, len) = self.piece(done, bytes - done);
            next += len;
            (len > 0).then_some((done, at, len))
        })
    }
}

/// What an end of a channel looks at first.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// Where this end's cursors are.
    state: *mut ChannelState,
    /// What the peer raises: `Free` for a sender, `Ready` for a receiver.
    line: *const u64,
}

impl End {
    #[inline(always)]
    pub(crate) fn of<O: Ops>(ops: &O, peer: u32, channel: u32, sends: bool) -> Self {
        let line = if sends { Line::Free(channel) } else { Line::Ready(channel) };
        End { state: ops.state(peer, channel), line: ops.line(peer, line) }
    }

    /// The same, worked out by now.
    #[inline(always)]
    pub(crate) fn now(self) -> Self {
        End {
            state: arch::late(self.state as u64) as *mut ChannelState,
            line: arch::late(self.line as u64) as *const u64,
        }
    }
}

/// The sending end of a channel during one call.
pub struct Sending<'k, O> {
    ops: &'k O,
    watch: &'k Watch,
    peer: u32,
    channel: u32,
    line: *const u64,
    base: *mut u8,
    mask: u64,
    start: u64,
    call: Call,
}

impl<'k, O: Ops> Sending<'k, O> {
    /// Takes up the stream where the last call left it.
    ///
    /// # Safety
    /// This group alone works the sending end of this channel; all its threads call. It reserves, stores and publishes the stream
    /// from byte 0 on, in order and without gaps, and stores reserved bytes alone.
    #[inline(always)]
    pub unsafe fn begin(ops: &'k O, watch: &'k Watch, peer: u32, channel: u32, call: Call) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Self::begin_at(ops, watch, (peer, channel), End::of(ops, peer, channel, true), call) }
    }

    /// As [`Sending::begin`], at the end that the caller knows.
    ///
    /// # Safety
    /// As for [`Sending::begin`]; `end` is that of a sender to `peer` on `channel`.
    #[inline(always)]
    pub(crate) unsafe fn begin_at(
        ops: &'k O,
        watch: &'k Watch,
        (peer, channel): (u32, u32),
        end: End,
        call: Call,
    ) -> Self {
        // SAFETY: live state; written last by the previous kernel on this channel.
        let start = unsafe { (&raw const (*end.state).sent).read_volatile() };
        Sending {
            ops,
            watch,
            peer,
            channel,
            line: end.line,
            base: ops.outgoing(peer, channel),
            mask: ops.window() - 1,
            start,
            call,
        }
    }

    /// As [`Sending::begin`]; the position is read as ordinary memory, which costs little to do again.
    ///
    /// # Safety
    /// As for [`Sending::begin`]; nobody finishes on this end while it is used.
    #[inline(always)]
    pub(crate) unsafe fn again(ops: &'k O, watch: &'k Watch, peer: u32, channel: u32, call: Call) -> Self {
        // SAFETY: live state, which nobody writes meanwhile.
        let start = unsafe { (&raw const (*ops.state(peer, channel)).sent).read() };
        let line = ops.line(peer, Line::Free(channel));
        let (base, mask) = (ops.outgoing(peer, channel), ops.window() - 1);
        Sending { ops, watch, peer, channel, line, base, mask, start, call }
    }

    /// Waits until stream bytes up to `to` (relative to this call) fit in the ring. Writes the header with the first chunk.
    #[inline(always)]
    pub fn reserve<G: Group>(&self, group: &G, from: u64, to: u64) -> Flow {
        let about = About { peer: self.peer, channel: self.channel, operation: operation::SEND };
        // SAFETY: a live line of this rank.
        unsafe { self.watch.until(group, self.ops, self.line, self.floor(to), about) }?;
        if from == 0 && group.leads() {
            self.open();
        }
        Ok(())
    }

    /// Writes the header, for which there is room. One thread.
    #[inline(always)]
    pub(crate) fn open(&self) {
        // SAFETY: the header's place in the ring, reserved, aligned since streams are multiples of 128.
        unsafe { arch::store_16(self.at(0), self.call.header(self.start)) };
    }

    /// The leader's part of a reservation, while the group is still at the bytes before: 0 or a kind of fault, for
    /// [`Sending::settle`].
    #[inline(always)]
    pub(crate) fn await_room(&self, to: u64) -> u32 {
        // SAFETY: a live line of this rank.
        unsafe { self.watch.poll_ahead(self.line, self.floor(to)) }
    }

    /// Syncs the group, and ends the kernel if its leader found a fault when it waited for `to`.
    #[inline(always)]
    pub(crate) fn settle<G: Group>(&self, group: &G, found: u32, to: u64) -> Flow {
        let about = About { peer: self.peer, channel: self.channel, operation: operation::SEND };
        // SAFETY: a live line of this rank.
        unsafe { self.watch.settle_late(group, self.ops, about, found, self.line, self.floor(to)) }
    }

    /// Up to where the peer has freed its ring when stream bytes up to `to` fit.
    #[inline(always)]
    fn floor(&self, to: u64) -> u64 {
        self.start.wrapping_add(to).wrapping_sub(self.mask + 1)
    }

    /// Where stream byte `offset` of this call is stored.
    #[inline(always)]
    pub fn at(&self, offset: u64) -> *mut u8 {
        // SAFETY: masked to the ring.
        unsafe { self.base.add(ring(self.start, offset, self.mask)) }
    }

    /// The ring from stream byte `offset` on.
    #[inline(always)]
    pub(crate) fn ring(&self, offset: u64) -> Ring {
        Ring {
            base: self.base,
            from: (self.start as u32).wrapping_add(offset as u32),
            mask: self.mask as u32,
        }
    }

    /// Hands stream bytes `from..to`, stored by the group, to the peer.
    #[inline(always)]
    pub fn publish<G: Group>(&self, group: &G, from: u64, to: u64) -> Flow {
        group.sync();
        self.watch.check_panic(self.ops)?;
        self.hand_over(group, from, to);
        Ok(())
    }

    /// As [`Sending::publish`], behind a sync of the group after which no thread of it had panicked. The leader acts; the others go on.
    #[inline(always)]
    pub fn hand_over<G: Group>(&self, group: &G, from: u64, to: u64) {
        let (from, to) = (self.start.wrapping_add(from), self.start.wrapping_add(to));
        // SAFETY: the bytes were seen free before they were stored; this group alone works this end.
        unsafe {
            self.ops.flush(group, self.peer, self.channel, from, to);
            self.ops.signal(group, self.peer, Line::Ready(self.channel), to);
        }
    }

    /// Waits until the peer has freed stream bytes up to `to`.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn await_freed<G: Group>(&self, group: &G, to: u64) -> Flow {
        let about = About { peer: self.peer, channel: self.channel, operation: operation::SEND };
        // SAFETY: a live line of this rank.
        unsafe { self.watch.until(group, self.ops, self.line, self.start.wrapping_add(to), about) }
    }

    /// Leaves the position for the next call, which may be one of this kernel: its threads must not look before a sync of the group
    /// that follows this.
    #[inline(always)]
    pub fn finish<G: Group>(&self, group: &G) {
        let bytes = stream_bytes(self.call.payload);
        self.finish_at(group, bytes);
    }

    /// As [`Sending::finish`], for a call whose stream is `bytes` long, whatever its payload.
    #[inline(always)]
    pub fn finish_at<G: Group>(&self, group: &G, bytes: u64) {
        if group.leads() {
            let end = self.start.wrapping_add(bytes);
            // SAFETY: live state; this group alone works this end, and its other threads have read the old value before a sync.
            unsafe { (&raw mut (*self.ops.state(self.peer, self.channel)).sent).write_volatile(end) };
        }
    }
}

/// The receiving end of a channel during one call.
pub struct Receiving<'k, O> {
    ops: &'k O,
    watch: &'k Watch,
    peer: u32,
    channel: u32,
    line: *const u64,
    base: *const u8,
    mask: u64,
    start: u64,
    call: Call,
}

impl<'k, O: Ops> Receiving<'k, O> {
    /// Takes up the stream where the last call left it.
    ///
    /// # Safety
    /// This group alone works the receiving end of this channel; all its threads call. It awaits, reads and frees the stream from
    /// byte 0 on, in order and without gaps, and reads bytes that were awaited and not freed alone.
    #[inline(always)]
    pub unsafe fn begin(ops: &'k O, watch: &'k Watch, peer: u32, channel: u32, call: Call) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Self::begin_at(ops, watch, (peer, channel), End::of(ops, peer, channel, false), call) }
    }

    /// As [`Receiving::begin`], at the end that the caller knows.
    ///
    /// # Safety
    /// As for [`Receiving::begin`]; `end` is that of a receiver from `peer` on `channel`.
    #[inline(always)]
    pub(crate) unsafe fn begin_at(
        ops: &'k O,
        watch: &'k Watch,
        (peer, channel): (u32, u32),
        end: End,
        call: Call,
    ) -> Self {
        // SAFETY: live state; written last by the previous kernel on this channel.
        let start = unsafe { (&raw const (*end.state).received).read_volatile() };
        let (base, mask) = (ops.incoming(peer, channel), ops.window() - 1);
        Receiving { ops, watch, peer, channel, line: end.line, base, mask, start, call }
    }

    /// As [`Receiving::begin`]; the position is read as ordinary memory, which costs little to do again.
    ///
    /// # Safety
    /// As for [`Receiving::begin`]; nobody finishes on this end while it is used.
    #[inline(always)]
    pub(crate) unsafe fn again(ops: &'k O, watch: &'k Watch, peer: u32, channel: u32, call: Call) -> Self {
        // SAFETY: live state, which nobody writes meanwhile.
        let start = unsafe { (&raw const (*ops.state(peer, channel)).received).read() };
        let line = ops.line(peer, Line::Ready(channel));
        let (base, mask) = (ops.incoming(peer, channel), ops.window() - 1);
        Receiving { ops, watch, peer, channel, line, base, mask, start, call }
    }

    /// Waits until stream bytes up to `to` have arrived. With the first chunk, compares the header.
    #[inline(always)]
    pub fn await_bytes<G: Group>(&self, group: &G, from: u64, to: u64) -> Flow {
        let about = About { peer: self.peer, channel: self.channel, operation: operation::RECEIVE };
        if from > 0 {
            let target = self.start.wrapping_add(to);
            // SAFETY: a live line of this rank.
            return unsafe { self.watch.until(group, self.ops, self.line, target, about) };
        }
        let mut fault = Fault::NONE;
        if group.leads() {
            fault = self.await_first(to);
        }
        self.watch.settle(group, self.ops, about, fault)
    }

    /// The leader's wait for more bytes, while the group is still at those before: 0 or a kind of fault, for [`Receiving::settle`].
    #[inline(always)]
    pub(crate) fn await_more(&self, to: u64) -> u32 {
        // SAFETY: a live line of this rank.
        unsafe { self.watch.poll_ahead(self.line, self.start.wrapping_add(to)) }
    }

    /// As [`Sending::settle`].
    #[inline(always)]
    pub(crate) fn settle<G: Group>(&self, group: &G, found: u32, to: u64) -> Flow {
        let about = About { peer: self.peer, channel: self.channel, operation: operation::RECEIVE };
        let target = self.start.wrapping_add(to);
        // SAFETY: a live line of this rank.
        unsafe { self.watch.settle_late(group, self.ops, about, found, self.line, target) }
    }

    /// The leader's wait for the first chunk. The header comes first, alone if need be: a sender with a shorter call never reaches
    /// `to`.
    #[inline(always)]
    fn await_first(&self, to: u64) -> Fault {
        let at = self.line;
        let target = self.start.wrapping_add(to);
        // SAFETY: a live line of this rank.
        let (seen, fault) =
            unsafe { self.watch.poll(at, self.start.wrapping_add(HEADER), operation::RECEIVE) };
        if fault.kind != 0 {
            return fault;
        }
        let fault = self.compare_header();
        if fault.kind != 0 || seen.wrapping_sub(target) as i64 >= 0 {
            return fault;
        }
        // SAFETY: a live line of this rank.
        unsafe { self.watch.poll(at, target, operation::RECEIVE) }.1
    }

    #[inline(always)]
    fn compare_header(&self) -> Fault {
        // SAFETY: the header has arrived; aligned since streams are multiples of 128.
        let w = unsafe { arch::load_16_once(self.at(0)) };
        let kernel = u64::from(w[0]) | u64::from(w[1]) << 32;
        let size = u64::from(w[2]) | u64::from(w[3]) << 32;
        self.call.compare(self.start, kernel, size)
    }

    /// Where stream byte `offset` of this call has arrived.
    #[inline(always)]
    pub fn at(&self, offset: u64) -> *const u8 {
        // SAFETY: masked to the ring.
        unsafe { self.base.add(ring(self.start, offset, self.mask)) }
    }

    /// As [`Sending::ring`].
    #[inline(always)]
    pub(crate) fn ring(&self, offset: u64) -> Ring {
        let (base, from) = (self.base.cast_mut(), (self.start as u32).wrapping_add(offset as u32));
        Ring { base, from, mask: self.mask as u32 }
    }

    /// Gives the ring's bytes up to `to` back to the sender.
    #[inline(always)]
    pub fn free<G: Group>(&self, group: &G, to: u64) -> Flow {
        group.sync();
        self.watch.check_panic(self.ops)?;
        self.give_back(group, to);
        Ok(())
    }

    /// As [`Receiving::free`], behind a sync of the group after which no thread of it had panicked. The leader acts; the others go on.
    #[inline(always)]
    pub fn give_back<G: Group>(&self, group: &G, to: u64) {
        // SAFETY: every thread is done with those bytes; this group alone works this end.
        unsafe { self.ops.signal(group, self.peer, Line::Free(self.channel), self.start.wrapping_add(to)) };
    }

    /// Ends the kernel because what the peer has announced, `bytes` of it, cannot be read in its memory.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn unreadable(&self, bytes: u64) -> Stopped {
        let about = About { peer: self.peer, channel: self.channel, operation: operation::RECEIVE };
        self.watch.give_up(self.ops, kind::EXPIRED, about, bytes, 0, 0);
        Stopped
    }

    /// Leaves the position for the next call, which may be one of this kernel: its threads must not look before a sync of the group
    /// that follows this.
    #[inline(always)]
    pub fn finish<G: Group>(&self, group: &G) {
        let bytes = stream_bytes(self.call.payload);
        self.finish_at(group, bytes);
    }

    /// As [`Receiving::finish`], for a call whose stream is `bytes` long, whatever its payload.
    #[inline(always)]
    pub fn finish_at<G: Group>(&self, group: &G, bytes: u64) {
        if group.leads() {
            let end = self.start.wrapping_add(bytes);
            // SAFETY: live state; this group alone works this end, and its other threads have read the old value before a sync.
            unsafe { (&raw mut (*self.ops.state(self.peer, self.channel)).received).write_volatile(end) };
        }
    }
}
