//! Two steps in one launch, as [`TwoShot`](crate::protocol::TwoShot), or three, as [`Hierarchical`](crate::protocol::Hierarchical): each thread does all of its channels' work in
//! turn.

use super::super::simple::channel::{Call, HEADER, Receiving, Sending, payload_packs, stream_bytes};
use super::super::simple::{Folded, folded_for, within};
use super::super::{Protocol, Share, Site, by_domains, passes_on, times, unit};
use super::domains::Far;
use super::turn::{Partial, Passed, same_turn};
use super::{Part, chunks, runs};
use crate::arch;
use crate::ctx::Ctx;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::schedule::{Among, Domain, Everyone, Homes, Leg, Legs, Schedule, is_home};
use crate::tile::{self, Kept, Team};
use crate::wait::{Flow, Watch};
use core::slice;
use std::vec::Vec;

/// The protocol, as a type. Grid: `channels` blocks; channels as for [`TwoShot`](crate::protocol::TwoShot).
///
/// All ranks take their turns in one order: what each peer is to pass on, what this rank passes on, what each peer has passed on.
#[derive(Debug)]
pub struct HostTwoShot;

// SAFETY: as for `TwoShot`.
unsafe impl<O: Ops> Protocol<O> for HostTwoShot {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        const { passes_on::<S, H>() };
        // SAFETY: the caller's contract.
        unsafe { Steps(Everyone).exchange::<O, S, H>(grid, params) }
    }
}

/// The protocol, as a type. Grid and channels: as for [`HostTwoShot`].
///
/// All ranks take their turns in one order: as for that, and behind what this rank folds of its domain what each other domain has. With a root, who waits for bytes waits for a lower
/// level of `simple::homes` in the same turn, and who waits for room for an earlier turn.
#[derive(Debug)]
pub struct HostHierarchical;

// SAFETY: as for `Hierarchical`.
unsafe impl<O: Ops> Protocol<O> for HostHierarchical {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        const { by_domains::<S, H>() };
        let each = params.ops.domain();
        // SAFETY: the caller's contract.
        unsafe {
            match const { (S::TWO_STEPS, S::MUTUAL) } {
                (true, true) => Steps(Domain(each)).exchange::<O, S, H>(grid, params),
                (true, false) => Steps(Homes(each)).exchange::<O, S, H>(grid, params),
                (false, _) => chunks::exchange::<O, S, H>(grid, params, each),
            }
        }
    }
}

/// The steps, of which the first and the last are among the ranks that the value names.
struct Steps<A>(A);

