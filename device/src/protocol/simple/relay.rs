//! Two steps in one kernel: each rank takes a part of a chunk from whoever contributes to it, folds it if there are several, and passes the result on.
//!
//! In an all-reduce a rank sends each peer one part of its chunk and gets one part of the result from each, `2 (n - 1) / n` chunks in all, where it would send
//! its whole chunk to `n - 1` peers otherwise; and it folds one part of `n`. The root of a broadcast sends one chunk and not `n - 1`, the root of a reduce
//! receives as much; nobody else sends or receives more. For that the bytes take two flights.
//!
//! Blocks are of three kinds, as many of each as channels: those that produce, those that pass on, and those that take what is passed on to
//! this rank; a rank has those for which it has legs ([`First`], [`Second`]). They wait for each other in that direction alone, the first for room at the second
//! and the second at the third, so that nobody waits in a circle as long as all are resident. Where ranks send to the same peers in both steps, the second has
//! channels of its own, behind those of the first.

use super::channel::Call;
use super::fold::Folds;
use super::turns::{self, Ends, Everybody, Pass, Turn, Turns, Work};
use crate::arch;
use crate::ctx::{Consume, Ctx};
use crate::fold::Contributions;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::protocol::{Protocol, Share, Site, arguments, armed, passes_on, times, unit};
use crate::row::RowAt;
use crate::schedule::{Among, Everyone, Leg, Legs, Relays, Schedule, is_home};
use crate::tile::{self, Kept, Sink, Team, Then};
use crate::wait::{Flow, Watch};

/// The protocol, as a type: for schedules of [two steps](Schedule::TWO_STEPS), of several ranks or with a root of more than two, and hooks whose folds can be
/// passed on ([`Hooks::RELAYS`]).
///
/// Grid: `channels` blocks of each kind that the rank has; the transport has as many channels, or of a mutual schedule twice as many.
#[derive(Debug)]
pub struct TwoShot;

// SAFETY: each step is as `Simple`'s; every element of the chunk is in one part, which all get who take the chunk.
unsafe impl<O: Ops> Protocol<O> for TwoShot {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        const { passes_on::<S, H>() };
        // SAFETY: the caller's contract.
        unsafe { Steps::exchange::<H>(grid, params, Everyone) }
    }
}

/// What the blocks of a channel have in common.
pub(super) struct Steps<'k, O, S: Schedule, A: Among> {
    share: Share,
    /// The longest part: the stream of every one is as long.
    longest: Share,
    relays: Relays,
    pub(super) among: A,
    pub(super) first: Ends<'k, O, A::First<S>>,
    pub(super) second: Ends<'k, O, A::Second<S>>,
}

impl<O: Ops, S: Schedule, A: Among> Steps<'_, O, S, A> {
    /// [`Protocol::exchange`], of which the steps here are among the ranks that `among` names.
    ///
    /// # Safety
    /// As for [`Protocol::exchange`]; schedule and hooks are [of two steps](passes_on).
    #[inline(always)]
    pub(super) unsafe fn exchange<H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>, among: A) -> Flow {
        let shape = &params.shape;
        // SAFETY: the caller's contract.
        let watch = unsafe { armed::<O, S, H>(grid, params) }.led(&Block);
        // SAFETY: the caller's contract.
        let args = unsafe { arguments::<H>(&params.raw) };
        let args = args.now(watch.behind());
        let site = Site::of(grid, params);
        let (first, second) = among.steps(params.schedule);
        let (mut channel, mut kind) = (grid.block, 0);
        while channel >= shape.channels {
            (channel, kind) = (channel - shape.channels, kind + 1);
        }
        let kind = match S::MUTUAL {
            true => kind,
            false if first.sends(site.me) == 0 => kind + 1,
            false if const { A::ROOTED } => kind,
            false if first.receives(site.me) == 0 => 2 * kind,
            false => kind,
        };
        let share = Share::of::<H>(shape.elements, shape.share, channel);
        if const { times::<H>() == 0 || A::ACROSS && S::FOLDS && H::PARTIALS == 0 } || share.packs == 0 {
            return Ok(());
        }
        let relays = among.relays(&params.schedule, site.me);
        let steps = Steps::of::<H>(&site, among, relays, (&first, &second), &watch, (channel, share));
        // SAFETY: each block has its own channel ends; all its threads call.
        unsafe {
            match kind {
                0 => steps.produce::<H>(args),
                1 => steps.pass_on::<H>(args),
                _ => steps.take::<H>(args),
            }
        }
    }
}

