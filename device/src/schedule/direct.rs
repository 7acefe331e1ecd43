//! Straight into the peers' outputs, where those are symmetric memory and `consume` does nothing but store.
//!
//! A rank may write a peer's output only once the peer has begun the same launch: until then the peer's stream may still use what the
//! output held. So each block says *go* to every peer and waits for theirs, stores its share of each chunk where it belongs, says
//! *done*, and waits for that of every peer. Both stand on the channel's lines, as if the call were a stream of two headers: staged and
//! direct calls may follow each other in any order. The words behind a line's value name the call, so ranks that disagree on kernel,
//! size or place find out before a byte is written.

use super::span::{self, Team};
use super::{Grid, NOBODY, Params, Ring, Shape, Share, Unpack, own_share, packs_of, place, work};
use crate::arch;
use crate::args::store_pack;
use crate::channel::Call;
use crate::ctx::Ctx;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::ops::{ChannelState, Direct, Line};
use crate::pack::Pack;
use crate::wait::{About, Fault, Flow, Watch, kind, operation};

/// Stream position of *go*, from the call's start.
const GO: u64 = 128;
/// Stream position of *done*.
const DONE: u64 = 256;

/// A block's channel in one call.
struct Channel<'k, O> {
    ops: &'k O,
    watch: &'k Watch,
    number: u32,
    call: Call,
    /// Which allocation the output is in, and where.
    output: u64,
}

/// Where the streams of a channel to and from a pair of peers stand.
#[derive(Clone, Copy)]
struct Ends {
    to: u32,
    from: u32,
    sent: u64,
    received: u64,
}

impl Ends {
    const NONE: Ends = Ends { to: NOBODY, from: NOBODY, sent: 0, received: 0 };
}

impl<'k, O: Direct> Channel<'k, O> {
    #[inline(always)]
    fn of<H: Hooks>(ops: &'k O, watch: &'k Watch, shape: &Shape, number: u32) -> Self {
        let call = Call { kernel: shape.kernel, payload: 16 * packs_of::<H>(shape.elements) };
        let output = u64::from(shape.allocation) << 44 | shape.output_offset;
        Channel { ops, watch, number, call, output }
    }

    #[inline(always)]
    fn state(&self, peer: u32) -> *mut ChannelState {
        self.ops.state(peer, self.number)
    }

