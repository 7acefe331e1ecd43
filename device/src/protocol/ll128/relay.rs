//! Two steps in one kernel, by LL128: each rank folds a part of what all contribute, and passes the result on to all of them.
//!
//! What [`TwoShot`](crate::protocol::TwoShot) is through staging, for mutual schedules that fold and calls that are too short for staging. A block does both steps on one LL128 channel. It stores what it
//! contributes to the peers' parts, folds its own part row by row as the peers' rows arrive, stores each row of the result for every peer at once,
//! and takes what they have folded.
//!
//! A launch is two calls of the channel: the second step is the next number, in the other buffer. No credit is needed. Who stores rows of the second step has
//! got a row of the first from every rank, so all of them have begun this kernel, and have ended the one before it, which last read that buffer. Who has ended the
//! launch has got whole parts from all that fold one, and they have read the first step's rows by then.

use super::end;
use super::fold::{PAIR, Rows};
use super::line::{Line, Outlet, PACKS};
use super::load::{Load, rows};
use super::once::Peers;
use super::row;
use super::teams::Teams;
use crate::ctx::Ctx;
use crate::fold::Contributions;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::protocol::simple::take;
use crate::protocol::{Protocol, Share, Site, arguments, passes_on, whole_call};
use crate::schedule::{Member, Schedule};
use crate::tile::{Kept, Team, WARP};
use crate::wait::{Armed, Flow, Stopped};

/// The protocol, as a type: for what [`TwoShot`](crate::protocol::TwoShot) is for.
///
/// Grid: `channels` blocks. A share has at most [`most_packs`].
#[derive(Debug)]
pub struct Ll128TwoShot;

/// Most packs of one channel in one call of so many ranks, where `relays` packs are passed on for each.
pub const fn most_packs(world: u32, relays: u64) -> u64 {
    // Parts are whole 128-byte lines of an output.
    world as u64 * (PACKS / row::PACKS as u64 / relays * row::PACKS as u64 / 8 * 8)
}

// SAFETY: every element of the chunk is in one rank's part, which all get; rows are stored into buffers whose last reader is done (above),
// whole warps at a time.
unsafe impl<O: Direct> Protocol<O> for Ll128TwoShot {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        const {
            passes_on::<S, H>();
            assert!(H::COLS == 0, "lines carry no rows");
            assert!(S::MUTUAL && S::FOLDS, "without credits, ranks have to hear from each other");
        }
        let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
        // SAFETY: the caller's contract.
        let armed = unsafe { Armed::new(&Block, params.control, ops.rank(), grid.block) };
        // SAFETY: the caller's contract.
        let args = unsafe { arguments::<H>(&params.raw) };
        let site = Site::of(grid, params);
        let (me, channel) = (site.me, grid.block);
        let share = Share::of::<H>(shape.elements, shape.share, channel);
        let (longest, legs) = (share.longest(me.world, 8).packs, schedule.sends(me));
        let teams = Teams::of::<H>(Team::all(&Block), legs, &Load::of_packs(0, longest)).now();
        let (place, kept, call) = (site.own(schedule, channel), site.kept(schedule), whole_call::<H>(shape));
        let state = ops.line_state(me.rank, channel);
        let watch = &armed.looked();
        let args = args.now(watch.behind());
        if H::RELAYS == 0 || share.packs == 0 {
            return Ok(());
        }
        // SAFETY: live state, written last by the previous kernel on this channel.
        let calls = unsafe { (&raw const (*state).sent).read_volatile() };
        // The part that `peer` folds, in the first step or in the second.
        let line = |team, peer: u32, step| {
            let Share { first, packs } = share.part(longest, peer);
            let place = Ctx { peer: peer as usize, ..place };
            Line {
                ops,
                watch,
                team,
                place,
                load: Load::of_packs(first, packs),
                channel,
                calls: calls + step,
                call,
            }
        };
        teams.each_leg(legs, |leg| {
            // SAFETY: free, as said above; each block works its own LL128 channel.
            unsafe { line(teams.team, schedule.to(me, leg).peer, 0).send::<H>(args) };
        });
        if watch.poisoned() {
            return Err(Stopped);
        }
        let to = Peers::new(ops, schedule, me, channel, calls + 1);
        // SAFETY: each block works its own LL128 channel; every rank sends to every other.
        let mut whole = unsafe { line(Team::all(&Block), me.rank, 0).pass_on::<H>(&to, kept, me, args) };
        teams.each_leg(legs, |leg| {
            // SAFETY: as above.
            whole = whole
                && unsafe { line(teams.team, schedule.from(me, leg).peer, 1).take_passed::<H>(kept, args) };
        });
        // SAFETY: this block's own.
        unsafe { end(ops, watch, whole, state, calls + 2) }
    }
}

/// Rows of what was folded that are waited for together.
const TOGETHER: usize = 4;

