//! Through rings of staging in the receiver's memory, with credits: any size, any transport.

pub(crate) mod call;
pub mod channel;
mod chunks;
mod domains;
mod fold;
mod forward;
mod homes;
mod once;
mod relay;
mod turns;

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use chunks::{Joined, Onward, Others, Taken};
pub use domains::Hierarchical;
pub(super) use fold::{Here, Packs, Take, fold_packs};
pub use relay::TwoShot;
pub(super) use relay::take;
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use relay::{Folded, folded_for, within};

use super::{Protocol, Share, Site, arguments, armed};
use crate::arch;
use crate::ctx::Ctx;
use crate::element::Element;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Shape, Unpack};
use crate::ops::Ops;
use crate::row;
use crate::schedule::{Schedule, has_own};
use crate::tile::{self, Sink, Source, Team, Unroll};
use crate::wait::{Flow, Watch};
use channel::{Call, End, HEADER, Receiving, Sending, payload_packs, stream_bytes};

/// What a block streams: packs `first .. first + packs` of the chunk at `place`, `chunk` stream bytes at a time, behind the header.
///
/// To hand bytes over takes a fence, and to see that the next ones may go takes a load of what the peer wrote: together about as long as
/// the bytes themselves. So the leader does both while the other warps are at those between; its own warp takes no part in that, and one
/// barrier a turn keeps them together. Such a look ahead needs a ring of three turns: a sender that waits for room holds one that it has
/// not handed over, and the receiver one that it has not given back. The host sees to four.
pub(crate) struct Stream<'k, O> {
    pub ops: &'k O,
    pub watch: &'k Watch,
    pub place: &'k Ctx,
    pub first: usize,
    pub packs: u32,
    pub chunk: u64,
    pub call: Call,
    /// This end of the channel, where it was worked out before memory could be looked at.
    pub end: Option<End>,
}

impl<O: Ops> Stream<'_, O> {
    /// Where the stream bytes end that travel together with those from `from` on.
    #[inline(always)]
    fn end(&self, from: u64) -> u64 {
        stream_bytes(self.call.payload).min(from.max(HEADER) + self.chunk)
    }

    /// Sends what `source` gives to the peer of `place`, on its channel.
    ///
    /// # Safety
    /// This group alone works the sending end of the channel; all its threads call.
    #[inline(always)]
    pub unsafe fn send<U: Unroll, W: Element, S: Source<W>, G: Group>(&self, group: &G, source: &S) -> Flow {
        let (peer, channel) = (self.place.peer as u32, self.place.channel as u32);
        let end = self.end.unwrap_or_else(|| End::of(self.ops, peer, channel, true));
        // SAFETY: the caller's contract.
        let out = unsafe { Sending::begin_at(self.ops, self.watch, (peer, channel), end, self.call) };
        let (mut before, mut from, mut to) = (0, 0, self.end(0));
        out.reserve(group, from, to)?;
        loop {
            let next = self.end(to);
            if from > 0 {
                out.hand_over(group, before, from);
            }
            let looks = next > to && group.leads();
            let ahead = if !late(S::COLS) && looks { out.await_room(next) } else { 0 };
            let (s0, count) = payload_packs(from, to, self.packs);
            let payload = HEADER + 16 * s0 as u64;
            // Tiles are long, and as many as there are warps.
            let team = if S::TRANSPOSED { Some(Team::all(group)) } else { Team::at_work(group, S::COLS) };
            if let Some(team) = team {
                tile::produce::<U, W, S>(team, self.place, self.first + s0, count, source, |s, _, pack| {
                    // SAFETY: the ring's place of pack `s`, reserved for this group; each pack is one thread's.
                    unsafe { arch::store_16(out.at(payload + 16 * u64::from(s)), pack.words()) };
                });
            }
            let found = if late(S::COLS) && looks { out.await_room(next) } else { ahead };
            if next == to {
                // Before the barrier: what follows on this channel begins there, while the leader still hands over.
                out.finish(group);
            }
            out.settle(group, found, next)?;
            self.watch.check_panic(self.ops)?;
            (before, from, to) = (from, to, next);
            if from == to {
                break;
            }
        }
        out.hand_over(group, before, from);
        Ok(())
    }

    /// Hands what the peer of `place` sends on its channel to `sink`.
    ///
    /// # Safety
    /// This group alone works the receiving end of the channel; all its threads call.
    #[inline(always)]
    pub unsafe fn receive<U: Unroll, W: Element, G: Group, S: Sink<W>>(&self, group: &G, sink: &S) -> Flow {
        let (peer, channel) = (self.place.peer as u32, self.place.channel as u32);
        let end = self.end.unwrap_or_else(|| End::of(self.ops, peer, channel, false));
        // SAFETY: the caller's contract.
        let input = unsafe { Receiving::begin_at(self.ops, self.watch, (peer, channel), end, self.call) };
        let (mut from, mut to) = (0, self.end(0));
        input.await_bytes(group, from, to)?;
        loop {
            let next = self.end(to);
            if from > 0 {
                give_back::<S, W, G, O>(&input, group, from);
            }
            let looks = next > to && group.leads();
            let ahead = if !late(S::COLS) && looks { input.await_more(next) } else { 0 };
            let (s0, count) = payload_packs(from, to, self.packs);
            let payload = HEADER + 16 * s0 as u64;
            if let Some(team) = Team::at_work(group, S::COLS) {
                tile::consume::<U, W, S>(team, self.place, self.first + s0, count, sink, |s| {
                    input.at(payload + 16 * u64::from(s))
                });
            }
            let found = if late(S::COLS) && looks { input.await_more(next) } else { ahead };
            if next == to {
                input.finish(group);
            }
            input.settle(group, found, next)?;
            self.watch.check_panic(self.ops)?;
            (from, to) = (to, next);
            if from == to {
                break;
            }
        }
        give_back::<S, W, G, O>(&input, group, from);
        Ok(())
    }
}

