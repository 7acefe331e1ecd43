//! *Ready* and *complete* between the two ends of a channel.

use crate::arch;
use crate::atomic::{self, Relaxed, System};
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::launch::Shape;
use crate::ops::{ChannelState, Direct, Line};
use crate::protocol::simple::channel::Call;
use crate::protocol::whole_call;
use crate::schedule::{Member, NOBODY, Schedule, legs};
use crate::wait::{About, Behind, Fault, Flow, Watch, kind, operation};
use core::ptr;

/// Stream position of *ready*, from the call's start.
const READY: u64 = 128;
/// Stream position of *complete*.
const COMPLETE: u64 = 256;

/// A block's channel in one call.
pub(super) struct Channel<'k, O> {
    ops: &'k O,
    number: u32,
    call: Call,
    /// Which allocation the output is in, and where.
    output: u64,
    /// The part of digests that positions have no part in.
    mix: u64,
}

/// What is said on a line of 128 bytes: the stream's position in the first 8; from byte 16 on a digest and the position again, which
/// are looked at together; from byte 32 on what the digest is of.
#[derive(Clone, Copy)]
struct Announcement {
    at: u64,
    digest: u64,
    words: [u64; 3],
}

impl Announcement {
    /// After nothing: who needs an order fences before. Called by one thread.
    ///
    /// # Safety
    /// `line` is one of this rank's in a live region, positions grow (as signed differences), and nobody else raises it.
    #[inline(always)]
    unsafe fn raise(&self, line: *mut u64) {
        let &Announcement { at, digest, words } = self;
        // SAFETY: the line's 128 bytes; this rank alone writes them.
        unsafe {
            atomic::store::<System, Relaxed, u64>(line.add(4), words[0]);
            atomic::store::<System, Relaxed, u64>(line.add(5), words[1]);
            atomic::store::<System, Relaxed, u64>(line.add(6), words[2]);
            arch::store_line(line.add(2).cast(), [digest as u32, (digest >> 32) as u32], at);
            atomic::store::<System, Relaxed, u64>(line, at);
        }
    }

    /// Position and digest that a peer raised last; what it did before it fenced and raised them is visible to this thread from here on.
    ///
    /// # Safety
    /// `line` is a live line of this rank's region, raised by [`Announcement::raise`] alone.
    #[inline(always)]
    unsafe fn heard(line: *const u64) -> (u64, u64) {
        // SAFETY: the pair in the line.
        let (digest, at) = unsafe { arch::acquire_line(line.add(2).cast()) };
        (at, u64::from(digest[0]) | u64::from(digest[1]) << 32)
    }

    /// What the digest is of, once it has arrived.
    ///
    /// # Safety
    /// As for [`Announcement::heard`].
    #[inline(always)]
    unsafe fn words(line: *const u64) -> [u64; 3] {
        // SAFETY: the words in the line, written by atomics alone.
        let word = |k: usize| unsafe { atomic::load::<System, Relaxed, u64>(line.add(4 + k)) };
        [word(0), word(1), word(2)]
    }
}

/// Where the streams of a channel to and from a pair of peers stand, where the peers' regions are, and what names this call to them. All
/// of it is there before it is needed: a block that waits, or has waited, says and compares what it has in registers.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) to: u32,
    pub(super) from: u32,
    sent: u64,
    received: u64,
    base_to: u64,
    base_from: u64,
    digest_to: u64,
    digest_from: u64,
}

impl Ends {
    const NONE: Ends = Ends {
        to: NOBODY,
        from: NOBODY,
        sent: 0,
        received: 0,
        base_to: 0,
        base_from: 0,
        digest_to: 0,
        digest_from: 0,
    };
}

/// What the end of a call needs beside: worked out when it is needed, where hooks want the registers, or before.
#[derive(Clone, Copy)]
pub(super) struct Close {
    /// First word of the announcement of *complete*, and where it goes.
    kernel_to: u64,
    complete_to: *mut u64,
    /// Where the peer's *complete* comes.
    complete_from: *const u64,
    state_to: *mut ChannelState,
    state_from: *mut ChannelState,
}

impl Close {
    /// The same, worked out by now.
    #[inline(always)]
    fn now(self) -> Self {
        Close {
            kernel_to: arch::late(self.kernel_to),
            complete_to: now(self.complete_to),
            complete_from: now(self.complete_from),
            state_to: now(self.state_to),
            state_from: now(self.state_from),
        }
    }
}