impl<'k, O: Ops, S: Schedule, A: Among> Steps<'k, O, S, A> {
    #[inline(always)]
    fn of<H: Hooks>(
        site: &'k Site<'k, O>,
        among: A,
        relays: Relays,
        (first, second): (&'k A::First<S>, &'k A::Second<S>),
        watch: &'k Watch,
        (channel, share): (u32, Share),
    ) -> Self {
        let longest = share.longest(relays.parts(), const { unit::<H>() });
        let call = longest.call(site.shape);
        let passed = Call { payload: call.payload * times::<H>() as u64, ..call };
        let behind = channel + if S::MUTUAL || A::ROOTED { site.shape.channels } else { 0 };
        // What comes from another domain was passed on already.
        let passed_on = A::ROOTED && !S::FOLDS && !is_home(site.me, first.root(), among.size(site.me.world));
        Steps {
            share,
            longest,
            relays,
            among,
            first: Ends {
                site,
                schedule: first,
                watch,
                channel: if passed_on { behind } else { channel },
                call,
                begins: None,
            },
            second: Ends { site, schedule: second, watch, channel: behind, call: passed, begins: None },
        }
    }

    /// Turns of the first step, with so many legs.
    #[inline(always)]
    pub(super) fn turns(&self, legs: u32) -> Turns {
        Turns::of(self.first.site, self.longest, legs, false)
    }

    /// Turns of the second: as many, in which there is as much more as what was folded takes more room.
    #[inline(always)]
    pub(super) fn turns_of_second<H: Hooks>(&self, legs: u32) -> Turns {
        self.turns(legs).times(times::<H>() as u32)
    }

    /// Where hooks are.
    #[inline(always)]
    pub(super) fn place(&self) -> Ctx {
        self.first.site.only(self.first.schedule, self.first.channel)
    }

    /// Part `number` of the share.
    #[inline(always)]
    fn part(&self, number: u32) -> Share {
        self.share.part(self.longest.packs, number)
    }

    /// The part that this rank passes on.
    #[inline(always)]
    pub(super) fn own_part(&self) -> Share {
        self.part(self.relays.part(self.among.member(self.first.site.me).rank))
    }

    /// Sends each peer what this rank contributes to its part.
    ///
    /// # Safety
    /// This block alone works the sending ends of the first step's channel; all its threads call.
    #[inline(always)]
    unsafe fn produce<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let legs = self.first.schedule.sends(self.first.site.me);
        let (turns, ends) = (self.turns(legs).one_by_one(), self.first.turned());
        // SAFETY: the caller's contract.
        unsafe { turns::send(turns, &ends, &Produces::<O, S, A, H> { steps: self, ends, turns, args }) }
    }

    /// Folds this rank's part, or takes it from the root, and passes it on to every peer that takes it.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the first step's channel and the sending ends of the second's; all its threads call.
    #[inline(always)]
    unsafe fn pass_on<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        // SAFETY: the caller's contract.
        unsafe {
            match const { (A::ROOTED, A::ACROSS, S::FOLDS) } {
                (true, _, true) => self.gather_home::<H>(args),
                (true, _, false) if self.first.schedule.receives(self.first.site.me) == 0 => {
                    self.spread::<H>(args)
                }
                (false, true, _) => self.cross::<H>(args),
                (false, false, true) => {
                    let turns = self.relayed::<H>();
                    let (from, to) = (&self.first, &self.second);
                    let share = self.own_part();
                    let folds = Folds { ends: from, turns: turns[0], share, kept: Kept::HERE, args };
                    let work = PassesOn::<O, S, A, H> { steps: self, to: turns[1], folds };
                    turns::relay(turns, (from, to), &work)
                }
                (_, _, false) => {
                    let (turns, part) = (self.relayed::<H>(), self.own_part());
                    let work = Forwards::<O, S, A, H> { steps: self, turns, part, args };
                    turns::relay(turns, (&self.first, &self.second), &work)
                }
            }
        }
    }

    /// Turns of what this rank passes on: as it arrives, and as it is sent.
    #[inline(always)]
    fn relayed<H: Hooks>(&self) -> [Turns; 2] {
        let (from, to, me) = (self.first.schedule, self.second.schedule, self.first.site.me);
        [self.turns(from.receives(me)), self.turns_of_second::<H>(to.sends(me))]
    }

    /// Takes what every peer passes on.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the second step's channel; all its threads call.
    #[inline(always)]
    unsafe fn take<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let legs = self.second.schedule.receives(self.second.site.me);
        let turns = self.turns_of_second::<H>(legs).one_by_one();
        // SAFETY: the caller's contract.
        unsafe { turns::receive(turns, &self.second, &Takes::<O, S, A, H> { steps: self, turns, args }) }
    }
}