/// Gives the ring's bytes up to `to` back. A barrier alone does not wait for loads whose values nothing has needed yet.
#[inline(always)]
fn give_back<S: Sink<W>, W, G: Group, O: Ops>(input: &Receiving<'_, O>, group: &G, to: u64) {
    if S::KEEPS && group.leads() {
        arch::fence_system();
    }
    input.give_back(group, to);
}

/// Whether a leader waits for the next chunk when this one is done, and not while the others are at it: on the host there are no others, and
/// where warps share rows it works with them.
const fn late(cols: usize) -> bool {
    cfg!(not(target_arch = "nvptx64")) || row::shares_warps(cols)
}

/// One end of `share`, a block's of the chunk at `place`.
#[inline(always)]
fn stream<H: Hooks, O: Ops>(
    ops: &O,
    watch: &Watch,
    shape: &Shape,
    (place, share, end): (&Ctx, Share, Option<End>),
    args: &H::Args<'_>,
    sends: bool,
) -> Flow {
    if share.packs == 0 {
        return Ok(());
    }
    let call = share.call(shape);
    let Share { first, packs } = share;
    let stream = Stream { ops, watch, place, first, packs, chunk: shape.chunk, call, end };
    let hooks = tile::Module::<H>(args);
    // SAFETY: each block has its own channel end.
    unsafe {
        match sends {
            true => stream.send::<tile::By<H>, _, _, Block>(&Block, &hooks),
            false => stream.receive::<tile::By<H>, _, Block, _>(&Block, &hooks),
        }
    }
}

/// Blocks that share the peers of a channel at most.
pub const MOST_GROUPS: u32 = 15;

/// Where a block is: its channel, its leg, and how many legs it goes from one to the next. In one word, since it is kept
/// in a register through all that a hook does: 12 bits (a GPU holds fewer blocks), 16 (a world has fewer ranks) and 4.
#[derive(Clone, Copy)]
struct Turn(u32);

impl Turn {
    /// The first of block `block` of `blocks` at one end of all channels. These are as many as the channels, or a multiple of that: then the
    /// peers are dealt out to the blocks of a channel, which takes more blocks, and not one wait and one fence for each peer after the other.
    #[inline(always)]
    fn first<S: Schedule>(block: u32, blocks: u32, channels: u32) -> Self {
        if const { S::MOST_LEGS == 1 } {
            return Turn(block << 20 | 1 << 16 | 1);
        }
        // By subtraction: these are few, and a division is long.
        let (mut channel, mut leg) = (block, 1);
        while channel >= channels {
            (channel, leg) = (channel - channels, leg + 1);
        }
        let (mut left, mut stride) = (blocks - channels, 1);
        while left >= channels {
            (left, stride) = (left - channels, stride + 1);
        }
        Turn(channel << 20 | stride << 16 | leg)
    }

    /// The same, worked out by now.
    #[inline(always)]
    fn now(self) -> Self {
        Turn(arch::late(u64::from(self.0)) as u32)
    }

    #[inline(always)]
    fn channel(self) -> u32 {
        self.0 >> 20
    }

    #[inline(always)]
    fn leg(self) -> u32 {
        self.0 & 0xffff
    }

    #[inline(always)]
    fn next(&mut self) {
        let turn = arch::opaque(self.0 as usize) as u32;
        self.0 = turn + (turn >> 16 & 15);
    }
}

/// The protocol, as a type.
///
/// Grid: senders, receivers (as many, where a rank does both), then `self_copy` blocks. There are `channels` of each, or two, three.. up to one
/// for each peer times as many.
#[derive(Debug)]
pub struct Simple;

