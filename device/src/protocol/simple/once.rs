//! What is produced once for every peer: each pack is stored for all of them.

use super::turns::{self, Ends, Turn, Turns, Work};
use crate::group::Block;
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::protocol::{Share, Site};
use crate::row::walk;
use crate::schedule::{Legs, Schedule};
use crate::tile::{self, Kept, Team};
use crate::wait::{Flow, Watch};

/// A share of the chunk that this rank sends, or of those that it receives.
struct Part<'k, 'a, O, S, H: Unpack> {
    ends: Ends<'k, O, S>,
    turns: Turns,
    share: Share,
    args: &'k H::Args<'a>,
}

/// Sends `share`, a block's of the chunk of the self copy, to every peer on the block's channel, and does the self copy.
///
/// # Safety
/// This block alone works the sending ends of the channel of its index; all its threads call. The schedule is [`Schedule::ONCE`], and this
/// rank has a self copy.
#[inline(always)]
pub(super) unsafe fn send<O: Ops, S: Schedule, H: Unpack>(
    site: &Site<'_, O>,
    schedule: &S,
    watch: &Watch,
    share: Share,
    args: &H::Args<'_>,
) -> Flow {
    watch.enter(&Block)?;
    if share.packs == 0 {
        return Ok(());
    }
    let (channel, call) = (site.grid.block, share.call(site.shape));
    let turns = Turns::of(site, share, schedule.sends(site.me), false);
    let ends = Ends { site, schedule, watch, channel, call, begins: None };
    // SAFETY: the caller's contract.
    unsafe { send_by::<O, S, H>(ends, turns, site.kept(schedule), share, args) }
}

/// The same by those ends and turns.
///
/// # Safety
/// As for [`send`] of those ends.
#[inline(always)]
pub(super) unsafe fn send_by<O: Ops, S: Legs, H: Unpack>(
    ends: Ends<'_, O, S>,
    turns: Turns,
    kept: Kept,
    share: Share,
    args: &H::Args<'_>,
) -> Flow {
    let part = Part::<O, S, H> { ends, turns, share, args };
    // SAFETY: the caller's contract.
    unsafe { turns::send(turns, &part.ends, &Sends { part: &part, kept }) }
}

struct Sends<'k, 'a, O, S, H: Unpack> {
    part: &'k Part<'k, 'a, O, S, H>,
    kept: Kept,
}

impl<O: Ops, S: Legs, H: Unpack> Work for Sends<'_, '_, O, S, H> {
    const COLS: usize = H::COLS;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Part { ends, turns, share, args } = self.part;
        let (first, count, payload) = turns.packs(turn);
        let place = ends.site.own(ends.schedule, ends.site.heard(ends.channel));
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { ends.everybody(payload) };
        // SAFETY: each pack is one thread's.
        let store = |s: u32, pack: Pack<H::Wire>| unsafe { peers.store(s, pack.words()) };
        if const { H::COLS > 0 && !H::FOLDS } {
            // A row is kept as a whole.
            return walk::keep::<H>(
                team,
                (&place, self.kept),
                share.first + first,
                count,
                args,
                Some(&store),
            );
        }
        tile::produce::<tile::By<H>, H::Wire, _>(
            team,
            &place,
            share.first + first,
            count,
            &tile::Module::<H>(args),
            |s, ctx, pack| {
                store(s, pack);
                // Else it is the receiving block's.
                if const { !H::FOLDS } {
                    H::consume(&self.kept.at::<H>(ctx.at(ctx.pos, ctx.valid, ctx.whole)), args, pack);
                }
            },
        );
    }
}

/// Takes `share`, a block's of each chunk, from every peer that sends to this rank.
///
/// # Safety
/// This block alone works the receiving ends of the channel; all its threads call. The schedule is [`Schedule::ONCE`].
#[inline(always)]
pub(super) unsafe fn receive<O: Ops, S: Schedule, H: Unpack>(
    site: &Site<'_, O>,
    schedule: &S,
    watch: &Watch,
    (channel, share): (u32, Share),
    args: &H::Args<'_>,
) -> Flow {
    let receives = schedule.receives(site.me);
    if share.packs == 0 || receives == 0 {
        return Ok(());
    }
    let call = share.call(site.shape);
    let turns = Turns::of(site, share, receives, true);
    let ends = Ends { site, schedule, watch, channel, call, begins: None };
    let part = Part::<O, S, H> { ends, turns, share, args };
    // SAFETY: the caller's contract.
    unsafe { turns::receive(turns, &part.ends, &Receives { part: &part }) }
}

struct Receives<'k, 'a, O, S, H: Unpack> {
    part: &'k Part<'k, 'a, O, S, H>,
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Receives<'_, '_, O, S, H> {
    const COLS: usize = H::COLS;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Part { ends, turns, share, args } = self.part;
        let (first, count, payload) = turns.packs(turn);
        let leg = ends.schedule.from(ends.site.me, turn.leg);
        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
        let input = unsafe { ends.from(leg.peer) };
        tile::consume::<tile::By<H>, H::Wire, _>(
            team,
            &ends.site.at(leg, ends.channel),
            share.first + first,
            count,
            &tile::Module::<H>(args),
            |s| input.at(payload + 16 * u64::from(s)),
        );
    }
}
