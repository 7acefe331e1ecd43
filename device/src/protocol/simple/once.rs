//! What is produced once for every peer.
//!
//! A sender stores each chunk of its stream for all peers, and so waits for the slowest of them. So receivers take a chunk from each peer in
//! turn: one that first took all of one peer's would keep another from sending to anybody, and ranks would wait in a circle.

use super::channel::{HEADER, Receiving, Sending, stream_bytes};
use crate::arch;
use crate::group::{Block, Group};
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::protocol::{Share, Site};
use crate::schedule::Schedule;
use crate::tile::{self, Team};
use crate::wait::{Flow, Watch};

/// Sends `share`, a block's of the chunk of the self copy, to every peer on the block's channel, and does the self copy.
///
/// All peers' rings are given room before a chunk of the stream is produced, and each pack is stored into all of them.
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
    let (ops, me, channel, chunk) = (site.ops, site.me, site.grid.block, site.shape.chunk);
    let (sends, call) = (schedule.sends(me), share.call(site.shape));
    // SAFETY: the caller's contract; the position moves with `finish` alone.
    let to = |leg| unsafe { Sending::begin(ops, watch, schedule.to(me, leg).peer, channel, call) };
    let (place, kept) = (site.own(schedule, channel), site.kept(schedule));
    let (total, mut from) = (stream_bytes(call.payload), 0);
    while from < total {
        let end = total.min(from.max(HEADER) + chunk);
        let (mut leg, mut found) = (1, 0);
        if Block.leads() {
            while leg < sends + 1 {
                let out = to(leg);
                found = out.await_room(end);
                if found != 0 {
                    break;
                }
                if from == 0 {
                    out.open();
                }
                leg += 1;
            }
        }
        if sends > 0 {
            // Of a thread that found nothing any leg.
            to(if found != 0 { leg } else { 1 }).settle(&Block, found, end)?;
        }
        let (first, count) = tile::packs(from, end, share.packs);
        let (payload, hooks) = (HEADER + 16 * first as u64, tile::Module::<H>(args));
        tile::produce::<tile::By<H>, H::Wire, _>(
            Team::all(&Block),
            &place,
            share.first + first,
            count,
            &hooks,
            |s, ctx, pack| {
                let mut leg = 1;
                while leg < sends + 1 {
                    // SAFETY: the ring's place of pack `s`, reserved for this block; each pack is one thread's.
                    unsafe { arch::store_16(to(leg).at(payload + 16 * u64::from(s)), pack.words()) };
                    leg += 1;
                }
                // Else it is the receiving block's.
                if !S::FOLDS {
                    H::consume(&kept.at::<H>(ctx.at(ctx.pos, ctx.valid, ctx.whole)), args, pack);
                }
            },
        );
        Block.sync();
        watch.check_panic(ops)?;
        let mut leg = 1;
        while leg < sends + 1 {
            let out = to(leg);
            out.hand_over(&Block, from, end);
            if end == total {
                out.finish(&Block);
            }
            leg += 1;
        }
        from = end;
    }
    Ok(())
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
    if share.packs == 0 {
        return Ok(());
    }
    let (ops, me, receives, call) = (site.ops, site.me, schedule.receives(site.me), share.call(site.shape));
    let (total, mut from) = (stream_bytes(call.payload), 0);
    while from < total {
        let end = total.min(from.max(HEADER) + site.shape.chunk);
        let (first, count) = tile::packs(from, end, share.packs);
        let payload = HEADER + 16 * first as u64;
        let mut leg = 1;
        while leg < receives + 1 {
            let at = schedule.from(me, leg);
            // SAFETY: the caller's contract; the position moves with `finish` alone.
            let input = unsafe { Receiving::begin(ops, watch, at.peer, channel, call) };
            input.await_bytes(&Block, from, end)?;
            tile::consume::<tile::By<H>, H::Wire>(
                Team::all(&Block),
                &site.at(at, channel),
                share.first + first,
                count,
                &tile::Module::<H>(args),
                |s| input.at(payload + 16 * u64::from(s)),
            );
            input.free(&Block, end)?;
            if end == total {
                input.finish(&Block);
            }
            leg += 1;
        }
        from = end;
    }
    Ok(())
}