// SAFETY: a sender stores into staging that the receiver has freed, and a receiver takes what was announced.
unsafe impl<O: Ops> Protocol<O> for Simple {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
        // SAFETY: the caller's contract.
        let armed = unsafe { armed::<O, S, H>(grid, params) };
        // SAFETY: the caller's contract.
        let args = unsafe { arguments::<H>(&params.raw) };
        let site = Site::of(grid, params);
        let me = site.me;
        let [sends, receives] = [schedule.sends(me), schedule.receives(me)];
        let produces = if S::ONCE { has_own(schedule, me) } else { sends > 0 };
        // Blocks at each end of the channels.
        let each = match (S::MOST_LEGS == 1 || S::ONCE || S::FOLDS, produces, receives > 0) {
            (true, ..) => shape.channels,
            (_, false, false) => 0,
            (_, true, true) => (grid.blocks - shape.self_copy) / 2,
            _ => grid.blocks - shape.self_copy,
        };
        let senders = if S::MUTUAL || produces { each } else { 0 };
        let ends = if S::MUTUAL { 2 * each } else { senders + if receives > 0 { each } else { 0 } };
        if const { S::ONCE || S::FOLDS } {
            let senders = if S::FOLDS && sends == 0 { 0 } else { senders };
            let sends = grid.block < senders;
            let channel = if sends { grid.block } else { grid.block - senders };
            let share = Share::of::<H>(shape.elements, shape.share, channel);
            let watch = &armed.led(&Block);
            let args = args.now(watch.behind());
            // SAFETY: each block has its own channel end.
            return unsafe {
                match sends {
                    true if S::ONCE => once::send::<O, S, H>(&site, schedule, watch, share, args),
                    true => fold::send::<O, S, H>(&site, schedule, watch, share, args),
                    false if S::FOLDS => {
                        fold::receive::<O, S, H>(&site, schedule, watch, (channel, share), args)
                    }
                    false => once::receive::<O, S, H>(&site, schedule, watch, (channel, share), args),
                }
            };
        }
        if S::OWN && grid.block >= ends {
            let watch = armed.led(&Block);
            return site.self_copy::<S, H>(schedule, &watch, grid.block - ends, args.now(watch.behind()));
        }
        let is_sender = grid.block < senders;
        let block = if is_sender { grid.block } else { grid.block - senders };
        let mut turn = Turn::first::<S>(block, each, shape.channels);
        if const { S::MOST_LEGS > 1 } {
            turn = turn.now();
        }
        let share = Share::of::<H>(shape.elements, shape.share, turn.channel());
        // Not of many legs: its first pack's place would become one from which a bundle's places are not constants apart.
        let share = if const { S::MOST_LEGS == 1 } { share.now() } else { share };
        let leg = if is_sender { schedule.to(me, turn.leg()) } else { schedule.from(me, turn.leg()) };
        let (mut watch, mut first) = armed.first_of(End::of(ops, leg.peer, turn.channel(), is_sender).now());
        // Not before the loops: what they work out once they work out while the kernel before this one on the stream still runs.
        // One loop for each end: a hook in both would make each block as large as the larger one.
        if is_sender {
            // (Not `<=`: what a world has is a parameter, one less is a register.)
            while turn.leg() < sends + 1 {
                let (watch, end) = watch.led(&mut first, &Block);
                let place = site.at(schedule.to(me, turn.leg()), turn.channel());
                stream::<H, O>(ops, watch, shape, (&place, share, end), args.now(watch.behind()), true)?;
                if const { S::MOST_LEGS == 1 } {
                    break;
                }
                turn.next();
            }
        } else {
            while turn.leg() < receives + 1 {
                let (watch, end) = watch.led(&mut first, &Block);
                let place = site.at(schedule.from(me, turn.leg()), turn.channel());
                stream::<H, O>(ops, watch, shape, (&place, share, end), args.now(watch.behind()), false)?;
                if const { S::MOST_LEGS == 1 } {
                    break;
                }
                turn.next();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::channel::{HEADER, payload_packs, stream_bytes};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_cover_every_pack_once(packs in 0u32..5000, lines in 1u64..40) {
            let (total, mut from, mut next) = (stream_bytes(16 * u64::from(packs)), 0, 0);
            while from < total {
                let to = total.min(from + 128 * lines);
                let (s0, count) = payload_packs(from, to, packs);
                let s1 = s0 + count as usize;
                prop_assert!(count == 0 || s0 == next);
                prop_assert!(count == 0 || HEADER + 16 * s1 as u64 <= to);
                next = next.max(if count == 0 { 0 } else { s1 });
                from = to;
            }
            prop_assert_eq!(next, packs as usize);
        }
    }
}
