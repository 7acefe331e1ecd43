//! *Go* and *done* between the two ends of a channel.

use crate::arch;
use crate::channel::Call;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::ops::{ChannelState, Direct, Line};
use crate::schedule::{NOBODY, Ring, Shape, packs_of};
use crate::wait::{About, Fault, Flow, Watch, kind, operation};

/// Stream position of *go*, from the call's start.
const GO: u64 = 128;
/// Stream position of *done*.
const DONE: u64 = 256;

/// A block's channel in one call.
pub(super) struct Channel<'k, O> {
    ops: &'k O,
    watch: &'k Watch,
    number: u32,
    call: Call,
    /// Which allocation the output is in, and where.
    output: u64,
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
    pub(super) const NONE: Ends = Ends {
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

impl<'k, O: Direct> Channel<'k, O> {
    #[inline(always)]
    pub(super) fn of<H: Hooks>(ops: &'k O, watch: &'k Watch, shape: &Shape, number: u32) -> Self {
        let call = Call { kernel: shape.kernel, payload: 16 * packs_of::<H>(shape.elements) };
        let output = u64::from(shape.allocation) << 44 | shape.output_offset;
        Channel { ops, watch, number, call, output }
    }

    #[inline(always)]
    fn state(&self, peer: u32) -> *mut ChannelState {
        self.ops.state(peer, self.number)
    }

    /// Asks where the streams stand; a peer may be [`NOBODY`].
    #[inline(always)]
    pub(super) fn ends(&self, to: u32, from: u32) -> Ends {
        let mut ends = Ends { to, from, ..Ends::NONE };
        // SAFETY: live state; written last by the previous kernel on this channel.
        unsafe {
            if to != NOBODY {
                ends.sent = (&raw const (*self.state(to)).sent).read_volatile();
                ends.base_to = self.ops.peer_base(to);
            }
            if from != NOBODY {
                ends.received = (&raw const (*self.state(from)).received).read_volatile();
                ends.base_from = self.ops.peer_base(from);
            }
        }
        ends
    }

    /// Names the call to both peers, where neither [`Channel::say_go`] nor [`Channel::await_go`] does.
    #[inline(always)]
    pub(super) fn name(&self, ends: &mut Ends) {
        ends.digest_from = self.digest_at(ends.received);
        ends.digest_to = self.digest_at(ends.sent);
    }

    #[inline(always)]
    fn digest_at(&self, at: u64) -> u64 {
        Self::digest(at, self.words(at))
    }

    /// What the words of an announcement that begins at stream position `at` come to.
    #[inline(always)]
    fn digest(at: u64, words: [u64; 3]) -> u64 {
        const ODD: u64 = 0xd6e8_feb8_6659_fd93;
        let [kernel, payload, output] = words;
        (kernel ^ payload.wrapping_mul(ODD) ^ output.wrapping_mul(ODD << 7 | 1)).wrapping_add(at)
    }

    #[inline(always)]
    fn words(&self, at: u64) -> [u64; 3] {
        [self.call.kernel_at(at), self.call.payload, self.output]
    }

    /// Lets `ends.from` write this rank's output. No fence: what used the output before was an earlier kernel, or copy, of this stream.
    #[inline(always)]
    pub(super) fn say_go(&self, ends: &mut Ends) {
        ends.digest_from = self.digest_at(ends.received);
        let (line, at) = (Line::Free(self.number), ends.received);
        // SAFETY: this block alone raises its channel's lines, and they grow.
        unsafe {
            self.ops.announce(ends.base_from, line, at.wrapping_add(GO), ends.digest_from, self.words(at))
        };
    }

    /// Tells `ends.to` that its output is written. After the block's sync.
    #[inline(always)]
    pub(super) fn say_done(&self, ends: &Ends) {
        arch::fence_system();
        let (line, at) = (Line::Ready(self.number), ends.sent);
        // SAFETY: as for `say_go`.
        unsafe {
            self.ops.announce(ends.base_to, line, at.wrapping_add(DONE), ends.digest_to, self.words(at))
        };
    }

    #[inline(always)]
    pub(super) fn await_go(&self, ends: &mut Ends) -> Fault {
        // Before the wait, which is free time.
        ends.digest_to = arch::late(self.digest_at(ends.sent));
        let expected = (ends.sent, ends.digest_to);
        self.await_word(ends.to, Line::Free(self.number), expected, GO, operation::LEAVE)
    }

    #[inline(always)]
    pub(super) fn await_done(&self, ends: &Ends) -> Fault {
        let expected = (ends.received, arch::late(ends.digest_from));
        self.await_word(ends.from, Line::Ready(self.number), expected, DONE, operation::RECEIVE)
    }

    #[inline(always)]
    fn await_word(
        &self,
        peer: u32,
        line: Line,
        (at, expected): (u64, u64),
        step: u64,
        operation: u32,
    ) -> Fault {
        let mut digest = 0;
        let heard = || {
            let (value, with) = self.ops.heard(peer, line);
            digest = with;
            value
        };
        let (_, fault) = self.watch.poll_by(heard, at.wrapping_add(step), operation);
        if fault.kind != 0 {
            return fault;
        }
        // `heard` acquires: what the peer did before is visible to this thread and, over the block's sync and the kernel's end, to all. A
        // fence instead would wait until this rank's own announcements have arrived, too.
        if digest == expected { Fault::NONE } else { self.differs(peer, line, at) }
    }

    /// What differs in the announcement of a peer.
    #[cold]
    #[inline(always)]
    fn differs(&self, peer: u32, line: Line, at: u64) -> Fault {
        let [kernel, payload, output] = self.ops.heard_words(peer, line);
        let fault = self.call.compare(at, kernel, payload);
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
    pub(super) fn settle(&self, (peer, fault): (u32, Fault)) -> Flow {
        let about = About { peer, channel: self.number, operation: fault.operation };
        self.watch.settle(&Block, self.ops, about, fault)
    }

    /// Says *done* to the one and waits for that of the other, as far as there are such, and leaves the positions for the next call. The
    /// leader has stored, or has synced with those that have.
    #[inline(always)]
    pub(super) fn close(&self, ends: &Ends) -> Flow {
        let leads = Block.leads();
        if ends.to != NOBODY && leads {
            self.say_done(ends);
        }
        if ends.from != NOBODY {
            let fault = if leads { self.await_done(ends) } else { Fault::NONE };
            self.settle((ends.from, fault))?;
        }
        if leads {
            self.finish(ends);
        }
        Ok(())
    }

    /// Leaves the positions for the next call.
    #[inline(always)]
    fn finish(&self, ends: &Ends) {
        // SAFETY: live state of this block's channel, of this lane's peers; this lane has read it.
        unsafe {
            if ends.to != NOBODY {
                let state = self.state(ends.to);
                (&raw mut (*state).sent).write_volatile(ends.sent.wrapping_add(DONE));
            }
            if ends.from != NOBODY {
                let state = self.state(ends.from);
                (&raw mut (*state).received).write_volatile(ends.received.wrapping_add(DONE));
            }
        }
    }
}

/// The steps of an all-to-all, dealt to the lanes of a block. On a GPU each has one at most: the host gives a block as many threads.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    ring: Ring,
    /// Of this lane's first step.
    first: Ends,
}

impl Lanes {
    /// Asks where the streams stand.
    #[inline(always)]
    pub(super) fn of<O: Direct>(channel: &Channel<'_, O>) -> Self {
        let lanes = Lanes { ring: Ring::of(channel.ops), first: Ends::NONE };
        let step = Self::first_step();
        if step < lanes.ring.world { Lanes { first: lanes.step(channel, step), ..lanes } } else { lanes }
    }

    #[inline(always)]
    fn first_step() -> u32 {
        1 + Block.lane()
    }

    #[inline(always)]
    fn step<O: Direct>(&self, channel: &Channel<'_, O>, step: u32) -> Ends {
        channel.ends(self.ring.to(step), self.ring.from(step))
    }

    /// Calls `f` for each of this lane's steps.
    #[inline(always)]
    fn each<O: Direct>(&mut self, channel: &Channel<'_, O>, mut f: impl FnMut(&mut Ends)) {
        let mut step = Self::first_step();
        if step < self.ring.world {
            f(&mut self.first);
        }
        if cfg!(target_arch = "nvptx64") {
            return;
        }
        step += Block.lanes();
        while step < self.ring.world {
            let mut ends = self.step(channel, step);
            channel.name(&mut ends);
            f(&mut ends);
            step += Block.lanes();
        }
    }

    /// Says *go* to every peer and waits for theirs.
    #[inline(always)]
    pub(super) fn open<O: Direct>(&mut self, channel: &Channel<'_, O>) -> Flow {
        self.say_go(channel);
        self.await_go(channel)
    }

    /// Says *go* to every peer.
    #[inline(always)]
    pub(super) fn say_go<O: Direct>(&mut self, channel: &Channel<'_, O>) {
        self.each(channel, |ends| channel.say_go(ends));
    }

    /// Waits for every peer's *go*.
    #[inline(always)]
    pub(super) fn await_go<O: Direct>(&mut self, channel: &Channel<'_, O>) -> Flow {
        let found = self.wait(channel, |ends| (ends.to, channel.await_go(ends)));
        channel.settle(found)
    }

    /// Says *done* to every peer and waits for theirs; then the next call may begin. Behind [`Lanes::open`], or [`Lanes::name`].
    #[inline(always)]
    pub(super) fn close<O: Direct>(&mut self, channel: &Channel<'_, O>) -> Flow {
        self.each(channel, |ends| channel.say_done(ends));
        let found = self.wait(channel, |ends| (ends.from, channel.await_done(ends)));
        channel.settle(found)?;
        self.each(channel, |ends| channel.finish(ends));
        Ok(())
    }

    /// What [`Lanes::close`] needs of [`Lanes::open`].
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
