//! The simple protocol on CPU threads. There are few cores, and a thread that waits for another one costs more than what it waits for; so one
//! thread works both ends of its channel, to and from every peer, chunk by chunk in turn. What hooks leave as it is is copied in one
//! piece.

mod chunks;
mod domains;
mod relay;
mod runs;
mod turn;

use runs::Sent;
use turn::Passed;

pub use relay::{HostHierarchical, HostTwoShot};

use super::simple::channel::{HEADER, Receiving, Sending, payload_packs, stream_bytes};
use super::simple::{Here, Take};
use super::{Protocol, Share, Site};
use crate::arch;
use crate::args::Out;
use crate::ctx::Ctx;
use crate::element::Element;
use crate::fold::AHEAD;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::pack::{Pack, unroll};
use crate::row::walk;
use crate::schedule::{Leg, Member, Schedule, has_own};
use crate::tile::{self, Kept, Team, Then};
use crate::wait::{Flow, Watch};
use core::cell::RefCell;
use core::ops::Range;
use std::{vec, vec::Vec};

/// The protocol, as a type. Grid: `channels` blocks.
///
/// All ranks take their turns in one order: a part of what is sent on each leg, the same part of the self copy, a part of what each leg
/// brings. So a rank waits for room or for data only while the peer is at an earlier part, and the ranks cannot wait for each other in a circle.
#[derive(Debug)]
pub struct Host;

