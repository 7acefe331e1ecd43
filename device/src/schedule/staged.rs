//! Through rings of staging in the receiver's memory, with credits: any size, any transport.

use super::span::{self, Sink, Source, Team, Unroll};
use super::{Grid, NOBODY, Params, Ring, Shape, Share, Unpack, own_share, place};
use crate::arch;
use crate::channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use crate::ctx::Ctx;
use crate::element::Element;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::ops::Ops;
use crate::wait::{Flow, Watch};

/// What a block streams: packs `first .. first + packs` of the chunk at `place`, `chunk` stream bytes at a time.
pub(super) struct Stream<'k, O> {
    pub ops: &'k O,
    pub watch: &'k Watch,
    pub place: &'k Ctx,
    pub first: usize,
    pub packs: u32,
    pub chunk: u64,
    pub call: Call,
}

impl<O: Ops> Stream<'_, O> {
    /// Sends what `source` gives to the peer of `place`, on its channel.
    ///
    /// # Safety
    /// This group alone works the sending end of the channel; all its threads call.
    #[inline(always)]
    pub unsafe fn send<U: Unroll, W: Element, G: Group>(&self, group: &G, source: &impl Source<W>) -> Flow {
        let (peer, channel) = (self.place.peer as u32, self.place.channel as u32);
        // SAFETY: the caller's contract.
        let out = unsafe { Sending::begin(self.ops, self.watch, peer, channel, self.call) };
        let total = stream_bytes(self.call.payload);
        let mut from = 0;
        while from < total {
            let to = total.min(from + self.chunk);
            out.reserve(group, from, to)?;
            let (s0, count) = span::packs(from, to, self.packs);
            let payload = HEADER + 16 * s0 as u64;
            span::produce::<U, W, _>(
                Team::all(group),
                self.place,
                self.first + s0,
                count,
                source,
                |s, _, pack| {
                    // SAFETY: the ring's place of pack `s`, reserved for this group; each pack is one thread's.
                    unsafe { arch::store_16(out.at(payload + 16 * u64::from(s)), pack.words()) };
                },
            );
            out.publish(group, from, to)?;
            from = to;
        }
        out.finish(group);
        Ok(())
    }

    /// Hands what the peer of `place` sends on its channel to `sink`.
    ///
    /// # Safety
    /// This group alone works the receiving end of the channel; all its threads call.
    #[inline(always)]
    pub unsafe fn receive<U: Unroll, W: Element, G: Group>(&self, group: &G, sink: &impl Sink<W>) -> Flow {
        let (peer, channel) = (self.place.peer as u32, self.place.channel as u32);
        // SAFETY: the caller's contract.
        let input = unsafe { Receiving::begin(self.ops, self.watch, peer, channel, self.call) };
        let total = stream_bytes(self.call.payload);
        let mut from = 0;
        while from < total {
            let to = total.min(from + self.chunk);
            input.await_bytes(group, from, to)?;
            let (s0, count) = span::packs(from, to, self.packs);
            let payload = HEADER + 16 * s0 as u64;
            span::consume::<U, W>(Team::all(group), self.place, self.first + s0, count, sink, |s| {
                input.at(payload + 16 * u64::from(s))
            });
            input.free(group, to)?;
            from = to;
        }
        input.finish(group);
        Ok(())
    }
}

/// One end of a block's share of the chunk at `place`.
#[inline(always)]
fn stream<H: Hooks, O: Ops>(
    ops: &O,
    watch: &Watch,
    shape: &Shape,
    place: &Ctx,
    args: &H::Args<'_>,
    sends: bool,
) -> Flow {
    let share = Share::of::<H>(shape.elements, shape.share, place.channel as u32);
    if share.packs == 0 {
        return Ok(());
    }
    let call = share.call(shape.kernel);
    let Share { first, packs } = share;
    let stream = Stream { ops, watch, place, first, packs, chunk: shape.chunk, call };
    let hooks = span::Module::<H>(args);
    // SAFETY: schedules give each block its own channel end.
    unsafe {
        match sends {
            true => stream.send::<span::By<H>, _, Block>(&Block, &hooks),
            false => stream.receive::<span::By<H>, _, Block>(&Block, &hooks),
        }
    }
}

/// One chunk to `shape.send_peer` and one from `shape.recv_peer`. Grid: `channels` senders if there is a send peer, then `channels`
/// receivers if there is one to receive from.
///
/// # Safety
/// `params` was made by a checked launch; called by all threads of every block of the grid.
#[inline(always)]
pub unsafe fn sendrecv<O: Ops, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin(&Block, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let senders = if shape.send_peer == NOBODY { 0 } else { shape.channels };
    if grid.block < senders {
        let place = place(ops, grid, shape, shape.send_peer, grid.block, 0);
        stream::<H, O>(ops, &watch, shape, &place, &args, true)
    } else {
        let place = place(ops, grid, shape, shape.recv_peer, grid.block - senders, 0);
        stream::<H, O>(ops, &watch, shape, &place, &args, false)
    }
}

/// One chunk to and from every rank; this rank's own goes from `produce` to `consume` in registers.
/// Grid: `channels` senders, `channels` receivers (none of either in a world of one rank), then `diagonal` blocks.
///
/// # Safety
/// As for [`sendrecv`].
#[inline(always)]
pub unsafe fn all_to_all<O: Ops, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin(&Block, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let ring = Ring::of(ops);
    let ends = if ring.world == 1 { 0 } else { shape.channels };
    let at = |peer: u32, channel| place(ops, grid, shape, peer, channel, u64::from(peer) * shape.elements);
    if grid.block >= 2 * ends {
        return own_share::<O, H>(ops, &watch, shape, &at(ring.rank, 0), grid.block - 2 * ends, &args);
    }
    // One loop for each end: a hook in both would make each block as large as the larger one.
    if grid.block < ends {
        let mut step = 1;
        while step < ring.world {
            stream::<H, O>(ops, &watch, shape, &at(ring.to(step), grid.block), &args, true)?;
            step += 1;
        }
    } else {
        for step in 1..ring.world {
            stream::<H, O>(ops, &watch, shape, &at(ring.from(step), grid.block - ends), &args, false)?;
        }
    }
    Ok(())
}