/// Of the `count` packs from `first` on those that a part of `packs` has.
#[inline(always)]
pub(in crate::protocol) fn within(packs: u32, first: usize, count: u32) -> u32 {
    count.min(packs.saturating_sub(first as u32))
}

struct Produces<'k, 'a, O, S: Schedule, A: Among, H: Unpack> {
    steps: &'k Steps<'k, O, S, A>,
    ends: Ends<'k, O, A::First<S>>,
    turns: Turns,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, A: Among, H: Unpack> Work for Produces<'_, '_, O, S, A, H> {
    const COLS: usize = H::COLS;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Produces { steps, ends, turns, args } = self;
        let (first, count, payload) = turns.packs(turn);
        let part = steps.part(ends.sent(turn.leg).chunk);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let ring = unsafe { ends.to(turn.leg) }.ring(payload);
        tile::produce::<tile::By<H>, H::Wire, _>(
            team,
            &steps.place(),
            part.first + first,
            within(part.packs, first, count),
            &tile::Module::<H>(args),
            |s, ctx, pack| {
                // SAFETY: the ring's place of pack `s`, reserved for this block; each pack is one thread's.
                unsafe { arch::store_16(ring.pack(s), pack.words()) };
                // Nobody passes it on to the root.
                if const { !S::FOLDS } {
                    H::consume(&Kept::HERE.at::<H>(ctx.at(ctx.pos, ctx.valid, ctx.whole)), args, pack);
                }
            },
        );
    }
}

struct PassesOn<'k, 'a, O, S: Schedule, A: Among, H: Unpack> {
    steps: &'k Steps<'k, O, S, A>,
    to: Turns,
    folds: Folds<'k, 'a, O, A::First<S>, H, true>,
}

impl<O: Ops, S: Schedule, A: Among, H: Unpack> Pass for PassesOn<'_, '_, O, S, A, H> {
    const COLS: usize = H::COLS;
    #[inline(always)]
    fn turn(&self, from: Turn, to: Turn, team: Team) {
        let PassesOn { steps, folds, .. } = self;
        let (first, count, payload) = folds.turns.packs(from);
        let (_, _, passed) = self.to.packs(to);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { steps.second.everybody(passed) };
        let packs = (first, within(folds.share.packs, first, count), payload);
        folds.each(packs, team, &Passed::<O, S, A>(peers));
    }
}

/// What was folded in a turn is stored for every peer that takes it. Where all ranks do, so does this one.
struct Passed<'k, O, S: Schedule, A: Among>(Everybody<'k, O, A::Second<S>>);