impl<O: Direct> Line<'_, O> {
    /// Folds what all peers send with what this rank produces at this line's place, takes the result and passes it `to` the peers; whether all of it came.
    ///
    /// A row of wire packs becomes [`Hooks::RELAYS`] rows, in which each pack stands in its lane's slot.
    ///
    /// # Safety
    /// This block alone works the channel; every other rank sends on it in this call.
    #[inline(always)]
    unsafe fn pass_on<H: Hooks>(
        &self,
        to: &impl Outlet<H::Folded>,
        kept: Kept,
        me: Member,
        args: &H::Args<'_>,
    ) -> bool {
        let (warp, warps) = (self.team.lane / WARP, self.team.lanes / WARP);
        let passes = Passes::<_, _, H> { line: self, to, kept, args };
        let (pairs, mut row, mut whole) = (self.pairs(me), PAIR as u32 * warp, true);
        while whole && row < pairs {
            // SAFETY: the caller's contract; rows of the buffers.
            whole = unsafe {
                self.each_pair::<H>((row, pairs), me, args, |row, slot, ctx, of, ranks| {
                    passes.pack((row, slot), ctx, of, ranks)
                })
            };
            if whole {
                passes.seal(row, pairs.min(row + PAIR as u32));
            }
            row += PAIR as u32 * warps;
        }
        row = pairs + warp;
        while whole && row < rows(self.load.packs) {
            for slot in row::slots() {
                if !self.carries(row, slot) && WARP == 1 {
                    break;
                }
                let of = Rows { line: self, me, row, slot, own: self.own::<H>(row, slot, args) };
                whole = whole && passes.pack((row, slot), self.held::<H>(row, slot), &of, me.world);
            }
            if whole {
                passes.seal(row, row + 1);
            }
            row += warps;
        }
        whole
    }

    /// Takes what the peer has folded; whether all of it came.
    ///
    /// # Safety
    /// This block alone receives on the channel; the peer sends on it in this call.
    #[inline(always)]
    unsafe fn take_passed<H: Hooks>(&self, kept: Kept, args: &H::Args<'_>) -> bool {
        let input = self.input();
        let (relays, end) = (H::RELAYS as u32, rows(self.load.packs) * H::RELAYS as u32);
        let mut row = self.team.lane / WARP * TOGETHER as u32;
        while row < end {
            // SAFETY: rows of the buffer.
            let Some(found) = (unsafe { self.poll::<TOGETHER>(input, row, end) }) else { return false };
            row::each_lane(|slot| {
                unroll!(TOGETHER = 4, |K| {
                    let (at, pack) = (row + K as u32, Pack::from_words(found[K].pack(slot)));
                    let s = at / relays * row::PACKS + slot;
                    if slot < row::PACKS && at < end && s < self.load.packs {
                        let ctx = kept.at::<H>(self.any::<H::Wire>(s));
                        take::<H>(&ctx, args, (at % relays) as usize, pack);
                    }
                });
            });
            row += self.team.lanes / WARP * TOGETHER as u32;
        }
        true
    }
}

/// What passes on what a line folds.
struct Passes<'k, 'l, 'a, O, T, H: Hooks> {
    line: &'k Line<'l, O>,
    to: &'k T,
    kept: Kept,
    args: &'k H::Args<'a>,
}

impl<O: Direct, H: Hooks, T: Outlet<H::Folded>> Passes<'_, '_, '_, O, T, H> {
    /// Folds the pack at `ctx` in `slot` of row `row`, stores the result for every peer and takes it; whether all came.
    #[inline(always)]
    fn pack(&self, (row, slot): (u32, u32), ctx: Ctx, of: &impl Contributions<H::Wire>, ranks: u32) -> bool {
        let kept = self.kept.at::<H>(ctx);
        H::relay(ranks, of, &|number: usize, pack: Pack<H::Folded>| {
            let at = row * H::RELAYS as u32 + number as u32;
            // SAFETY: free, as this module says; each row is one warp's.
            unsafe { self.line.put::<1, _, _>(self.to, at, at + 1, slot, [pack.words()]) };
            take::<H>(&kept, self.args, number, pack);
        })
    }

    /// Ends what came of the rows from `row` on that lie before `end`.
    #[inline(always)]
    fn seal(&self, row: u32, end: u32) {
        let relays = H::RELAYS as u32;
        // SAFETY: as above.
        (row * relays..end * relays).for_each(|at| unsafe { self.line.seal::<1, _, _>(self.to, at, at + 1) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_most_packs_fits_both_buffers() {
        for world in 2..20 {
            for relays in [1, 2, 4, 8] {
                let most = most_packs(world, relays) as u32;
                let longest = Share { first: 0, packs: most }.longest(world, 8).packs;
                let fits = |packs| rows(packs) * relays as u32 * row::PACKS <= PACKS as u32;
                assert!(fits(longest) && u64::from(most) >= PACKS / relays, "{world} ranks, {relays}");
            }
        }
    }
}