/// The same address, worked out by now.
#[inline(always)]
fn now<T>(at: *const T) -> *mut T {
    arch::late(at as u64) as *mut T
}

impl<'k, O: Direct> Channel<'k, O> {
    #[inline(always)]
    pub(super) fn of<H: Hooks>(ops: &'k O, shape: &Shape, number: u32) -> Self {
        const ODD: u64 = 0xd6e8_feb8_6659_fd93;
        let call = whole_call::<H>(shape);
        let output = u64::from(shape.allocation) << 44 | shape.output_offset;
        let mix = call.size().wrapping_mul(ODD) ^ output.wrapping_mul(ODD << 7 | 1);
        Channel { ops, number, call, output, mix: arch::late(mix) }
    }

    #[inline(always)]
    fn state(&self, peer: u32) -> *mut ChannelState {
        self.ops.state(peer, self.number)
    }

    #[inline(always)]
    fn ask_to(&self, ends: &mut Ends, state: *mut ChannelState) {
        // SAFETY: live state; written last by the previous kernel on this channel.
        ends.sent = unsafe { (&raw const (*state).sent).read_volatile() };
        ends.base_to = self.ops.peer_base(ends.to);
    }

    #[inline(always)]
    fn ask_from(&self, ends: &mut Ends, state: *mut ChannelState) {
        // SAFETY: as for `ask_to`.
        ends.received = unsafe { (&raw const (*state).received).read_volatile() };
        ends.base_from = self.ops.peer_base(ends.from);
    }

    /// Names the call to both peers, where neither [`Channel::say_ready`] nor [`Channel::await_ready`] does.
    #[inline(always)]
    pub(super) fn name(&self, ends: &mut Ends) {
        ends.digest_from = self.digest_at(ends.received);
        ends.digest_to = self.digest_at(ends.sent);
    }

    /// What [`Channel::close`] needs.
    #[inline(always)]
    pub(super) fn closing(&self, ends: &Ends) -> Close {
        let (line, somebody) = (Line::Ready(self.number), |peer| peer != NOBODY);
        let state = |peer| if somebody(peer) { self.state(peer) } else { ptr::null_mut() };
        Close {
            kernel_to: self.call.kernel_at(ends.sent),
            complete_to: self.ops.line_out(ends.base_to, line),
            complete_from: if somebody(ends.from) { self.ops.line(ends.from, line) } else { ptr::null() },
            state_to: state(ends.to),
            state_from: state(ends.from),
        }
    }

    /// What the words of an announcement that begins at stream position `at` come to.
    #[inline(always)]
    fn digest_at(&self, at: u64) -> u64 {
        (self.call.kernel_at(at) ^ self.mix).wrapping_add(at)
    }

    #[inline(always)]
    fn words(&self, kernel: u64) -> [u64; 3] {
        [kernel, self.call.size(), self.output]
    }

    /// Lets `ends.from` write this rank's output. No fence: what used the output before was an earlier kernel, or copy, of this stream.
    #[inline(always)]
    pub(super) fn say_ready(&self, ends: &mut Ends) {
        let at = ends.received;
        ends.digest_from = self.digest_at(at);
        let (digest, words) = (ends.digest_from, self.words(self.call.kernel_at(at)));
        let line = self.ops.line_out(ends.base_from, Line::Free(self.number));
        // SAFETY: this block alone raises its channel's lines, and they grow.
        unsafe { Announcement { at: at.wrapping_add(READY), digest, words }.raise(line) };
    }

    /// Tells `ends.to` that its output is written. After the block's sync.
    #[inline(always)]
    fn say_complete(&self, ends: &Ends, close: &Close) {
        let (at, digest, words) =
            (ends.sent.wrapping_add(COMPLETE), ends.digest_to, self.words(close.kernel_to));
        arch::fence_system();
        // SAFETY: as for `say_ready`.
        unsafe { Announcement { at, digest, words }.raise(close.complete_to) };
    }

    #[inline(always)]
    pub(super) fn await_ready(&self, watch: &Watch, ends: &mut Ends) -> Fault {
        // Before the wait, which is free time.
        ends.digest_to = arch::late(self.digest_at(ends.sent));
        let expected = (ends.sent, ends.digest_to);
        let line = self.ops.line(ends.to, Line::Free(self.number));
        self.await_word(watch, line, expected, READY, operation::LEAVE)
    }

    #[inline(always)]
    fn await_complete(&self, watch: &Watch, ends: &Ends, close: &Close) -> Fault {
        let expected = (ends.received, arch::late(ends.digest_from));
        self.await_word(watch, close.complete_from, expected, COMPLETE, operation::RECEIVE)
    }

