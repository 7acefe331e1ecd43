//! By domains, of schedules of [all pairs](Schedule::ALL_PAIRS), as [`simple::chunks`](crate::protocol::simple): each thread does all of its channels' work in turn.
//!
//! All ranks take their turns in one order, in which what is passed on of one domain is taken before that of the next: who waits for room waits for what comes earlier.

use super::super::simple::channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use super::super::simple::{Joined, Taken};
use super::super::{Share, Site};
use super::turn::{Arrived, Partial};
use super::{Part, has_own};
use crate::ctx::Ctx;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::schedule::{Both, Leg, Legs, Pairs, Schedule};
use crate::tile::Kept;
use crate::wait::{Flow, Stopped, Watch};
use core::slice;
use std::vec::Vec;

/// One block's part.
///
/// # Safety
/// As for `simple::chunks::exchange`.
#[inline(always)]
pub(super) unsafe fn exchange<O: Ops, S: Schedule, H: Unpack>(
    grid: Grid,
    params: &Params<O, S, H::Raw>,
    each: u32,
) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin(&Block, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let site = Site::of(grid, params);
    let share = Share::of::<H>(shape.elements, shape.share, grid.block);
    if const { H::FOLDS && (H::PARTIALS == 0 || H::RELAYS == 0) } || share.packs == 0 {
        return Ok(());
    }
    watch.enter(&Block)?;
    let pairs = Pairs::of(params.schedule, each);
    let payload = 16 * u64::from(share.longest(1, 8).packs);
    let chunks = Chunks { site: &site, watch: &watch, share, pairs, payload, step: shape.chunk.min(payload) };
    for round in 0..payload.div_ceil(chunks.step) {
        match const { S::FOLDS } {
            true => chunks.scatter::<H>(round, &args)?,
            false => chunks.gather::<H>(round, &args)?,
        }
    }
    Ok(())
}

/// What a thread knows in all rounds.
struct Chunks<'k, O, S> {
    site: &'k Site<'k, O>,
    watch: &'k Watch,
    share: Share,
    pairs: Pairs<S>,
    /// Bytes of a chunk's stream behind its header, in whole lines.
    payload: u64,
    /// Those of a round at most.
    step: u64,
}

/// A turn of a stream, on its channel.
#[derive(Clone, Copy)]
struct At {
    channel: u32,
    call: Call,
    from: u64,
    to: u64,
}

impl At {
    fn is_last(&self) -> bool {
        self.to == stream_bytes(self.call.payload)
    }
}

