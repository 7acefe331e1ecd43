//! Schedules: who sends what to whom, in which order.
//!
//! | schedule | grid | what it does |
//! |---|---|---|
//! | [`sendrecv`] | senders, then receivers | one chunk to `send_peer`, one from `recv_peer`; either may be left out |
//! | [`all_to_all`] | (peer, channel, direction), then the diagonal | one chunk to and from every rank |
//! | [`custom`] | the user's | a function over [`Kernel`], with tiles or raw operations |
//!
//! A block works one end of one channel, or copies a part of the diagonal. Blocks that wait for each other must be resident together:
//! the host refuses a grid that the device cannot hold.

mod custom;
mod span;
#[cfg(not(target_arch = "nvptx64"))]
pub mod turns;

pub use custom::{Kernel, Tile, custom};

use crate::channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use crate::ctx::Ctx;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::line;
use crate::ops::{Direct, Ops};
use crate::pack::Pack;
use crate::wait::{Control, Flow, Stopped, Watch};

/// Geometry of one launch; equal on all ranks but for the peers of `sendrecv`.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Shape {
    /// Elements of one peer's chunk.
    pub elements: u64,
    /// Rows of a chunk; 1 where no shape was given.
    pub rows: u64,
    /// Columns of a chunk; `elements` where no shape was given.
    pub cols: u64,
    /// Stream bytes that travel together; a multiple of 128, at most half a window.
    pub chunk: u64,
    /// Agreed number of this kernel.
    pub kernel: u64,
    /// Channels used to each peer.
    pub channels: u32,
    /// `all_to_all`: blocks of the diagonal.
    pub diagonal: u32,
    /// `sendrecv`: where to send, or [`NOBODY`].
    pub send_peer: u32,
    /// `sendrecv`: from whom to receive, or [`NOBODY`].
    pub recv_peer: u32,
}

/// No peer.
pub const NOBODY: u32 = u32::MAX;

/// What a kernel is launched with: one plain value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Params<O, R> {
    /// The transport's device half.
    pub ops: O,
    /// Abort word, record, deadline.
    pub control: Control,
    /// Geometry.
    pub shape: Shape,
    /// The user's arguments as they cross.
    pub raw: R,
}

/// Where a block is.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Index of this block.
    pub block: u32,
    /// Blocks.
    pub blocks: u32,
}

impl Grid {
    /// The grid of the running kernel.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub fn here() -> Self {
        Grid { block: crate::arch::block_index(), blocks: crate::arch::block_count() }
    }
}

/// A raw argument struct that becomes a hook's arguments.
///
/// # Safety
/// `Raw` is `repr(C)` plain data; `unpack` upholds the contracts of [`RawSlice::slice`](crate::args::RawSlice::slice) and the output types.
pub unsafe trait Unpack: Hooks {
    /// What crosses from host to device.
    type Raw: Copy + Send + Sync + 'static;
    /// The arguments as hooks see them.
    ///
    /// # Safety
    /// `raw` was made by a launch that checked every slice and keeps them alive for `'a`.
    unsafe fn unpack<'a>(raw: &Self::Raw) -> Self::Args<'a>;
}

/// The share of one channel in a chunk: packs `first .. first + packs`, `payload` bytes on the wire.
#[derive(Clone, Copy)]
struct Share {
    first: usize,
    packs: usize,
}

impl Share {
    /// Cuts `elements` into packs of `lanes` and those into `parts` runs of whole 128-byte lines.
    #[inline(always)]
    fn of(elements: u64, lanes: usize, part: u32, parts: u32) -> Self {
        let packs = elements.div_ceil(lanes as u64);
        let each = packs.div_ceil(u64::from(parts)).next_multiple_of(8);
        let first = (each * u64::from(part)).min(packs);
        Share { first: first as usize, packs: (packs - first).min(each) as usize }
    }

    #[inline(always)]
    fn call(&self, kernel: u64) -> Call {
        Call { kernel, payload: 16 * self.packs as u64 }
    }
}

