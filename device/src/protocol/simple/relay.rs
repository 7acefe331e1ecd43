//! Two steps in one kernel: each rank folds a part of what all contribute, and passes the result on to all of them.
//!
//! A rank sends each peer one part of its chunk and gets one part of the result from each, `2 (n - 1) / n` chunks in all, where it would send its whole
//! chunk to `n - 1` peers otherwise; and it folds one part of `n`. For that the bytes take two flights.
//!
//! Blocks are of three kinds, as many of each as channels: those that produce, those that fold and pass on, and those that take what is passed on to
//! this rank. They wait for each other in that direction alone, the first for room at the second and the second at the third, so that nobody waits in a
//! circle as long as all are resident. The second step has channels of its own, behind those of the first.

use super::channel::Call;
use super::fold::{Folds, Then};
use super::turns::{self, Ends, Everybody, Pass, Turn, Turns, Work};
use crate::arch;
use crate::ctx::{Consume, Ctx};
use crate::fold::Contributions;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::protocol::{Protocol, Share, Site, passes_on};
use crate::schedule::Schedule;
use crate::tile::{self, Sink, Team};
use crate::wait::{Flow, Watch};

/// The protocol, as a type: for schedules that produce once and fold, of several ranks, and hooks whose folds can be passed on
/// ([`Hooks::RELAYS`]).
///
/// Grid: `channels` blocks of each kind; the transport has twice as many channels.
#[derive(Debug)]
pub struct TwoShot;

// SAFETY: each step is as `Simple`'s; every element of the chunk is in one rank's part, which all get.
unsafe impl<O: Ops> Protocol<O> for TwoShot {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        const { passes_on::<S, H>() };
        let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
        // SAFETY: the caller's contract.
        let watch = unsafe { Watch::begin(&Block, params.control, ops.rank(), grid.block) };
        // SAFETY: the caller's contract.
        let args = unsafe { H::unpack(&params.raw) };
        let site = Site::of(grid, params);
        let (mut channel, mut kind) = (grid.block, 0);
        while channel >= shape.channels {
            (channel, kind) = (channel - shape.channels, kind + 1);
        }
        let share = Share::of::<H>(shape.elements, shape.share, channel);
        if H::RELAYS == 0 || share.packs == 0 {
            return Ok(());
        }
        let steps = Steps::of::<H>(&site, schedule, &watch, channel, share);
        // SAFETY: each block has its own channel ends; all its threads call.
        unsafe {
            match kind {
                0 => steps.produce::<H>(&args),
                1 => steps.pass_on::<H>(&args),
                _ => steps.take::<H>(&args),
            }
        }
    }
}

/// What the blocks of a channel have in common.
struct Steps<'k, O, S> {
    share: Share,
    /// Turns of both steps, of all peers; of the second there are as many, in which there is as much more as what was folded takes more room.
    turns: [Turns; 2],
    ends: [Ends<'k, O, S>; 2],
}

impl<'k, O: Ops, S: Schedule> Steps<'k, O, S> {
    #[inline(always)]
    fn of<H: Hooks>(
        site: &'k Site<'k, O>,
        schedule: &'k S,
        watch: &'k Watch,
        channel: u32,
        share: Share,
    ) -> Self {
        let longest = share.longest(site.me.world);
        let turns = Turns::of(site, longest, schedule.sends(site.me), false);
        let call = longest.call(site.shape);
        let passed = Call { payload: call.payload * H::RELAYS as u64, ..call };
        let ends = |channel, call| Ends { site, schedule, watch, channel, call };
        Steps {
            share,
            turns: [turns, turns.times(H::RELAYS as u32)],
            ends: [ends(channel, call), ends(site.shape.channels + channel, passed)],
        }
    }

    /// Where hooks are, wherever the other end of the wire is.
    #[inline(always)]
    fn place(&self) -> Ctx {
        let [Ends { site, schedule, channel, .. }, _] = self.ends;
        site.own(schedule, channel)
    }

    /// The part of the share that `rank` folds.
    #[inline(always)]
    fn part(&self, rank: u32) -> Share {
        self.share.part(self.turns[0].packs, rank)
    }

    /// Sends each peer what this rank contributes to its part.
    ///
    /// # Safety
    /// This block alone works the sending ends of the first step's channel; all its threads call.
    #[inline(always)]
    unsafe fn produce<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let turns = self.turns[0].one_by_one();
        // SAFETY: the caller's contract.
        unsafe { turns::send(turns, &self.ends[0], &Produces::<O, S, H> { steps: self, turns, args }) }
    }

    /// Folds this rank's part, takes it, and passes it on to every peer.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the first step's channel and the sending ends of the second's; all its threads call.
    #[inline(always)]
    unsafe fn pass_on<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let [from, to] = &self.ends;
        let (me, kept) = (from.site.me.rank, from.site.kept(from.schedule));
        let folds = Folds::<O, S, H> { ends: from, turns: self.turns[0], share: self.part(me), kept, args };
        // SAFETY: the caller's contract.
        unsafe { turns::relay(self.turns, [from, to], &PassesOn { steps: self, folds }) }
    }

    /// Takes what every peer has folded.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the second step's channel; all its threads call.
    #[inline(always)]
    unsafe fn take<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let turns = self.turns[1].one_by_one();
        // SAFETY: the caller's contract.
        unsafe { turns::receive(turns, &self.ends[1], &Takes::<O, S, H> { steps: self, turns, args }) }
    }
}

