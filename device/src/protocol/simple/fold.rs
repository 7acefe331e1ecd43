//! What is folded as it is received.
//!
//! A receiver needs a chunk of its stream from every peer before it takes the first pack of it, so senders bring a chunk to each peer in turn: one
//! that first sent all of one leg would keep its other peers from folding anything, and ranks would wait in a circle.

use super::channel::{HEADER, Receiving, Sending, stream_bytes};
use crate::arch;
use crate::ctx::Produce;
use crate::fold::AHEAD;
use crate::group::{Block, Group};
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::pack::{Pack, unroll};
use crate::protocol::{Share, Site};
use crate::schedule::Schedule;
use crate::tile::{self, Team};
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
    if share.packs == 0 {
        return Ok(());
    }
    let (ops, me, channel) = (site.ops, site.me, site.grid.block);
    let (sends, call) = (schedule.sends(me), share.call(site.shape));
    let (total, mut from) = (stream_bytes(call.payload), 0);
    while from < total {
        let end = total.min(from.max(HEADER) + site.shape.chunk);
        let (first, count) = tile::packs(from, end, share.packs);
        let payload = HEADER + 16 * first as u64;
        let mut leg = 1;
        while leg < sends + 1 {
            let at = schedule.to(me, leg);
            // SAFETY: the caller's contract; the position moves with `finish` alone.
            let out = unsafe { Sending::begin(ops, watch, at.peer, channel, call) };
            out.reserve(&Block, from, end)?;
            tile::produce::<tile::By<H>, H::Wire, _>(
                Team::all(&Block),
                &site.at(at, channel),
                share.first + first,
                count,
                &tile::Module::<H>(args),
                |s, _, pack| {
                    // SAFETY: the ring's place of pack `s`, reserved for this block; each pack is one thread's.
                    unsafe { arch::store_16(out.at(payload + 16 * u64::from(s)), pack.words()) };
                },
            );
            out.publish(&Block, from, end)?;
            if end == total {
                out.finish(&Block);
            }
            leg += 1;
        }
        from = end;
    }
    Ok(())
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
    let (ops, me, receives, call) = (site.ops, site.me, schedule.receives(site.me), share.call(site.shape));
    let (place, kept) = (site.own(schedule, channel), site.kept(schedule));
    let lanes = Pack::<H::Wire>::LANES;
    let (total, mut from) = (stream_bytes(call.payload), 0);
    // SAFETY: the caller's contract; the position moves with `finish` alone.
    let of = |leg| unsafe { Receiving::begin(ops, watch, schedule.from(me, leg).peer, channel, call) };
    while from < total {
        let end = total.min(from.max(HEADER) + site.shape.chunk);
        let (first, count) = tile::packs(from, end, share.packs);
        let payload = HEADER + 16 * first as u64;
        let mut leg = 1;
        while leg < receives + 1 {
            of(leg).await_bytes(&Block, from, end)?;
            leg += 1;
        }
        let whole = tile::whole_until(&place, lanes, share.first + first, count);
        let team = Team::all(&Block);
        let mut s = team.lane;
        while s < count {
            let ctx = || tile::any(&place, lanes, share.first + first + s as usize, s < whole);
            let own = H::produce(&Produce(ctx()), args);
            H::fold(&kept.at::<H>(ctx()), args, me.world, &|first, some| {
                let mut packs = [own; AHEAD];
                unroll!(AHEAD, |K| {
                    let rank = first + K as u32;
                    if (K as u32) < some && rank != me.rank {
                        // SAFETY: as above; the pack has arrived, and is not overwritten before it is given back.
                        packs[K] = Pack::from_words(unsafe {
                            let input = Receiving::again(ops, watch, rank, channel, call);
                            arch::load_16_once(input.at(payload + 16 * u64::from(s)))
                        });
                    }
                });
                Some(packs)
            });
            s += team.lanes;
        }
        Block.sync();
        watch.check_panic(ops)?;
        let mut leg = 1;
        while leg < receives + 1 {
            let input = of(leg);
            input.give_back(&Block, end);
            if end == total {
                input.finish(&Block);
            }
            leg += 1;
        }
        from = end;
    }
    Ok(())
}