#[inline(always)]
fn place<O: Ops>(ops: &O, grid: Grid, shape: &Shape, peer: u32, channel: u32, chunk_start: u64) -> Ctx {
    Ctx {
        rank: ops.rank() as usize,
        peer: peer as usize,
        world: ops.world() as usize,
        block: grid.block as usize,
        channel: channel as usize,
        chunk_start: chunk_start as usize,
        chunk_len: shape.elements as usize,
        pos: 0,
        valid: 0,
        rows: shape.rows as usize,
        cols: shape.cols as usize,
        whole: false,
        thread: core::marker::PhantomData,
    }
}

/// Sends this channel's share of the chunk at `place` to `place.peer`.
#[inline(always)]
fn send_share<O: Ops, H: Hooks, G: Group>(
    group: &G,
    ops: &O,
    watch: &Watch,
    shape: &Shape,
    place: &Ctx,
    args: &H::Args<'_>,
) -> Flow {
    let share = Share::of(shape.elements, Pack::<H::Wire>::LANES, place.channel as u32, shape.channels);
    if share.packs == 0 {
        return Ok(());
    }
    let call = share.call(shape.kernel);
    // SAFETY: schedules give each block its own channel end.
    let out = unsafe { Sending::begin(ops, watch, place.peer as u32, place.channel as u32, call) };
    let total = stream_bytes(call.payload);
    let mut from = 0;
    while from < total {
        let to = total.min(from + shape.chunk);
        out.reserve(group, from, to)?;
        let (s0, s1) = span::packs(from, to, share.packs);
        let hooks = span::Module::<H>(args);
        span::produce::<span::By<H>, _, G>(group, place, share.first, s0, s1, &hooks, |s| {
            out.at(HEADER + 16 * s as u64)
        });
        out.publish(group, from, to)?;
        from = to;
    }
    out.finish(group);
    Ok(())
}

/// Receives this channel's share of the chunk at `place` from `place.peer`.
#[inline(always)]
fn recv_share<O: Ops, H: Hooks, G: Group>(
    group: &G,
    ops: &O,
    watch: &Watch,
    shape: &Shape,
    place: &Ctx,
    args: &H::Args<'_>,
) -> Flow {
    let share = Share::of(shape.elements, Pack::<H::Wire>::LANES, place.channel as u32, shape.channels);
    if share.packs == 0 {
        return Ok(());
    }
    let call = share.call(shape.kernel);
    // SAFETY: schedules give each block its own channel end.
    let from_peer = unsafe { Receiving::begin(ops, watch, place.peer as u32, place.channel as u32, call) };
    let total = stream_bytes(call.payload);
    let mut from = 0;
    while from < total {
        let to = total.min(from + shape.chunk);
        from_peer.await_bytes(group, from, to)?;
        let (s0, s1) = span::packs(from, to, share.packs);
        let hooks = span::Module::<H>(args);
        span::consume::<span::By<H>, _, G>(group, place, share.first, s0, s1, &hooks, |s| {
            from_peer.at(HEADER + 16 * s as u64)
        });
        from_peer.free(group, to)?;
        from = to;
    }
    from_peer.finish(group);
    Ok(())
}

