//! What is folded as it is received.

use super::channel::{Receiving, Ring};
use super::turns::{self, Ends, Turn, Turns, Work};
use crate::arch;
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::fold::{AHEAD, Contributions};
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::pack::{Pack, unroll};
use crate::protocol::{Share, Site};
use crate::row::walk;
use crate::schedule::{Legs, Member, Schedule};
use crate::tile::{self, Kept, Team, Then, WARP};
use crate::wait::{Flow, Watch};

/// Sends `share`, a block's of each leg's chunk, to every peer on the block's channel.
///
/// # Safety
/// This block alone works the sending ends of the channel of its index; all its threads call.
#[inline(always)]
pub(super) unsafe fn send<O: Ops, S: Schedule, H: Unpack>(
    site: &Site<'_, O>,
    schedule: &S,
    watch: &Watch,
    share: Share,
    args: &H::Args<'_>,
) -> Flow {
    let sends = schedule.sends(site.me);
    if share.packs == 0 || sends == 0 {
        return Ok(());
    }
    let (channel, call) = (site.grid.block, share.call(site.shape));
    let ends = Ends { site, schedule, watch, channel, call, begins: None }.turned();
    let turns = Turns::of(site, share, sends, true);
    // SAFETY: the caller's contract.
    unsafe { turns::send(turns, &ends, &Sends::<O, S, H> { ends: &ends, turns, share, args }) }
}

struct Sends<'k, 'a, O, S, H: Unpack> {
    ends: &'k Ends<'k, O, S>,
    turns: Turns,
    share: Share,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Sends<'_, '_, O, S, H> {
    const COLS: usize = H::COLS;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Sends { ends, turns, share, args } = self;
        let (first, count, payload) = turns.packs(turn);
        let leg = ends.sent(turn.leg);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let ring = unsafe { ends.to(turn.leg) }.ring(payload);
        let place = ends.site.at(leg, ends.channel);
        // SAFETY: the turn's packs have their places there.
        unsafe { produce_into::<H>(team, &place, (share.first + first, count), args, ring) };
    }
}

/// Produces packs of the chunk at `place` into a ring: `count` from number `first` on.
///
/// # Safety
/// The ring's places of so many packs are reserved for this block.
#[inline(always)]
pub(super) unsafe fn produce_into<H: Hooks>(
    team: Team,
    place: &Ctx,
    (first, count): (usize, u32),
    args: &H::Args<'_>,
    ring: Ring,
) {
    tile::produce::<tile::By<H>, H::Wire, _>(
        team,
        place,
        first,
        count,
        &tile::Module::<H>(args),
        |s, _, pack| {
            // SAFETY: the caller's contract; each pack is one thread's.
            unsafe { arch::store_16(ring.pack(s), pack.words()) };
        },
    );
}

/// Takes `share`, a block's of each chunk, from every peer, and folds it with this rank's own.
///
/// # Safety
/// This block alone works the receiving ends of the channel; all its threads call. The schedule is [`Schedule::FOLDS`], and this rank has a self
/// copy.
#[inline(always)]
pub(super) unsafe fn receive<O: Ops, S: Schedule, H: Unpack>(
    site: &Site<'_, O>,
    schedule: &S,
    watch: &Watch,
    (channel, share): (u32, Share),
    args: &H::Args<'_>,
) -> Flow {
    watch.enter(&Block)?;
    if share.packs == 0 {
        return Ok(());
    }
    let ends = Ends { site, schedule, watch, channel, call: share.call(site.shape), begins: None };
    let turns = Turns::of(site, share, schedule.receives(site.me), false);
    let kept = site.kept(schedule);
    // SAFETY: the caller's contract.
    unsafe {
        turns::receive(turns, &ends, &Folds::<O, S, H, false> { ends: &ends, turns, share, kept, args })
    }
}

/// What all ranks contribute to a share, or with `PART` to a part of one of a chunk that is each rank's only one.
pub(super) struct Folds<'k, 'a, O, S, H: Unpack, const PART: bool> {
    pub ends: &'k Ends<'k, O, S>,
    pub turns: Turns,
    pub share: Share,
    pub kept: Kept,
    pub args: &'k H::Args<'a>,
}

/// This rank alone takes them.
pub(in crate::protocol) struct Take;

impl<H: Hooks> Then<H> for Take {
    #[inline(always)]
    fn fold(&self, _s: u32, ctx: &Consume, args: &H::Args<'_>, ranks: u32, of: &impl Contributions<H::Wire>) {
        H::fold(ctx, args, ranks, of);
    }
}