    #[inline(always)]
    fn await_word(
        &self,
        watch: &Watch,
        line: *const u64,
        (at, expected): (u64, u64),
        step: u64,
        operation: u32,
    ) -> Fault {
        let mut digest = 0;
        let heard = || {
            // SAFETY: a line of this rank's that announcements alone raise.
            let (value, with) = unsafe { Announcement::heard(line) };
            digest = with;
            value
        };
        let (_, fault) = watch.poll_by(heard, at.wrapping_add(step), operation);
        if fault.kind != 0 {
            return fault;
        }
        // `heard` acquires: what the peer did before is visible to this thread and, over the block's sync and the kernel's end, to all. A
        // fence instead would wait until this rank's own announcements have arrived, too.
        if digest == expected { Fault::NONE } else { self.differs(line, at) }
    }

    /// What differs in the announcement of a peer.
    #[cold]
    #[inline(always)]
    fn differs(&self, line: *const u64, at: u64) -> Fault {
        // SAFETY: as in `await_word`.
        let [kernel, size, output] = unsafe { Announcement::words(line) };
        let fault = self.call.compare(at, kernel, size);
        if fault.kind != 0 {
            return fault;
        }
        Fault {
            kind: kind::MISMATCH,
            operation: operation::OUTPUT,
            expected: self.output,
            seen: output,
            age_ns: 0,
        }
    }

    /// Ends the block if this lane, or another, has found a fault.
    #[inline(always)]
    pub(super) fn settle(&self, watch: &Watch, (peer, fault): (u32, Fault)) -> Flow {
        let about = About { peer, channel: self.number, operation: fault.operation };
        watch.settle(&Block, self.ops, about, fault)
    }

    /// Leaves the positions for the next call.
    #[inline(always)]
    fn finish(&self, ends: &Ends, close: &Close) {
        // SAFETY: live state of this block's channel, of this lane's peers; this lane has read it.
        unsafe {
            if ends.to != NOBODY {
                (&raw mut (*close.state_to).sent).write_volatile(ends.sent.wrapping_add(COMPLETE));
            }
            if ends.from != NOBODY {
                (&raw mut (*close.state_from).received).write_volatile(ends.received.wrapping_add(COMPLETE));
            }
        }
    }
}

/// A rank's legs, dealt to the lanes of a block. On a GPU each has one at most each way: the host gives a block as many threads.
#[derive(Clone, Copy)]
pub(super) struct Lanes<S> {
    schedule: S,
    me: Member,
    /// Of this lane's first legs.
    first: Ends,
}

/// Whether a lane's leg to, or from, `peer` is one.
#[inline(always)]
fn exists<S: Schedule>(peer: u32) -> bool {
    S::MUTUAL || peer != NOBODY
}

impl<S: Schedule> Lanes<S> {
    #[inline(always)]
    pub(super) fn of(schedule: &S, me: Member) -> Self {
        Lanes { schedule: *schedule, me, first: Ends::NONE }
    }

    #[inline(always)]
    fn first_leg() -> u32 {
        1 + Block.lane()
    }

    /// Whether this lane has a leg.
    #[inline(always)]
    fn any(&self) -> bool {
        Self::first_leg() < legs(&self.schedule, self.me) + 1
    }

    /// The peers of legs number `leg`, as far as there are such.
    #[inline(always)]
    fn peers(&self, leg: u32) -> (u32, u32) {
        let Lanes { schedule, me, .. } = *self;
        let to = if S::MUTUAL || leg < schedule.sends(me) + 1 { schedule.to(me, leg).peer } else { NOBODY };
        let from =
            if S::MUTUAL || leg < schedule.receives(me) + 1 { schedule.from(me, leg).peer } else { NOBODY };
        (to, from)
    }

    /// Asks where the streams stand, behind what precedes the kernel; where that is told is worked out before.
    #[inline(always)]
    fn ends<O: Direct>(&self, channel: &Channel<'_, O>, leg: u32) -> Ends {
        let (to, from) = self.peers(leg);
        let mut ends = Ends { to, from, ..Ends::NONE };
        let state = |peer| if exists::<S>(peer) { channel.state(peer) } else { ptr::null_mut() };
        let [state_to, state_from] = [to, from].map(|peer| now(state(peer)));
        let _ = Behind::here();
        if exists::<S>(to) {
            channel.ask_to(&mut ends, state_to);
        }
        if exists::<S>(from) {
            channel.ask_from(&mut ends, state_from);
        }
        ends
    }