// SAFETY: as for `Simple`.
unsafe impl<O: Ops> Protocol<O> for Host {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        let (group, ops, shape, schedule) = (Block, &params.ops, &params.shape, &params.schedule);
        // SAFETY: the caller's contract.
        let (watch, args) =
            unsafe { (Watch::begin(&group, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
        let site = Site::of(grid, params);
        let (me, channel) = (site.me, grid.block);
        let share = Share::of::<H>(shape.elements, shape.share, channel);
        if share.packs == 0 {
            return Ok(());
        }
        watch.enter(&group)?;
        if ops.reads_processes()
            && 16 * share.packs as usize >= READ_BYTES
            && let (Some(input), Some(output)) = (H::sends_as_is(&args), H::keeps_as_is(&args))
        {
            return read_from_peers(&site, schedule, &watch, share, input, output);
        }
        let call = share.call(shape);
        let total = stream_bytes(call.payload);
        let ends = runs::ends::<H>(&args).filter(|_| has_own(schedule, me));
        let mut from = 0;
        while from < total {
            // Behind the header whole chunks, which may be of whole rows.
            let to = total.min(from.max(HEADER) + shape.chunk);
            let (s0, count) = payload_packs(from, to, share.packs);
            let part = Part { first: share.first, packs: s0..s0 + count as usize, before: 0 };
            // What is sent as it is is produced by nobody, if nothing is folded.
            let once = S::ONCE && (S::FOLDS || H::sends_as_is(&args).is_none()) && has_own(schedule, me);
            let (mut outs, mut own) = (Vec::new(), Vec::new());
            for leg in (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg)) {
                // SAFETY: this block alone works this channel's ends; every chunk goes on where the last one left off, since the
                // position moves with `finish` alone.
                let out = unsafe { Sending::begin(ops, &watch, leg.peer, channel, call) };
                out.reserve(&group, from, to)?;
                if once {
                    outs.push(out);
                    continue;
                }
                part.send::<O, H>(&site.at(leg, channel), &args, &out);
                out.publish(&group, from, to)?;
                if to == total {
                    out.finish(&group);
                }
            }
            let place = (&site.own(schedule, channel), site.kept(schedule));
            if ends.is_some() {
                outs.iter().for_each(|out| part.send::<O, H>(place.0, &args, out));
            } else if S::FOLDS && has_own(schedule, me) {
                own = part.produced::<O, H>(place.0, &args, &outs);
            } else if once {
                part.send_once::<O, H>(place, &args, &outs);
            } else if has_own(schedule, me) {
                part.keep::<H>(place, &args);
            }
            if once {
                for out in outs {
                    out.publish(&group, from, to)?;
                    if to == total {
                        out.finish(&group);
                    }
                }
            }
            // SAFETY: as above.
            let input = |leg: Leg| unsafe { Receiving::begin(ops, &watch, leg.peer, channel, call) };
            let legs = || (1..=schedule.receives(me)).map(|leg| schedule.from(me, leg));
            if S::FOLDS {
                let inputs: Vec<_> = legs().map(input).collect();
                for one in &inputs {
                    one.await_bytes(&group, from, to)?;
                }
                match &ends {
                    Some(ends) => runs::fold::<O, H>(&part, place, me, ends, &inputs, &Passed::NOWHERE),
                    None => part.fold::<O, H>(place, me, &args, (&own, &inputs), &Take),
                }
                for one in &inputs {
                    one.free(&group, to)?;
                    if to == total {
                        one.finish(&group);
                    }
                }
                from = to;
                continue;
            }
            for leg in legs() {
                let from_peer = input(leg);
                from_peer.await_bytes(&group, from, to)?;
                part.receive::<O, H>(&site.at(leg, channel), &args, &from_peer);
                from_peer.free(&group, to)?;
                if to == total {
                    from_peer.finish(&group);
                }
            }
            from = to;
        }
        Ok(())
    }
}

/// Shares of so many bytes and more, which hooks leave as they are, are not staged: the system copies them from the sender's memory
/// to the receiver's. Below, two copies are faster than asking it.
const READ_BYTES: usize = 16 << 10;

/// What a sender stages then: the header, and where the data are.
const ANNOUNCEMENT: u64 = stream_bytes(16);

/// A block's work, by reading what peers announce.
#[inline(always)]
fn read_from_peers<O: Ops, S: Schedule, W: Element>(
    site: &Site<'_, O>,
    schedule: &S,
    watch: &Watch,
    share: Share,
    input: &[W],
    output: Out<'_, W>,
) -> Flow {
    let (ops, me, channel) = (site.ops, site.me, site.grid.block);
    let part = Part { first: share.first, packs: 0..share.packs as usize, before: 0 };
    let call = share.call(site.shape);
    let sending = |peer: u32| {
        // SAFETY: this block alone works this channel's ends, and goes on where it left off; the position moves with `finish_at`.
        unsafe { Sending::begin(ops, watch, peer, channel, call) }
    };
    let sends = || (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg));
    for leg in sends() {
        let (start, len) = part.elements::<W>(&site.at(leg, channel));
        let from = input[start..start + len].as_ptr() as u64;
        let out = sending(leg.peer);
        out.reserve(&Block, 0, ANNOUNCEMENT)?;
        // SAFETY: reserved, and aligned since streams are multiples of 128.
        unsafe { arch::store_16(out.at(HEADER), [from as u32, (from >> 32) as u32, 0, 0]) };
        out.publish(&Block, 0, ANNOUNCEMENT)?;
    }
    if has_own(schedule, me) {
        part.copy((&site.own(schedule, channel), site.kept(schedule)), input, &output);
    }
    for leg in (1..=schedule.receives(me)).map(|leg| schedule.from(me, leg)) {
        // SAFETY: as for `sending`.
        let from_peer = unsafe { Receiving::begin(ops, watch, leg.peer, channel, call) };
        from_peer.await_bytes(&Block, 0, ANNOUNCEMENT)?;
        let (start, len) = part.elements::<W>(&site.at(leg, channel));
        // SAFETY: arrived, and aligned since streams are multiples of 128.
        let words = unsafe { arch::load_16(from_peer.at(HEADER)) };
        let from = u64::from(words[0]) | u64::from(words[1]) << 32;
        let to = output.run(start, len).cast();
        // SAFETY: the output's elements are these packs' own, whose `consume` this replaces.
        if !unsafe { ops.read_process(leg.peer, from, to, len * W::SIZE) } {
            return Err(from_peer.unreadable((len * W::SIZE) as u64));
        }
        from_peer.free(&Block, ANNOUNCEMENT)?;
        from_peer.finish_at(&Block, ANNOUNCEMENT);
    }
    // The input is the caller's again when this kernel has ended.
    for leg in sends() {
        let out = sending(leg.peer);
        out.await_freed(&Block, ANNOUNCEMENT)?;
        out.finish_at(&Block, ANNOUNCEMENT);
    }
    Ok(())
}