/// Of the `count` packs from `first` on those that a part of `packs` has.
#[inline(always)]
pub(in crate::protocol) fn within(packs: u32, first: usize, count: u32) -> u32 {
    count.min(packs.saturating_sub(first as u32))
}

struct Produces<'k, 'a, O, S, H: Unpack> {
    steps: &'k Steps<'k, O, S>,
    turns: Turns,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Produces<'_, '_, O, S, H> {
    const COLS: usize = 0;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Produces { steps, turns, args } = self;
        let (first, count, payload) = turns.packs(turn);
        let ends = &steps.ends[0];
        let part = steps.part(ends.schedule.to(ends.site.me, turn.leg).peer);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let ring = unsafe { ends.to(turn.leg) }.ring(payload);
        tile::produce::<tile::By<H>, H::Wire, _>(
            team,
            &steps.place(),
            part.first + first,
            within(part.packs, first, count),
            &tile::Module::<H>(args),
            |s, _, pack| {
                // SAFETY: the ring's place of pack `s`, reserved for this block; each pack is one thread's.
                unsafe { arch::store_16(ring.pack(s), pack.words()) };
            },
        );
    }
}

struct PassesOn<'k, 'a, O, S, H: Unpack> {
    steps: &'k Steps<'k, O, S>,
    folds: Folds<'k, 'a, O, S, H>,
}

impl<O: Ops, S: Schedule, H: Unpack> Pass for PassesOn<'_, '_, O, S, H> {
    #[inline(always)]
    fn turn(&self, from: Turn, to: Turn, team: Team) {
        let PassesOn { steps, folds } = self;
        let (first, count, payload) = steps.turns[0].packs(from);
        let (_, _, passed) = steps.turns[1].packs(to);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { steps.ends[1].everybody(passed) };
        let packs = (first, within(folds.share.packs, first, count), payload);
        folds.each(packs, team, &Passed(peers));
    }
}

/// What was folded in a turn is taken here, and stored for every peer.
struct Passed<'k, O, S>(Everybody<'k, O, S>);

impl<O: Ops, S: Schedule, H: Hooks> Then<H> for Passed<'_, O, S> {
    #[inline(always)]
    fn fold(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, ranks: u32, of: &impl Contributions<H::Wire>) {
        H::relay(ranks, of, &|number: usize, pack: Pack<H::Folded>| {
            // SAFETY: each pack is one thread's.
            unsafe { self.0.store(s * H::RELAYS as u32 + number as u32, pack.words()) };
            take::<H>(ctx, args, number, pack);
        });
    }
}

/// Takes pack `number` of what was folded for the pack at `ctx`.
#[inline(always)]
pub(in crate::protocol) fn take<H: Hooks>(
    ctx: &Consume,
    args: &H::Args<'_>,
    number: usize,
    pack: Pack<H::Folded>,
) {
    let (lanes, before) = (Pack::<H::Folded>::LANES, number * Pack::<H::Folded>::LANES);
    if before < ctx.valid {
        let valid = lanes.min(ctx.valid - before);
        H::take(&Consume(ctx.at(ctx.pos + before, valid, ctx.whole)), args, pack);
    }
}

struct Takes<'k, 'a, O, S, H: Unpack> {
    steps: &'k Steps<'k, O, S>,
    turns: Turns,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Takes<'_, '_, O, S, H> {
    const COLS: usize = 0;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Takes { steps, turns, args } = self;
        let (first, count, payload) = turns.packs(turn);
        let ends = &steps.ends[1];
        let peer = ends.schedule.from(ends.site.me, turn.leg).peer;
        let (part, place) = (steps.part(peer), steps.place());
        let count = within(part.packs * H::RELAYS as u32, first, count);
        let first = part.first * H::RELAYS + first;
        // Behind the chunk's end there may be packs that nothing was folded for.
        let all = place.chunk_len.div_ceil(Pack::<H::Folded>::LANES);
        let count = (count as usize).min(all.saturating_sub(first)) as u32;
        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
        let input = unsafe { ends.from(peer) };
        tile::consume::<tile::By<H>, H::Folded, _>(team, &place, first, count, &Folded::<H>(args), |s| {
            input.at(payload + 16 * u64::from(s))
        });
    }
}

/// What takes packs that were folded.
pub(in crate::protocol) struct Folded<'k, 'a, H: Hooks>(pub &'k H::Args<'a>);

impl<H: Hooks> Sink<H::Folded> for Folded<'_, '_, H> {
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<H::Folded>) {
        H::take(ctx, self.0, pack);
    }
}