impl<O: Ops, S: Schedule> Chunks<'_, O, S> {
    /// Turn `number` of a stream of `payload` bytes, with `step` in each.
    fn at(&self, channel: u32, payload: u64, step: u64, number: u64) -> At {
        let from = if number == 0 { 0 } else { HEADER + number * step };
        let to = stream_bytes(payload).min(HEADER + (number + 1) * step);
        At { channel, call: Call { payload, ..self.share.call(self.site.shape) }, from, to }
    }

    /// That of a round of this domain's own chunks, or across domains, in which a pack takes `times` the room.
    fn own(&self, round: u64, times: usize) -> At {
        self.at(self.site.grid.block, self.payload * times as u64, self.step * times as u64, round)
    }

    /// That of number `other` of the other domains, in a stream of all of them.
    fn other(&self, round: u64, other: u32) -> At {
        let others = u64::from(self.pairs.far.sends(self.site.me));
        let payload = self.payload.div_ceil(self.step) * self.step * others;
        let channel = self.site.grid.block + self.site.shape.channels;
        self.at(channel, payload, self.step, round * others + u64::from(other))
    }

    /// A round's packs, where they lie in a stream of one chunk or, from turn `at` on, of several.
    fn part(&self, round: u64, at: Option<At>) -> Part {
        let (first, count) = ((round * self.step / 16) as usize, (self.step / 16) as usize);
        let packs = first..(first + count).min(self.share.packs as usize).max(first);
        let before = at.map_or(0, |at| (at.from.max(HEADER) - HEADER) as usize / 16 - first);
        Part { first: self.share.first, packs, before }
    }

    fn place(&self, peer: u32, other: Option<u32>) -> Ctx {
        self.site.at(self.pairs.leg(self.site.me, peer, other), self.site.grid.block)
    }

    /// The sending end to `peer`, with room for a turn.
    fn out(&self, peer: u32, at: At) -> Result<Sending<'_, O>, Stopped> {
        // SAFETY: this block alone works these channels' ends; every turn goes on where the last one left off, since positions move with `finish` alone.
        let out = unsafe { Sending::begin(self.site.ops, self.watch, peer, at.channel, at.call) };
        out.reserve(&Block, at.from, at.to)?;
        Ok(out)
    }

    fn hand_over(&self, out: &Sending<'_, O>, at: At) -> Flow {
        out.publish(&Block, at.from, at.to)?;
        if at.is_last() {
            out.finish(&Block);
        }
        Ok(())
    }

    /// The receiving end from `peer`, with a turn's bytes.
    fn input(&self, peer: u32, at: At) -> Result<Receiving<'_, O>, Stopped> {
        // SAFETY: as for `out`.
        let input = unsafe { Receiving::begin(self.site.ops, self.watch, peer, at.channel, at.call) };
        input.await_bytes(&Block, at.from, at.to)?;
        Ok(input)
    }

    fn give_back(&self, input: &Receiving<'_, O>, at: At) -> Flow {
        input.free(&Block, at.to)?;
        if at.is_last() {
            input.finish(&Block);
        }
        Ok(())
    }

    /// The peers that legs name.
    fn peers(count: u32, leg: impl Fn(u32) -> Leg) -> impl Iterator<Item = u32> {
        (1..=count).map(move |number| leg(number).peer)
    }

    /// A round of every rank's chunk to every rank.
    #[inline(always)]
    fn gather<H: Hooks>(&self, round: u64, args: &H::Args<'_>) -> Flow {
        let (Pairs { schedule, near, far, .. }, me) = (&self.pairs, self.site.me);
        let (own, both, part) = (self.own(round, 1), Both(self.pairs), self.part(round, None));
        let outs = Self::peers(both.sends(me), |leg| both.to(me, leg)).map(|peer| self.out(peer, own));
        let outs = outs.collect::<Result<Vec<_>, _>>()?;
        let place = (&self.site.own(schedule, own.channel), self.site.kept(schedule));
        if H::sends_as_is(args).is_some() && has_own(schedule, me) {
            outs.iter().for_each(|out| part.send::<O, H>(place.0, args, out));
            part.keep::<H>(place, args);
        } else {
            part.send_once::<O, H>(place, args, &outs);
        }
        outs.iter().try_for_each(|out| self.hand_over(out, own))?;
        let senders = || Self::peers(near.receives(me), |leg| near.from(me, leg));
        let take = |peer: u32, at: At, part: &Part, other: Option<u32>| {
            let input = self.input(peer, at)?;
            part.receive::<O, H>(&self.place(peer, other), args, &input);
            self.give_back(&input, at)
        };
        senders().try_for_each(|peer| take(peer, own, &part, None))?;
        for other in 0..far.receives(me) {
            let at = self.other(round, other);
            let onward = self.part(round, Some(at));
            let input = self.input(Legs::from(far, me, other + 1).peer, own)?;
            let outs = Self::peers(near.sends(me), |leg| near.to(me, leg)).map(|peer| self.out(peer, at));
            let outs = outs.collect::<Result<Vec<_>, _>>()?;
            part.forward::<O, H>(&self.place(me.rank, Some(other)), args, &input, (&onward, &outs));
            outs.iter().try_for_each(|out| self.hand_over(out, at))?;
            self.give_back(&input, own)?;
            senders().try_for_each(|peer| take(peer, at, &onward, Some(other)))?;
        }
        Ok(())
    }

    /// A round of what every rank contributes to every rank's chunk, folded.
    #[inline(always)]
    fn scatter<H: Hooks>(&self, round: u64, args: &H::Args<'_>) -> Flow {
        let (Pairs { near, far, .. }, me) = (&self.pairs, self.site.me);
        let (own, crossing, part) =
            (self.own(round, 1), self.own(round, H::PARTIALS), self.part(round, None));
        let payload = HEADER + (16 * part.packs.start * H::PARTIALS) as u64;
        let member = near.member(me);
        let contribute = |at: At, part: &Part, other: Option<u32>| {
            Self::peers(near.sends(me), |leg| near.to(me, leg)).try_for_each(|peer| {
                let out = self.out(peer, at)?;
                part.send::<O, H>(&self.place(peer, other), args, &out);
                self.hand_over(&out, at)
            })
        };
        let arrived = |at: At| {
            let senders = Self::peers(near.receives(me), |leg| near.from(me, leg));
            senders.map(|peer| self.input(peer, at)).collect::<Result<Vec<_>, _>>()
        };
        for other in 0..far.sends(me) {
            let at = self.other(round, other);
            let part = self.part(round, Some(at));
            contribute(at, &part, Some(other))?;
            let place = self.place(me.rank, Some(other));
            let (own, inputs) = (part.produced::<O, H>(&place, args, &[]), arrived(at)?);
            let out = self.out(Legs::to(far, me, other + 1).peer, crossing)?;
            let partial = Partial { outs: slice::from_ref(&out), payload };
            part.fold::<O, H>((&place, Kept::HERE), member, args, (&own, &inputs), &partial);
            self.hand_over(&out, crossing)?;
            inputs.iter().try_for_each(|input| self.give_back(input, at))?;
        }
        contribute(own, &part, None)?;
        let (place, kept) = (self.place(me.rank, None), self.site.kept(&self.pairs.schedule));
        let (mine, inputs) = (part.produced::<O, H>(&place, args, &[]), arrived(own)?);
        let others = Self::peers(far.receives(me), |leg| Legs::from(far, me, leg));
        let others = others.map(|peer| self.input(peer, crossing)).collect::<Result<Vec<_>, _>>()?;
        let domain = far.member(me);
        let arrived = Arrived { domain, others: &others, payload };
        let joined = Joined { domain, ranks: me.world, others: arrived, then: Taken };
        part.fold::<O, H>((&place, kept), member, args, (&mine, &inputs), &joined);
        others.iter().try_for_each(|input| self.give_back(input, crossing))?;
        inputs.iter().try_for_each(|input| self.give_back(input, own))
    }
}