/// Stores a pack at byte `at` of the stream to each peer.
///
/// # Safety
/// Its places in the rings are reserved.
#[inline(always)]
unsafe fn store_for_each<O: Ops>(outs: &[Sending<'_, O>], at: u64, words: [u32; 4]) {
    for out in outs {
        // SAFETY: the caller's contract.
        unsafe { arch::store_16(out.at(at), words) };
    }
}

/// Stream packs of a channel whose share begins at chunk pack `first`.
struct Part {
    first: usize,
    packs: Range<usize>,
    /// Packs in the stream that are before the share's, of other chunks.
    before: usize,
}

impl Part {
    /// Index in the flat buffer of the first element, and the number of elements.
    #[inline(always)]
    fn elements<W: Element>(&self, place: &Ctx) -> (usize, usize) {
        // Of rows a pack need not have whole elements, but parts do.
        let of = |packs: usize| packs * 16 / W::SIZE;
        // A part without packs may begin behind the end.
        let start = of(self.first + self.packs.start).min(place.chunk_len);
        (place.chunk_start + start, of(self.packs.len()).min(place.chunk_len - start))
    }

    /// Where in the stream they begin.
    #[inline(always)]
    fn offset(&self) -> u64 {
        HEADER + 16 * (self.before + self.packs.start) as u64
    }

    #[inline(always)]
    fn send<O: Ops, H: Hooks>(&self, place: &Ctx, args: &H::Args<'_>, out: &Sending<'_, O>) {
        let Some(input) = Sent::of::<H>(args) else {
            let (first, count) = (self.first + self.packs.start, self.packs.len() as u32);
            let hooks = tile::Module::<H>(args);
            let team = Team::all(&Block);
            return tile::produce::<tile::By<H>, _, _>(team, place, first, count, &hooks, |s, _, pack| {
                // SAFETY: the ring's place of pack `s`, reserved for this block.
                unsafe { arch::store_16(out.at(self.offset() + 16 * u64::from(s)), pack.words()) };
            });
        };
        let (start, len) = self.elements::<H::Wire>(place);
        let from = input.run(start, len).cast::<u8>();
        for (done, to, bytes) in out.ring(self.offset()).pieces(len * H::Wire::SIZE) {
            // SAFETY: within what is sent; the ring's bytes are reserved for this block, and lie in one piece.
            unsafe { to.copy_from_nonoverlapping(from.add(done), bytes) };
        }
    }

    #[inline(always)]
    fn receive<O: Ops, H: Hooks>(&self, place: &Ctx, args: &H::Args<'_>, from: &Receiving<'_, O>) {
        let Some(output) = H::keeps_as_is(args) else {
            let (first, count) = (self.first + self.packs.start, self.packs.len() as u32);
            let hooks = tile::Module::<H>(args);
            let team = Team::all(&Block);
            return tile::consume::<tile::By<H>, _, _>(team, place, first, count, &hooks, |s| {
                from.at(self.offset() + 16 * u64::from(s))
            });
        };
        let (start, len) = self.elements::<H::Wire>(place);
        let to = output.run(start, len).cast::<u8>();
        for (done, from, bytes) in from.ring(self.offset()).pieces(len * H::Wire::SIZE) {
            // SAFETY: the bytes have arrived and lie in one piece; the output's elements are these packs' own, whose `consume`
            // this replaces.
            unsafe { to.add(done).copy_from_nonoverlapping(from, bytes) };
        }
    }

    /// Stores pack `s` of the part for each peer.
    #[inline(always)]
    fn store<O: Ops, W: Element>(&self, outs: &[Sending<'_, O>], s: u32, pack: Pack<W>) {
        // SAFETY: the pack's place, which is reserved; each pack is produced once.
        unsafe { store_for_each(outs, self.offset() + 16 * u64::from(s), pack.words()) };
    }

    /// Produces once, for every peer and for this rank.
    #[inline(always)]
    fn send_once<O: Ops, H: Hooks>(
        &self,
        (place, kept): (&Ctx, Kept),
        args: &H::Args<'_>,
        outs: &[Sending<'_, O>],
    ) {
        let (first, count) = (self.first + self.packs.start, self.packs.len() as u32);
        let (hooks, team) = (tile::Module::<H>(args), Team::all(&Block));
        let store = |s: u32, pack| self.store(outs, s, pack);
        if const { H::COLS > 0 } {
            // A row is kept as a whole.
            return walk::keep::<H>(team, (place, kept), first, count, args, Some(&store));
        }
        if outs.is_empty() {
            return tile::self_copy::<H>(team, (place, kept), first, count, args);
        }
        if const { !H::TRANSPOSED } {
            return tile::keep::<H, true>(team, (place, kept), first, count, args, &store);
        }
        tile::produce::<tile::By<H>, _, _>(team, place, first, count, &hooks, |s, ctx, pack| {
            store(s, pack);
            H::consume(&kept.at::<H>(ctx.at(ctx.pos, ctx.valid, ctx.whole)), args, pack);
        });
    }

    /// Produces this rank's own, which a fold takes, and sends it to `outs`.
    #[inline(always)]
    fn produced<O: Ops, H: Hooks>(
        &self,
        place: &Ctx,
        args: &H::Args<'_>,
        outs: &[Sending<'_, O>],
    ) -> Vec<Pack<H::Wire>> {
        let (first, count) = (self.first + self.packs.start, self.packs.len() as u32);
        let own = RefCell::new(vec![Pack::ZERO; count as usize]);
        let (hooks, team) = (tile::Module::<H>(args), Team::all(&Block));
        tile::produce::<tile::By<H>, _, _>(team, place, first, count, &hooks, |s, _, pack| {
            self.store(outs, s, pack);
            own.borrow_mut()[s as usize] = pack;
        });
        own.into_inner()
    }

    /// Folds this rank's own with what the rank `k` down sent by `inputs[k - 1]`.
    #[inline(always)]
    fn fold<O: Ops, H: Hooks>(
        &self,
        (place, kept): (&Ctx, Kept),
        me: Member,
        args: &H::Args<'_>,
        (own, inputs): (&[Pack<H::Wire>], &[Receiving<'_, O>]),
        then: &impl Then<H>,
    ) {
        let first = self.first + self.packs.start;
        if const { H::COLS > 0 } {
            let (team, count, ranks) = (Team::all(&Block), own.len() as u32, (None, me.world));
            let of = |rank, s| self.contribution(me, (own, inputs), rank, s as usize);
            return walk::fold::<H, 0>(team, (place, kept), (first, count), args, ranks, then, of);
        }
        let to = (place, kept);
        // Where ranks are few, their number is a constant: else every pack has a tree in memory.
        match me.world {
            2 => H::fold_part::<2, O>(self, to, me, args, (own, inputs), then),
            3 => H::fold_part::<3, O>(self, to, me, args, (own, inputs), then),
            4 => H::fold_part::<4, O>(self, to, me, args, (own, inputs), then),
            _ => H::fold_part::<0, O>(self, to, me, args, (own, inputs), then),
        }
    }

    /// What `rank` contributes to pack `s`.
    #[inline(always)]
    fn contribution<O: Ops, W: Element>(
        &self,
        me: Member,
        (own, inputs): (&[Pack<W>], &[Receiving<'_, O>]),
        rank: u32,
        s: usize,
    ) -> Pack<W> {
        if rank == me.rank {
            return own[s];
        }
        let at = inputs[me.down(rank) as usize - 1].at(self.offset() + 16 * s as u64);
        // SAFETY: the pack has arrived, and is not overwritten before it is freed.
        Pack::from_words(unsafe { arch::load_16(at) })
    }

    #[inline(always)]
    fn keep<H: Hooks>(&self, (place, kept): (&Ctx, Kept), args: &H::Args<'_>) {
        let (Some(input), Some(output)) = (H::sends_as_is(args), H::keeps_as_is(args)) else {
            let first = self.first + self.packs.start;
            let count = self.packs.len() as u32;
            return tile::self_copy::<H>(Team::all(&Block), (place, kept), first, count, args);
        };
        self.copy((place, kept), input, &output);
    }

    #[inline(always)]
    fn copy<W: Element>(&self, (place, kept): (&Ctx, Kept), input: &[W], output: &Out<'_, W>) {
        let (start, len) = self.elements::<W>(place);
        let from = input[start..start + len].as_ptr();
        let to = start - place.chunk_start + kept.start(place);
        // SAFETY: the output's elements are these packs' own; a launch's buffers do not overlap.
        unsafe { output.run(to, len).copy_from_nonoverlapping(from, len) };
    }
}

/// The loop over a part's packs. A function of its own: within the kernel, compilers give up inlining what it calls, and it takes twice as long. And one of the
/// hooks: rustc compiles it with their module.
trait FoldPart: Hooks + Sized {
    /// Folds what `N` ranks contribute, or if that is 0 as many as there are.
    #[inline(never)]
    fn fold_part<const N: usize, O: Ops>(
        part: &Part,
        (place, kept): (&Ctx, Kept),
        me: Member,
        args: &Self::Args<'_>,
        (own, inputs): (&[Pack<Self::Wire>], &[Receiving<'_, O>]),
        then: &impl Then<Self>,
    ) {
        let (first, lanes) = (part.first + part.packs.start, Pack::<Self::Wire>::LANES);
        let whole = tile::whole_until(place, lanes, first, own.len() as u32) as usize;
        for s in 0..own.len() {
            let ctx = kept.at::<Self>(tile::any(place, lanes, first + s, s < whole));
            if const { N > 0 } {
                let mut all = [own[s]; AHEAD];
                unroll!(N, |R| all[R] = part.contribution(me, (own, inputs), R as u32, s));
                then.fold(s as u32, &ctx, args, N as u32, &Here(all));
            } else {
                then.fold(s as u32, &ctx, args, me.world, &|first, some| {
                    let of = |k: usize| part.contribution(me, (own, inputs), first + k as u32, s);
                    Some(core::array::from_fn(|k| if (k as u32) < some { of(k) } else { own[s] }))
                });
            }
        }
    }
}

impl<H: Hooks> FoldPart for H {}
