//! What is folded as it is received.

use super::turns::{self, Ends, Turn, Turns, Work};
use crate::arch;
use crate::ctx::Produce;
use crate::element::Element;
use crate::fold::{AHEAD, Contributions};
use crate::group::Block;
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::pack::{Pack, unroll};
use crate::protocol::{Kept, Share, Site};
use crate::schedule::Schedule;
use crate::tile::{self, Team, WARP};
use crate::wait::{Flow, Watch};

/// Packs that a thread has in flight, where no more than [`AHEAD`] ranks contribute.
const BUNDLE: usize = if cfg!(target_arch = "nvptx64") { 4 } else { 1 };

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
    let ends = Ends { site, schedule, watch, channel: site.grid.block, call: share.call(site.shape) };
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
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Sends { ends, turns, share, args } = self;
        let (first, count, payload) = turns.packs(turn);
        let leg = ends.schedule.to(ends.site.me, turn.leg);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let out = unsafe { ends.to(turn.leg) };
        tile::produce::<tile::By<H>, H::Wire, _>(
            team,
            &ends.site.at(leg, ends.channel),
            share.first + first,
            count,
            &tile::Module::<H>(args),
            |s, _, pack| {
                // SAFETY: the ring's place of pack `s`, reserved for this block; each pack is one thread's.
                unsafe { arch::store_16(out.at(payload + 16 * u64::from(s)), pack.words()) };
            },
        );
    }
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
    let ends = Ends { site, schedule, watch, channel, call: share.call(site.shape) };
    let turns = Turns::of(site, share, schedule.receives(site.me), false);
    let kept = site.kept(schedule);
    // SAFETY: the caller's contract.
    unsafe { turns::receive(turns, &ends, &Folds::<O, S, H> { ends: &ends, turns, share, kept, args }) }
}

struct Folds<'k, 'a, O, S, H: Unpack> {
    ends: &'k Ends<'k, O, S>,
    turns: Turns,
    share: Share,
    kept: Kept,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Folds<'_, '_, O, S, H> {
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Folds { ends, turns, share, kept, args } = self;
        let (first, count, payload) = turns.packs(turn);
        let (place, me) = (ends.site.own(ends.schedule, ends.channel), ends.site.me);
        let (first, lanes) = (share.first + first, Pack::<H::Wire>::LANES);
        let whole = tile::whole_until(&place, lanes, first, count);
        let few = me.world <= AHEAD as u32;
        let mut s = team.lane;
        if BUNDLE > 1 && few {
            let end =
                tile::bundled::<BUNDLE>(team, count, whole) / (BUNDLE as u32 * WARP) * (BUNDLE as u32 * WARP);
            let mut b = team.bundle::<BUNDLE>();
            while b < end {
                let at = |k: usize| tile::whole(&place, lanes, first + b as usize + k * WARP as usize);
                let last = at(BUNDLE - 1).index();
                let mut got = [[Pack::<H::Wire>::ZERO; AHEAD]; BUNDLE];
                let mut own = [Pack::<H::Wire>::ZERO; BUNDLE];
                unroll!(BUNDLE, |K| own[BUNDLE - 1 - K] =
                    H::produce(&Produce(at(BUNDLE - 1 - K).before(last)), args));
                unroll!(AHEAD, |R| if (R as u32) < me.world && R as u32 != me.rank {
                    // SAFETY: as below.
                    let input = unsafe { ends.from(R as u32) };
                    unroll!(BUNDLE, |K| {
                        let at = input.at(payload + 16 * u64::from(tile::nth(b, K)));
                        // SAFETY: as below.
                        got[K][R] = Pack::from_words(unsafe { arch::load_16_once(at) });
                    });
                });
                unroll!(BUNDLE, |K| {
                    let mut all = got[K];
                    unroll!(AHEAD, |R| if R as u32 == me.rank {
                        all[R] = own[K];
                    });
                    H::fold(&kept.at::<H>(at(K)), args, me.world.min(AHEAD as u32), &Here(all));
                });
                b += team.stride::<BUNDLE>();
            }
            s += end;
        }
        while s < count {
            let ctx = || tile::any(&place, lanes, first + s as usize, s < whole);
            let own = H::produce(&Produce(ctx()), args);
            H::fold(&kept.at::<H>(ctx()), args, me.world, &|first, some| {
                let mut packs = [own; AHEAD];
                unroll!(AHEAD, |K| {
                    let rank = first + K as u32;
                    if (K as u32) < some && rank != me.rank {
                        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
                        packs[K] = Pack::from_words(unsafe {
                            arch::load_16_once(ends.from(rank).at(payload + 16 * u64::from(s)))
                        });
                    }
                });
                Some(packs)
            });
            s += team.lanes;
        }
    }
}

/// What all ranks contribute to a pack, where they are few.
struct Here<W>([Pack<W>; AHEAD]);

impl<W: Element> Contributions<W> for Here<W> {
    #[inline(always)]
    fn of(&self, _first: u32, _some: u32) -> Option<[Pack<W>; AHEAD]> {
        Some(self.0)
    }
}
