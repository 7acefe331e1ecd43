//! Two steps in one launch, as [`TwoShot`](crate::protocol::TwoShot): each thread does all of its channels' work in turn.

use super::super::simple::channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use super::super::simple::{Folded, Then, take, within};
use super::super::{Protocol, Share, Site};
use super::Part;
use crate::arch;
use crate::ctx::Consume;
use crate::fold::Contributions;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::schedule::Schedule;
use crate::tile::{self, Team};
use crate::wait::{Flow, Watch};
use std::vec::Vec;

/// The protocol, as a type. Grid: `channels` blocks; the transport has twice as many channels.
///
/// All ranks take their turns in one order: what each peer is to fold, what this rank folds and passes on, what each peer has folded.
#[derive(Debug)]
pub struct HostTwoShot;

// SAFETY: as for `TwoShot`.
unsafe impl<O: Ops> Protocol<O> for HostTwoShot {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        let (group, ops, shape, schedule) = (Block, &params.ops, &params.shape, &params.schedule);
        // SAFETY: the caller's contract.
        let (watch, args) =
            unsafe { (Watch::begin(&group, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
        let (site, channel, times) = (Site::of(grid, params), grid.block, H::RELAYS);
        let me = site.me;
        let share = Share::of::<H>(shape.elements, shape.share, channel);
        if times == 0 || share.packs == 0 {
            return Ok(());
        }
        watch.enter(&group)?;
        let (place, kept) = (site.own(schedule, channel), site.kept(schedule));
        let longest = share.longest(me.world);
        let call = longest.call(shape);
        let passed = Call { payload: call.payload * times as u64, ..call };
        // SAFETY: this block alone works these channels' ends; every turn goes on where the last one left off, since positions move with
        // `finish` alone.
        let sending = |peer, channel, call| unsafe { Sending::begin(ops, &watch, peer, channel, call) };
        // SAFETY: as above.
        let receiving = |peer, channel, call| unsafe { Receiving::begin(ops, &watch, peer, channel, call) };
        let receivers = || (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg).peer);
        let senders = || (1..=schedule.receives(me)).map(|leg| schedule.from(me, leg).peer);
        let total = stream_bytes(call.payload);
        let mut from = 0;
        while from < total {
            let to = total.min(from.max(HEADER) + shape.chunk);
            let over = to == total;
            let (first, count) = tile::packs(from, to, longest.packs);
            let part = |rank: u32| {
                let part = share.part(longest.packs, rank);
                let count = within(part.packs, first, count) as usize;
                Part { first: part.first, packs: first..first + count }
            };
            for peer in receivers() {
                let out = sending(peer, channel, call);
                out.reserve(&group, from, to)?;
                part(peer).send::<O, H>(&place, &args, &out);
                out.publish(&group, from, to)?;
                if over {
                    out.finish(&group);
                }
            }
            // The same turn of the second step.
            let [from2, to2] =
                [from, to].map(|at| if at == 0 { 0 } else { HEADER + (at - HEADER) * times as u64 });
            let outs: Vec<_> = receivers().map(|p| sending(p, shape.channels + channel, passed)).collect();
            for out in &outs {
                out.reserve(&group, from2, to2)?;
            }
            let inputs: Vec<_> = senders().map(|peer| receiving(peer, channel, call)).collect();
            let own = part(me.rank).produced::<O, H>(&place, &args, &[]);
            for input in &inputs {
                input.await_bytes(&group, from, to)?;
            }
            let then = Passed { outs: &outs, payload: HEADER + (16 * first * times) as u64 };
            part(me.rank).fold::<O, H>((&place, kept), me, &args, (&own, &inputs), &then);
            for input in &inputs {
                input.free(&group, to)?;
                if over {
                    input.finish(&group);
                }
            }
            for out in &outs {
                out.publish(&group, from2, to2)?;
                if over {
                    out.finish(&group);
                }
            }
            for peer in senders() {
                let input = receiving(peer, shape.channels + channel, passed);
                input.await_bytes(&group, from2, to2)?;
                let Part { first, packs } = part(peer);
                let (first, count) = ((first + packs.start) * times, packs.len() * times);
                // Behind the chunk's end there may be packs that nothing was folded for.
                let all = place.chunk_len.div_ceil(Pack::<H::Folded>::LANES);
                let count = count.min(all.saturating_sub(first)) as u32;
                let (team, sink) = (Team::all(&Block), Folded::<H>(&args));
                tile::consume::<tile::By<H>, H::Folded, _>(team, &place, first, count, &sink, |s| {
                    input.at(then.payload + 16 * u64::from(s))
                });
                input.free(&group, to2)?;
                if over {
                    input.finish(&group);
                }
            }
            from = to;
        }
        Ok(())
    }
}

/// What was folded in a turn is taken here, and stored for every peer.
struct Passed<'k, O> {
    outs: &'k [Sending<'k, O>],
    /// Where the turn's packs begin in each stream.
    payload: u64,
}

impl<O: Ops, H: Hooks> Then<H> for Passed<'_, O> {
    #[inline(always)]
    fn fold(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, ranks: u32, of: &impl Contributions<H::Wire>) {
        H::relay(ranks, of, &|number: usize, pack: Pack<H::Folded>| {
            let at = self.payload + 16 * (s as u64 * H::RELAYS as u64 + number as u64);
            for out in self.outs {
                // SAFETY: the ring's place of the pack, which is reserved.
                unsafe { arch::store_16(out.at(at), pack.words()) };
            }
            take::<H>(ctx, args, number, pack);
        });
    }
}