    /// Asks where the streams stand, behind what precedes the kernel.
    #[inline(always)]
    pub(super) fn ask<O: Direct>(&mut self, channel: &Channel<'_, O>) {
        if self.any() {
            self.first = self.ends(channel, Self::first_leg());
        }
    }

    /// As [`Lanes::ask`], and says *ready* to every peer that sends.
    #[inline(always)]
    pub(super) fn begin<O: Direct>(&mut self, channel: &Channel<'_, O>) {
        let say = |ends: &mut Ends| {
            if exists::<S>(ends.from) {
                channel.say_ready(ends);
            }
        };
        if self.any() {
            // In one place: what can be worked out while positions are under way is.
            self.first = self.ends(channel, Self::first_leg());
            say(&mut self.first);
        }
        self.others(channel, say);
    }

    /// Calls `f` for each of this lane's legs.
    #[inline(always)]
    fn each<O: Direct>(&mut self, channel: &Channel<'_, O>, mut f: impl FnMut(&mut Ends)) {
        if self.any() {
            f(&mut self.first);
        }
        self.others(channel, f);
    }

    /// Calls `f` for each of this lane's legs but the first: a lane of a GPU has no more.
    #[inline(always)]
    fn others<O: Direct>(&self, channel: &Channel<'_, O>, mut f: impl FnMut(&mut Ends)) {
        if cfg!(target_arch = "nvptx64") || S::MOST_LEGS == 1 {
            return;
        }
        let mut leg = Self::first_leg() + Block.lanes();
        while leg < legs(&self.schedule, self.me) + 1 {
            let mut ends = self.ends(channel, leg);
            channel.name(&mut ends);
            f(&mut ends);
            leg += Block.lanes();
        }
    }

    /// Waits until every peer that is sent to is ready.
    #[inline(always)]
    pub(super) fn await_ready<O: Direct>(&mut self, channel: &Channel<'_, O>, watch: &Watch) -> Flow {
        let found = self.wait(channel, |ends| match exists::<S>(ends.to) {
            true => (ends.to, channel.await_ready(watch, ends)),
            false => (0, Fault::NONE),
        });
        channel.settle(watch, found)
    }

    /// What [`Lanes::close`] will need, worked out now.
    #[inline(always)]
    pub(super) fn closing<O: Direct>(&self, channel: &Channel<'_, O>) -> Close {
        channel.closing(&self.first).now()
    }

    /// Says *complete* to every peer that was sent to, and waits for that of all others; then the next call may begin. Behind
    /// [`Lanes::await_ready`], or [`Lanes::name`]. `close`: [`Lanes::closing`], if that was asked for.
    #[inline(always)]
    pub(super) fn close<O: Direct>(
        &mut self,
        channel: &Channel<'_, O>,
        watch: &Watch,
        close: Option<Close>,
    ) -> Flow {
        let first = close.unwrap_or_else(|| channel.closing(&self.first));
        let (to, from) = (self.first.to, self.first.from);
        // Of a CPU thread's other legs, worked out for each.
        let alone = cfg!(target_arch = "nvptx64") || S::MOST_LEGS == 1;
        let is_first = |ends: &Ends| alone || (ends.to, ends.from) == (to, from);
        let of = |ends: &Ends| if is_first(ends) { first } else { channel.closing(ends) };
        self.each(channel, |ends| {
            if exists::<S>(ends.to) {
                channel.say_complete(ends, &of(ends));
            }
        });
        let found = self.wait(channel, |ends| match exists::<S>(ends.from) {
            true => (ends.from, channel.await_complete(watch, ends, &of(ends))),
            false => (0, Fault::NONE),
        });
        channel.settle(watch, found)?;
        self.each(channel, |ends| channel.finish(ends, &of(ends)));
        Ok(())
    }

    /// What [`Lanes::close`] needs of [`Lanes::await_ready`].
    #[inline(always)]
    pub(super) fn name<O: Direct>(&mut self, channel: &Channel<'_, O>) {
        channel.name(&mut self.first);
    }

    /// What this lane's waits found: the first fault, with its peer.
    #[inline(always)]
    fn wait<O: Direct>(
        &mut self,
        channel: &Channel<'_, O>,
        f: impl Fn(&mut Ends) -> (u32, Fault),
    ) -> (u32, Fault) {
        let mut found = (0, Fault::NONE);
        self.each(channel, |ends| {
            if found.1.kind == 0 {
                found = f(ends);
            }
        });
        found
    }
}