impl<A: Among> Steps<A> {
    /// [`Protocol::exchange`].
    ///
    /// # Safety
    /// As for that; schedule and hooks are [of two steps](passes_on).
    #[inline(always)]
    unsafe fn exchange<O: Ops, S: Schedule, H: Unpack>(
        self,
        grid: Grid,
        params: &Params<O, S, H::Raw>,
    ) -> Flow {
        let Steps(among) = self;
        let (group, ops, shape) = (Block, &params.ops, &params.shape);
        let (first, second) = among.steps(params.schedule);
        // SAFETY: the caller's contract.
        let (watch, args) =
            unsafe { (Watch::begin(&group, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
        let (site, channel) = (Site::of(grid, params), grid.block);
        let me = site.me;
        let share = Share::of::<H>(shape.elements, shape.share, channel);
        if const { times::<H>() == 0 || A::ACROSS && S::FOLDS && H::PARTIALS == 0 } || share.packs == 0 {
            return Ok(());
        }
        watch.enter(&group)?;
        let member = among.member(me);
        let relays = among.relays(&params.schedule, me);
        let away = A::ROOTED && !is_home(me, first.root(), among.size(me.world));
        // What goes home is accumulators.
        let times = if S::FOLDS && away { H::PARTIALS } else { times::<H>() };
        let place = site.only(&first, channel);
        let longest = share.longest(relays.parts(), const { unit::<H>() });
        let call = longest.call(shape);
        let passed = Call { payload: call.payload * times as u64, ..call };
        let behind = channel + if S::MUTUAL || A::ROOTED { shape.channels } else { 0 };
        // From another domain comes what was passed on.
        let inward = if !S::FOLDS && away { behind } else { channel };
        // SAFETY: this block alone works these channels' ends; every turn goes on where the last one left off, since positions move with
        // `finish` alone.
        let sending = |peer, channel, call| unsafe { Sending::begin(ops, &watch, peer, channel, call) };
        // SAFETY: as above.
        let receiving = |peer, channel, call| unsafe { Receiving::begin(ops, &watch, peer, channel, call) };
        let total = stream_bytes(call.payload);
        // Across domains go accumulators, which hooks fold pack by pack.
        let ends = runs::ends::<H>(&args).filter(|_| !A::ACROSS);
        let mut from = 0;
        while from < total {
            let to = total.min(from.max(HEADER) + shape.chunk);
            let over = to == total;
            let (s0, count) = payload_packs(from, to, longest.packs);
            let part = |number: u32| {
                let part = share.part(longest.packs, number);
                let count = within(part.packs, s0, count) as usize;
                Part { first: part.first, packs: s0..s0 + count, before: 0 }
            };
            for Leg { peer, chunk, .. } in (1..=first.sends(me)).map(|leg| first.to(me, leg)) {
                let out = sending(peer, channel, call);
                out.reserve(&group, from, to)?;
                if S::FOLDS {
                    part(chunk).send::<O, H>(&place, &args, &out);
                } else {
                    // Nobody passes it on to the root.
                    part(chunk).send_once::<O, H>((&place, Kept::HERE), &args, slice::from_ref(&out));
                }
                out.publish(&group, from, to)?;
                if over {
                    out.finish(&group);
                }
            }
            // The same turn of the second step.
            let [from2, to2] = [from, to].map(|at| same_turn(at, times));
            let outs: Vec<_> =
                (1..=second.sends(me)).map(|leg| sending(second.to(me, leg).peer, behind, passed)).collect();
            for out in &outs {
                out.reserve(&group, from2, to2)?;
            }
            let inputs: Vec<_> = (1..=first.receives(me))
                .map(|leg| receiving(first.from(me, leg).peer, inward, call))
                .collect();
            if !inputs.is_empty() {
                let part = part(relays.part(member.rank));
                let made = S::FOLDS && ends.is_none();
                let own = if made { part.produced::<O, H>(&place, &args, &[]) } else { Vec::new() };
                for input in &inputs {
                    input.await_bytes(&group, from, to)?;
                }
                if S::FOLDS {
                    let payload = HEADER + (16 * s0 * times) as u64;
                    let takes = if A::ROOTED { outs.is_empty() } else { S::MUTUAL };
                    let (kept, then) = ((&place, Kept::HERE), Passed { outs: &outs, payload, takes });
                    match &ends {
                        Some(ends) => runs::fold::<O, H>(&part, kept, member, ends, &inputs, &then),
                        None if away => {
                            let partial = Partial { outs: &outs, payload };
                            part.fold::<O, H>(kept, member, &args, (&own, &inputs), &partial);
                        }
                        None if A::ACROSS => {
                            let crosses = if A::ROOTED { behind } else { channel };
                            let far = Far::of(&site, &watch, among, crosses, call);
                            let (turn, near) = ([from, to], (member, &own[..], &inputs[..]));
                            match const { A::ROOTED } {
                                true => far.join::<H>(turn, &part, (&place, &args), near, &then)?,
                                false => far.cross::<H>(turn, &part, (&place, &args), near, &then)?,
                            }
                        }
                        None => part.fold::<O, H>(kept, member, &args, (&own, &inputs), &then),
                    }
                } else {
                    part.forward::<O, H>(&place, &args, &inputs[0], (&part, &outs));
                }
            } else if A::ROOTED {
                // The root's own place has a part too.
                let part = part(relays.part(member.rank));
                part.send_once::<O, H>((&place, Kept::HERE), &args, &outs);
            }
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
            for Leg { peer, chunk, .. } in (1..=second.receives(me)).map(|leg| second.from(me, leg)) {
                let input = receiving(peer, behind, passed);
                input.await_bytes(&group, from2, to2)?;
                let part = part(chunk);
                match &ends {
                    Some((_, output)) => runs::take::<O, H>(&part, &place, output, &input),
                    None if S::FOLDS => part.take::<O, H>(&place, &args, &input),
                    None => part.receive::<O, H>(&place, &args, &input),
                }
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

impl Part {
    /// Takes what arrives, and stores it for each peer, as those packs of the streams to them.
    #[inline(always)]
    pub(super) fn forward<O: Ops, H: Hooks>(
        &self,
        place: &Ctx,
        args: &H::Args<'_>,
        from: &Receiving<'_, O>,
        (onward, outs): (&Part, &[Sending<'_, O>]),
    ) {
        for s in 0..self.packs.len() as u32 {
            // SAFETY: the pack has arrived, and is not overwritten before it is freed.
            let words = unsafe { arch::load_16(from.at(self.offset() + 16 * u64::from(s))) };
            onward.store(outs, s, Pack::<H::Wire>::from_words(words));
        }
        self.receive::<O, H>(place, args, from);
    }

    /// Takes what was folded for these packs.
    #[inline(always)]
    fn take<O: Ops, H: Hooks>(&self, place: &Ctx, args: &H::Args<'_>, from: &Receiving<'_, O>) {
        let (first, count) = ((self.first + self.packs.start) * H::RELAYS, self.packs.len() * H::RELAYS);
        let count = folded_for::<H>(place, first, count as u32);
        let payload = HEADER + (16 * self.packs.start * H::RELAYS) as u64;
        let (team, sink) = (Team::all(&Block), Folded::<H>(args));
        tile::consume::<tile::By<H>, H::Folded, _>(team, place, first, count, &sink, |s| {
            from.at(payload + 16 * u64::from(s))
        });
    }
}