    /// Reads where the streams stand; a peer may be [`NOBODY`].
    #[inline(always)]
    fn ends(&self, to: u32, from: u32) -> Ends {
        let mut ends = Ends { to, from, ..Ends::NONE };
        // SAFETY: live state; written last by the previous kernel on this channel.
        unsafe {
            if to != NOBODY {
                ends.sent = (&raw const (*self.state(to)).sent).read_volatile();
            }
            if from != NOBODY {
                ends.received = (&raw const (*self.state(from)).received).read_volatile();
            }
        }
        ends
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

    #[inline(always)]
    fn announce(&self, base: u64, line: Line, at: u64, step: u64) {
        let words = self.words(at);
        // SAFETY: this block alone raises its channel's lines, and they grow.
        unsafe { self.ops.announce(base, line, at.wrapping_add(step), Self::digest(at, words), words) };
    }

    /// Lets `ends.from`, whose region is at `base`, write this rank's output. No fence: what used the output before was an earlier
    /// kernel, or copy, of this stream.
    #[inline(always)]
    fn say_go(&self, ends: Ends, base: u64) {
        self.announce(base, Line::Free(self.number), ends.received, GO);
    }

    /// Tells `ends.to`, whose region is at `base`, that its output is written. After the block's sync.
    #[inline(always)]
    fn say_done(&self, ends: Ends, base: u64) {
        arch::fence_system();
        self.announce(base, Line::Ready(self.number), ends.sent, DONE);
    }

    #[inline(always)]
    fn await_go(&self, ends: Ends) -> Fault {
        self.await_word(ends.to, Line::Free(self.number), ends.sent, GO, operation::SEND)
    }

    #[inline(always)]
    fn await_done(&self, ends: Ends) -> Fault {
        self.await_word(ends.from, Line::Ready(self.number), ends.received, DONE, operation::RECEIVE)
    }

    #[inline(always)]
    fn await_word(&self, peer: u32, line: Line, at: u64, step: u64, operation: u32) -> Fault {
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
        if digest == Self::digest(at, self.words(at)) { Fault::NONE } else { self.differs(peer, line, at) }
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
    fn settle(&self, (peer, fault): (u32, Fault)) -> Flow {
        let about = About { peer, channel: self.number, operation: fault.operation };
        self.watch.settle(&Block, self.ops, about, fault)
    }

    /// Leaves the positions for the next call.
    #[inline(always)]
    fn finish(&self, ends: Ends) {
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

    /// Where the symmetric allocation of `peer`'s output is mapped: a load, to be made before it is needed.
    ///
    /// # Safety
    /// The table is that of the launch.
    #[inline(always)]
    unsafe fn base(shape: &Shape, peer: u32) -> u64 {
        // SAFETY: the table has an entry for each rank. Volatile: it stays where it is, before a wait.
        unsafe { (shape.outputs as *const u64).add(peer as usize).read_volatile() }
    }

    /// What this block does of each chunk, worked out here and now: the time before a wait is over is free.
    #[inline(always)]
    fn work<H: Hooks>(&self, shape: &Shape) -> (Team, Share) {
        let (team, share) = work::<H>(shape.elements, shape.share, self.number, shape.channels);
        let [first, packs] = [share.first, share.packs as usize].map(arch::opaque);
        (team, Share { first, packs: packs as u32 })
    }

    /// Stores `work`, this block's of the chunk at `place`, into the output of its peer, whose allocation is at `base`, from element `to` on.
    ///
    /// # Safety
    /// The peer said *go*; its output holds the chunk there; outputs' table and offset are those of the launch.
    #[inline(always)]
    unsafe fn store<H: Hooks>(
        (team, share): (Team, Share),
        shape: &Shape,
        place: &Ctx,
        base: u64,
        to: u64,
        args: &H::Args<'_>,
    ) {
        let size = size_of::<H::Wire>() as u64;
        let start = base + shape.output_offset + to * size;
        let (aligned, lanes) = (start.is_multiple_of(16), Pack::<H::Wire>::LANES);
        let (hooks, at) =
            (span::Module::<H>(args), |ctx: &Ctx| (start + ctx.pos as u64 * size) as *mut H::Wire);
        // Asked once for all packs, but of tiles, which are too long to stand here twice.
        if H::TRANSPOSED || aligned {
            span::produce::<span::By<H>, _, _>(
                team,
                place,
                share.first,
                share.packs,
                &hooks,
                |_, ctx, pack| {
                    if (!H::TRANSPOSED || aligned) && ctx.valid == lanes {
                        // SAFETY: inside the peer's output by the caller's contract, aligned by the test; each pack is one thread's.
                        unsafe { arch::store_16(at(ctx).cast(), pack.words()) };
                    } else {
                        // SAFETY: as above, element by element.
                        unsafe { store_pack(at(ctx), ctx.valid, pack) };
                    }
                },
            );
        } else {
            span::produce::<span::One, _, _>(
                team,
                place,
                share.first,
                share.packs,
                &hooks,
                |_, ctx, pack| {
                    // SAFETY: as above.
                    unsafe { store_pack(at(ctx), ctx.valid, pack) };
                },
            );
        }
    }
}

/// What is said to a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Go,
    Done,
}

/// The steps of an all-to-all, dealt to the lanes of a block.
#[derive(Clone, Copy)]
struct Lanes {
    ring: Ring,
    word: Word,
    /// Of this lane's first step, with where the region is of the peer that is told; most lanes have one step at most.
    first: (Ends, u64),
}

impl Lanes {
    /// Reads where the streams stand, before [`Lanes::open`] and again before [`Lanes::close`]: between, registers are few. What is to
    /// be said later does not wait for these loads then.
    #[inline(always)]
    fn of<O: Direct>(channel: &Channel<'_, O>, word: Word) -> Self {
        let lanes = Lanes { ring: Ring::of(channel.ops), word, first: (Ends::NONE, 0) };
        let step = 1 + Block.lane();
        if step < lanes.ring.world { Lanes { first: lanes.step(channel, step), ..lanes } } else { lanes }
    }

    #[inline(always)]
    fn step<O: Direct>(&self, channel: &Channel<'_, O>, step: u32) -> (Ends, u64) {
        let (to, from) = (self.ring.to(step), self.ring.from(step));
        let told = if self.word == Word::Go { from } else { to };
        (channel.ends(to, from), channel.ops.peer_base(told))
    }

    /// Calls `f` for each of this lane's steps.
    #[inline(always)]
    fn each<O: Direct>(&self, channel: &Channel<'_, O>, mut f: impl FnMut(Ends, u64)) {
        let mut step = 1 + Block.lane();
        if step < self.ring.world {
            f(self.first.0, self.first.1);
            step += Block.lanes();
        }
        while step < self.ring.world {
            let (ends, base) = self.step(channel, step);
            f(ends, base);
            step += Block.lanes();
        }
    }

    /// Says *go* to every peer and waits for theirs.
    #[inline(always)]
    fn open<O: Direct>(self, channel: &Channel<'_, O>) -> Flow {
        self.each(channel, |ends, base| channel.say_go(ends, base));
        channel.settle(self.wait(channel, |ends| (ends.to, channel.await_go(ends))))
    }

    /// Says *done* to every peer and waits for theirs; then the next call may begin.
    #[inline(always)]
    fn close<O: Direct>(self, channel: &Channel<'_, O>) -> Flow {
        self.each(channel, |ends, base| channel.say_done(ends, base));
        channel.settle(self.wait(channel, |ends| (ends.from, channel.await_done(ends))))?;
        self.each(channel, |ends, _| channel.finish(ends));
        Ok(())
    }

    /// What this lane's waits found: the first fault, with its peer.
    #[inline(always)]
    fn wait<O: Direct>(&self, channel: &Channel<'_, O>, f: impl Fn(Ends) -> (u32, Fault)) -> (u32, Fault) {
        let mut found = (0, Fault::NONE);
        self.each(channel, |ends, _| {
            if found.1.kind == 0 {
                found = f(ends);
            }
        });
        found
    }
}

/// [`super::all_to_all`] straight into symmetric outputs. Grid: `channels` blocks (none in a world of one rank), then `diagonal`.
///
/// # Safety
/// As for [`super::sendrecv`]; the hooks' `consume` stores to the output and does nothing else; `shape.outputs` and
/// `shape.output_offset` are those of the output.
#[inline(always)]
pub unsafe fn all_to_all_direct<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape, ring) = (&params.ops, &params.shape, Ring::of(&params.ops));
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin_all(&Block, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let blocks = if ring.world == 1 { 0 } else { shape.channels };
    let at = |peer: u32, channel| place(ops, grid, shape, peer, channel, u64::from(peer) * shape.elements);
    if grid.block >= blocks {
        return own_share::<O, H>(ops, &watch, shape, &at(ring.rank, 0), grid.block - blocks, &args);
    }
    let channel = Channel::of::<H>(ops, &watch, shape, grid.block);
    // SAFETY: the launch's table.
    let base = |step| unsafe { Channel::<O>::base(shape, ring.to(step)) };
    let (first, work) = (base(1), channel.work::<H>(shape));
    Lanes::of(&channel, Word::Go).open(&channel)?;
    for step in 1..ring.world {
        let (peer, to) = (ring.to(step), u64::from(ring.rank) * shape.elements);
        let base = if step == 1 { first } else { base(step) };
        // SAFETY: every peer said go, with this call's size and place.
        unsafe { Channel::<O>::store::<H>(work, shape, &at(peer, grid.block), base, to, &args) };
    }
    let lanes = Lanes::of(&channel, Word::Done);
    Block.sync();
    watch.check_panic(ops)?;
    lanes.close(&channel)
}

/// What stands before (`shape.phase` 0) and behind (1) the copy engine's part of an all-to-all: *go* and *done* with every peer.
/// Grid: one block.
///
/// # Safety
/// As for [`super::sendrecv`]; between the two launches the stream copies every chunk into its peer's output.
#[inline(always)]
pub unsafe fn all_to_all_copy<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let watch = unsafe { Watch::begin_all(&Block, params.control, ops.rank(), grid.block) };
    let channel = Channel::of::<H>(ops, &watch, shape, 0);
    if shape.phase == 0 {
        return Lanes::of(&channel, Word::Go).open(&channel);
    }
    watch.enter(&Block)?;
    Lanes::of(&channel, Word::Done).close(&channel)
}