impl<O: Ops, S: Schedule, A: Among, H: Hooks> Then<H> for Passed<'_, O, S, A> {
    #[inline(always)]
    fn fold(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, ranks: u32, of: &impl Contributions<H::Wire>) {
        H::relay(ranks, of, &|number: usize, pack: Pack<H::Folded>| {
            // SAFETY: each pack is one thread's.
            unsafe { self.0.store(s * H::RELAYS as u32 + number as u32, pack.words()) };
            if const { S::MUTUAL } {
                take::<H>(ctx, args, number, pack);
            }
        });
    }

    #[inline(always)]
    fn fold_row<const RANKS: usize>(
        &self,
        s: u32,
        at: RowAt,
        args: &H::Args<'_>,
        ranks: u32,
        own: Option<(u32, RowAt)>,
        of: &impl Fn(u32, u32) -> Pack<H::Wire>,
    ) {
        H::relay_row::<RANKS>(at, args, (ranks, S::MUTUAL), own, of, &|number, pack: Pack<H::Folded>| {
            // SAFETY: each pack is one thread's.
            unsafe { self.0.store(s * H::RELAYS as u32 + number, pack.words()) };
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

/// What the root sends is stored for every peer, and taken.
struct Forwards<'k, 'a, O, S: Schedule, A: Among, H: Unpack> {
    steps: &'k Steps<'k, O, S, A>,
    turns: [Turns; 2],
    part: Share,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, A: Among, H: Unpack> Pass for Forwards<'_, '_, O, S, A, H> {
    #[inline(always)]
    fn turn(&self, from: Turn, to: Turn, team: Team) {
        let Forwards { steps, turns, part, args } = self;
        let (first, count, payload) = turns[0].packs(from);
        let (_, _, passed) = turns[1].packs(to);
        let (count, first) = (within(part.packs, first, count), part.first + first);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { steps.second.everybody(passed) };
        let ends = &steps.first;
        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
        let input = unsafe { ends.from(ends.schedule.from(ends.site.me, 1).peer) };
        let forward = Forward::<O, _, H> { peers, first, args };
        tile::consume::<tile::UpToTwo<H>, H::Wire, _>(team, &steps.place(), first, count, &forward, |s| {
            input.at(payload + 16 * u64::from(s))
        });
    }
}

/// What takes packs that are stored for every peer as well.
pub(super) struct Forward<'k, 'a, O, S, H: Hooks> {
    pub peers: Everybody<'k, O, S>,
    /// The turn's first pack in the chunk.
    pub first: usize,
    pub args: &'k H::Args<'a>,
}

impl<O: Ops, S: Legs, H: Hooks> Sink<H::Wire> for Forward<'_, '_, O, S, H> {
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<H::Wire>) {
        let s = ctx.pos / Pack::<H::Wire>::LANES - self.first;
        // SAFETY: each pack is one thread's.
        unsafe { self.peers.store(s as u32, pack.words()) };
        H::consume(ctx, self.args, pack);
    }
}

struct Takes<'k, 'a, O, S: Schedule, A: Among, H: Unpack> {
    steps: &'k Steps<'k, O, S, A>,
    turns: Turns,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, A: Among, H: Unpack> Work for Takes<'_, '_, O, S, A, H> {
    const COLS: usize = H::COLS;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Takes { steps, turns, args } = self;
        let (first, count, payload) = turns.packs(turn);
        let ends = &steps.second;
        let Leg { peer, chunk, .. } = ends.schedule.from(ends.site.me, turn.leg);
        let (part, place) = (steps.part(chunk), steps.place());
        let count = within(part.packs * times::<H>() as u32, first, count);
        let first = part.first * times::<H>() + first;
        let count = folded_for::<H>(&place, first, count);
        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
        let input = unsafe { ends.from(peer) };
        let from = |s| input.at(payload + 16 * u64::from(s));
        if const { S::FOLDS } {
            tile::consume::<tile::By<H>, H::Folded, _>(team, &place, first, count, &Folded::<H>(args), from);
        } else {
            let module = tile::Module::<H>(args);
            tile::consume::<tile::By<H>, H::Wire, _>(team, &place, first, count, &module, from);
        }
    }
}

/// Of `count` packs that were folded, from pack `first` of the chunk on, those that something was folded for: behind the chunk's end there may be others. Rows are whole.
#[inline(always)]
pub(in crate::protocol) fn folded_for<H: Hooks>(place: &Ctx, first: usize, count: u32) -> u32 {
    if const { H::COLS > 0 } {
        return count;
    }
    let all = place.chunk_len.div_ceil(Pack::<H::Folded>::LANES);
    (count as usize).min(all.saturating_sub(first)) as u32
}

/// What takes packs that were folded.
pub(in crate::protocol) struct Folded<'k, 'a, H: Hooks>(pub &'k H::Args<'a>);

impl<H: Hooks> Sink<H::Folded> for Folded<'_, '_, H> {
    const COLS: usize = H::COLS;
    const ROW_PACKS: usize = H::ROW_PACKS * H::RELAYS;
    #[inline(always)]
    fn take_row(&self, at: RowAt, get: &impl Fn(u32) -> Pack<H::Folded>) {
        H::take_row(at, self.0, get);
    }
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<H::Folded>) {
        H::take(ctx, self.0, pack);
    }
}