/// One chunk to `shape.send_peer` and one from `shape.recv_peer`. Grid: `channels` senders if there is a send peer, then `channels`
/// receivers if there is one to receive from.
///
/// # Safety
/// `params` was made by a checked launch; called by all threads of every block of the grid.
#[inline(always)]
pub unsafe fn sendrecv<O: Ops, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (group, ops, shape) = (Block, &params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin(&group, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let senders = if shape.send_peer == NOBODY { 0 } else { shape.channels };
    if grid.block < senders {
        let place = place(ops, grid, shape, shape.send_peer, grid.block, 0);
        send_share::<O, H, Block>(&group, ops, &watch, shape, &place, &args)
    } else {
        let place = place(ops, grid, shape, shape.recv_peer, grid.block - senders, 0);
        recv_share::<O, H, Block>(&group, ops, &watch, shape, &place, &args)
    }
}

/// One chunk to and from every rank; this rank's own goes from `produce` to `consume` in registers.
/// Grid: `2 * channels * (world - 1) + diagonal` blocks.
///
/// # Safety
/// As for [`sendrecv`].
#[inline(always)]
pub unsafe fn all_to_all<O: Ops, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (group, ops, shape) = (Block, &params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin(&group, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let (rank, world) = (ops.rank(), ops.world());
    let wired = 2 * shape.channels * (world - 1);
    if grid.block >= wired {
        watch.enter(&group)?;
        let place = place(ops, grid, shape, rank, 0, u64::from(rank) * shape.elements);
        let share = Share::of(shape.elements, Pack::<H::Wire>::LANES, grid.block - wired, shape.diagonal);
        span::diagonal::<H, Block>(&group, &place, share.first, share.packs, &args);
        group.sync();
        return watch.check_panic(ops);
    }
    // Neighbours first, and for a receiver the mirror image of its senders' order.
    let (sends, turn) = (grid.block & 1 == 0, grid.block >> 1);
    let (step, channel) = (1 + turn % (world - 1), turn / (world - 1));
    let peer = if sends { (rank + step) % world } else { (rank + world - step) % world };
    let place = place(ops, grid, shape, peer, channel, u64::from(peer) * shape.elements);
    if sends {
        send_share::<O, H, Block>(&group, ops, &watch, shape, &place, &args)
    } else {
        recv_share::<O, H, Block>(&group, ops, &watch, shape, &place, &args)
    }
}

/// [`all_to_all`] for small chunks, by lines that carry their flags: no fence, no staging, no flag of its own.
/// Grid: `channels * (world - 1) + diagonal` blocks; a channel carries at most [`line::PACKS`] packs.
///
/// # Safety
/// As for [`sendrecv`].
#[inline(always)]
pub unsafe fn all_to_all_lines<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (group, ops, shape) = (Block, &params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin_all(&group, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let (rank, world) = (ops.rank(), ops.world());
    let wired = shape.channels * (world - 1);
    let lanes = Pack::<H::Wire>::LANES;
    if grid.block >= wired {
        if watch.poisoned() {
            return Err(Stopped);
        }
        let place = place(ops, grid, shape, rank, 0, u64::from(rank) * shape.elements);
        let share = Share::of(shape.elements, lanes, grid.block - wired, shape.diagonal);
        span::diagonal::<H, Block>(&group, &place, share.first, share.packs, &args);
        group.sync();
        return watch.check_panic(ops);
    }
    let (step, channel) = (1 + grid.block % (world - 1), grid.block / (world - 1));
    let share = Share::of(shape.elements, lanes, channel, shape.channels);
    if share.packs == 0 {
        return Ok(());
    }
    let at = |peer: u32| place(ops, grid, shape, peer, channel, u64::from(peer) * shape.elements);
    let (to, from) = (at((rank + step) % world), at((rank + world - step) % world));
    // All channels name the whole call: `payload` is the chunk's, not the share's.
    let call = Call { kernel: shape.kernel, payload: 16 * shape.elements.div_ceil(lanes as u64) };
    // SAFETY: each block works its own line channel.
    unsafe {
        line::exchange::<O, H, Block>(&group, ops, &watch, call, &to, &from, share.first, share.packs, &args)
    }
}

#[cfg(test)]
mod tests {
    use super::{Share, span};
    use crate::channel::{HEADER, stream_bytes};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_every_pack_once(elements in 0u64..100_000, shift in 1u32..5, parts in 1u32..40) {
            let lanes = 1usize << shift;
            let mut next = 0;
            for part in 0..parts {
                let share = Share::of(elements, lanes, part, parts);
                prop_assert!(share.packs == 0 || share.first == next);
                // Whole 128-byte lines, so that two blocks never share one.
                prop_assert!(share.packs == 0 || share.first.is_multiple_of(8));
                next += share.packs;
            }
            prop_assert_eq!(next as u64, elements.div_ceil(lanes as u64));
        }

        #[test]
        fn chunks_cover_every_pack_once(packs in 0usize..5000, lines in 1u64..40) {
            let (total, mut from, mut next) = (stream_bytes(16 * packs as u64), 0, 0);
            while from < total {
                let to = total.min(from + 128 * lines);
                let (s0, s1) = span::packs(from, to, packs);
                prop_assert!(s0 >= s1 || s0 == next);
                prop_assert!(s0 >= s1 || HEADER + 16 * s1 as u64 <= to);
                next = next.max(s1);
                from = to;
            }
            prop_assert_eq!(next, packs);
        }
    }
}