/// Packs that every rank contributes.
pub(in crate::protocol) struct Packs<'p> {
    pub place: &'p Ctx,
    /// The first one's number in the chunk, and where it is in each stream.
    pub first: usize,
    pub payload: u64,
    pub count: u32,
    /// Before it, packs are whole.
    pub whole: u32,
}

/// Folds those packs from `s` on that are this thread's, of which `load` gives another rank's.
#[inline(always)]
pub(in crate::protocol) fn fold_packs<H: Hooks>(
    (packs, mut s): (&Packs<'_>, u32),
    team: Team,
    kept: Kept,
    me: Member,
    args: &H::Args<'_>,
    then: &impl Then<H>,
    load: impl Fn(u32, u32) -> Pack<H::Wire>,
) {
    let (lanes, first) = (Pack::<H::Wire>::LANES, packs.first);
    while s < packs.count {
        let ctx = || tile::any(packs.place, lanes, first + s as usize, s < packs.whole);
        let own = H::produce(&Produce(ctx()), args);
        then.fold(s, &kept.at::<H>(ctx()), args, me.world, &|first, some| {
            let mut packs = [own; AHEAD];
            unroll!(AHEAD = 4, |K| {
                let rank = first + K as u32;
                if (K as u32) < some && rank != me.rank {
                    packs[K] = load(rank, s);
                }
            });
            Some(packs)
        });
        s += team.lanes;
    }
}

impl<'k, O: Ops, S: Legs, H: Unpack, const PART: bool> Folds<'k, '_, O, S, H, PART> {
    /// This rank's number among those that contribute, and how many they are.
    #[inline(always)]
    fn me(&self) -> Member {
        self.ends.schedule.member(self.ends.site.me)
    }

    /// The end of the channel from the contributor of that number.
    ///
    /// # Safety
    /// As for [`Ends::from`].
    #[inline(always)]
    unsafe fn from(&self, number: u32) -> Receiving<'k, O> {
        // SAFETY: the caller's contract.
        unsafe { self.ends.from(self.ends.schedule.rank(self.ends.site.me, number)) }
    }

    /// Where the others' packs lie, in the order of their ranks, as far as constants name them.
    #[inline(always)]
    fn others<const N: usize>(&self, payload: u64) -> [Ring; AHEAD] {
        let me = self.me();
        let mut rings = [Ring::NONE; AHEAD];
        unroll!(AHEAD = 4, |R| if R + 1 < N {
            let rank = R as u32 + u32::from(R as u32 >= me.rank);
            // SAFETY: the turn's packs have arrived, and are not given back before it is over.
            rings[R] = unsafe { self.from(rank) }.ring(payload);
        });
        rings
    }

    /// Folds the rows of a turn, of `N` ranks, or if that is 0 of as many as there are.
    #[inline(always)]
    fn rows<const N: usize>(&self, packs: &Packs<'_>, team: Team, then: &impl Then<H>) {
        let Folds { kept, args, .. } = self;
        let Packs { place, first, payload, count, .. } = *packs;
        let me = self.me();
        let rings = self.others::<N>(payload);
        let ranks = (Some(me.rank), me.world);
        let load = |rank: u32, s: u32| {
            // SAFETY: as for `others`.
            let ring = if N > 0 { rings[rank as usize] } else { unsafe { self.from(rank) }.ring(payload) };
            // SAFETY: as above.
            Pack::from_words(unsafe { arch::load_16_once(ring.pack(s)) })
        };
        walk::fold::<H, N>(team, (place, *kept), (first, count), args, ranks, then, load);
    }

    /// Folds bundles of `P` packs a thread, of `N` contributions each, and says where they end.
    ///
    /// All that they read is loaded before any is folded, and nothing between branches: not on the number of ranks, which is a constant, nor on
    /// which of them is this one, which selects between registers.
    #[inline(always)]
    fn bundles<const N: usize, const P: usize>(
        &self,
        packs: &Packs<'_>,
        team: Team,
        then: &impl Then<H>,
    ) -> u32 {
        let Folds { kept, args, .. } = self;
        let Packs { place, first, payload, count, whole } = packs;
        let (me, lanes, each) = (self.me().rank, Pack::<H::Wire>::LANES, P as u32 * WARP);
        let end = tile::bundled::<P>(team, *count, *whole) / each * each;
        let rings = self.others::<N>(*payload);
        let mut b = team.bundle::<P>();
        while b < end {
            let at = |k: usize| tile::whole(place, lanes, first + b as usize + k * WARP as usize);
            let last = at(P - 1).index();
            let mut own = [Pack::<H::Wire>::ZERO; P];
            let mut others = [[Pack::<H::Wire>::ZERO; AHEAD]; P];
            unroll!(P <= 8, |K| own[P - 1 - K] = H::produce(&Produce(at(P - 1 - K).before(last)), args));
            unroll!(AHEAD = 4, |R| if R + 1 < N {
                unroll!(P <= 8, |K| {
                    // SAFETY: as above.
                    let words = unsafe { arch::load_16_once(rings[R].pack(tile::nth(b, K))) };
                    others[K][R] = Pack::from_words(words);
                });
            });
            unroll!(P <= 8, |K| {
                let (own, others) = (own[P - 1 - K], others[P - 1 - K]);
                let mut all = [own; AHEAD];
                unroll!(AHEAD = 4, |R| if R < N {
                    let (before, behind) = (others[R], others[R.saturating_sub(1)]);
                    let other = if (R as u32) < me { before } else { behind };
                    all[R] = if R as u32 == me { own } else { other };
                });
                let ctx = kept.at::<H>(at(P - 1 - K).before(last));
                then.fold(tile::nth(b, P - 1 - K), &ctx, args, N as u32, &Here(all));
            });
            b += team.stride::<P>();
        }
        end
    }

    /// As [`Folds::bundles`], of as many packs as there are registers for.
    #[inline(always)]
    fn few<const N: usize>(&self, packs: &Packs<'_>, team: Team, then: &impl Then<H>) -> u32 {
        if const { N == 2 && H::UNROLL >= 4 && H::Wire::SIZE > 1 } {
            self.bundles::<N, 8>(packs, team, then)
        } else {
            self.bundles::<N, 4>(packs, team, then)
        }
    }

    /// Folds `count` packs of the share from its pack `first` on, which begin at `payload` of each stream.
    #[inline(always)]
    pub(super) fn each(&self, packs: (usize, u32, u64), team: Team, then: &impl Then<H>) {
        let Folds { ends, .. } = self;
        let place = match PART {
            true => ends.site.only(ends.schedule, ends.channel),
            false => ends.site.own(ends.schedule, ends.channel),
        };
        self.each_at::<true>(place, packs, team, then);
    }

    /// The same of the chunk at `place`. `BUNDLES`: several packs at a time where ranks are few, each with code of its own for what becomes of it.
    #[inline(always)]
    pub(super) fn each_at<const BUNDLES: bool>(
        &self,
        place: Ctx,
        (first, count, payload): (usize, u32, u64),
        team: Team,
        then: &impl Then<H>,
    ) {
        let Folds { share, kept, args, .. } = self;
        let me = self.me();
        let (first, lanes) = (share.first + first, Pack::<H::Wire>::LANES);
        // Packs of rows need not have whole elements.
        let whole =
            if const { H::COLS > 0 } { count } else { tile::whole_until(&place, lanes, first, count) };
        let packs = Packs { place: &place, first, payload, count, whole };
        if const { H::COLS > 0 } {
            return match me.world {
                1 => self.rows::<1>(&packs, team, then),
                2 => self.rows::<2>(&packs, team, then),
                4 => self.rows::<4>(&packs, team, then),
                _ => self.rows::<0>(&packs, team, then),
            };
        }
        let mut s = team.lane;
        if const { BUNDLES } {
            s += match me.world {
                2 => self.few::<2>(&packs, team, then),
                3 => self.few::<3>(&packs, team, then),
                4 => self.few::<4>(&packs, team, then),
                _ => 0,
            };
        }
        fold_packs::<H>((&packs, s), team, *kept, me, args, then, |rank, s| {
            // SAFETY: the turn's packs have arrived, and are not given back before it is over.
            Pack::from_words(unsafe { arch::load_16_once(self.from(rank).at(payload + 16 * u64::from(s))) })
        });
    }
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Folds<'_, '_, O, S, H, false> {
    const COLS: usize = H::COLS;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        self.each(self.turns.packs(turn), team, &Take);
    }
}

/// What all ranks contribute to a pack, where they are few.
#[derive(Clone, Copy)]
pub(in crate::protocol) struct Here<W>(pub [Pack<W>; AHEAD]);

impl<W: Element> Contributions<W> for Here<W> {
    #[inline(always)]
    fn of(&self, _first: u32, _some: u32) -> Option<[Pack<W>; AHEAD]> {
        Some(self.0)
    }
}