/// [`super::sendrecv`] straight into the symmetric output of the peer. Grid: `channels` blocks.
///
/// # Safety
/// As for [`all_to_all_direct`].
#[inline(always)]
pub unsafe fn sendrecv_direct<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin_all(&Block, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let channel = Channel::of::<H>(ops, &watch, shape, grid.block);
    let leads = Block.leads();
    let ends = channel.ends(shape.send_peer, shape.recv_peer);
    // SAFETY: the launch's table.
    let base = if ends.to == NOBODY { 0 } else { unsafe { Channel::<O>::base(shape, ends.to) } };
    let work = channel.work::<H>(shape);
    if ends.from != NOBODY && leads {
        channel.say_go(ends, ops.peer_base(ends.from));
    }
    if ends.to != NOBODY {
        let fault = if leads { channel.await_go(ends) } else { Fault::NONE };
        channel.settle((ends.to, fault))?;
        let place = place(ops, grid, shape, ends.to, grid.block, 0);
        // SAFETY: the peer said go, with this call's size and place.
        unsafe { Channel::<O>::store::<H>(work, shape, &place, base, 0, &args) };
        let told = ops.peer_base(ends.to);
        Block.sync();
        watch.check_panic(ops)?;
        if leads {
            channel.say_done(ends, told);
        }
    }
    if ends.from != NOBODY {
        let fault = if leads { channel.await_done(ends) } else { Fault::NONE };
        channel.settle((ends.from, fault))?;
    }
    if leads {
        channel.finish(ends);
    }
    Ok(())
}

/// What stands before (`shape.phase` 0) and behind (1) the copy engine's part of a [`super::sendrecv`] with both peers. Grid: one block.
///
/// # Safety
/// As for [`all_to_all_copy`].
#[inline(always)]
pub unsafe fn sendrecv_copy<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let watch = unsafe { Watch::begin_all(&Block, params.control, ops.rank(), grid.block) };
    let channel = Channel::of::<H>(ops, &watch, shape, 0);
    let leads = Block.leads();
    let ends = channel.ends(shape.send_peer, shape.recv_peer);
    if shape.phase == 0 {
        let mut fault = Fault::NONE;
        if leads {
            channel.say_go(ends, ops.peer_base(ends.from));
            fault = channel.await_go(ends);
        }
        return channel.settle((ends.to, fault));
    }
    watch.enter(&Block)?;
    let mut fault = Fault::NONE;
    if leads {
        channel.say_done(ends, ops.peer_base(ends.to));
        fault = channel.await_done(ends);
    }
    channel.settle((ends.from, fault))?;
    if leads {
        channel.finish(ends);
    }
    Ok(())
}
