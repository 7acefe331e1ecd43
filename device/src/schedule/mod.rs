//! Schedules: who sends what to whom, in which order.
//!
//! | schedule | what it does |
//! |---|---|
//! | `sendrecv` | one chunk to `send_peer`, one from `recv_peer`; either may be left out |
//! | `all_to_all` | one chunk to and from every rank |
//! | [`custom`] | a function over [`Kernel`], with tiles or raw operations |
//!
//! The first two stand here once for each way in which bytes travel:
//!
//! | protocol | module | grid |
//! |---|---|---|
//! | staged | [`staged`] | `channels` senders, `channels` receivers, then the diagonal; `all_to_all`: or a multiple of each, which share the peers |
//! | staged, on CPU threads | `turns` | `all_to_all`: `channels` blocks |
//! | lines | [`lines`] | `all_to_all`: `channels` blocks, then the diagonal; `sendrecv`: senders, then receivers |
//! | direct | [`direct`] | `channels` blocks, then the diagonal |
//! | bulk | [`direct::bulk`] | `channels` blocks, then the diagonal |
//! | copy | [`direct::all_to_all_copy`], [`direct::sendrecv_copy`] | one block before the copy engine's work and one behind it |
//!
//! Hooks of `layout(transposed)` are called by [`tiles`] in all of them.
//!
//! A chunk is cut into one share a channel. A block works its channel towards all peers in turn, each rank beginning with its next
//! neighbour, so that at any time a rank's links carry one peer's data each way: few blocks then fill them. Blocks that wait for each
//! other must be resident together: the host refuses a grid that the device cannot hold.

mod custom;
pub mod direct;
pub mod lines;
pub(crate) mod span;
pub mod staged;
pub mod tiles;
#[cfg(not(target_arch = "nvptx64"))]
pub mod turns;

pub use custom::{Kernel, MOST_PACKS, Tile, custom};
pub use direct::{
    all_to_all_bulk, all_to_all_copy, all_to_all_direct, sendrecv_bulk, sendrecv_copy, sendrecv_direct,
};
pub use lines::{all_to_all_lines, sendrecv_lines};
pub use staged::{all_to_all, sendrecv};

use crate::arch;
use crate::channel::{CUT, Call};
use crate::ctx::Ctx;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::wait::{Control, Flow, Watch};
use span::Team;

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
    /// Staged: stream bytes that travel together; a multiple of 128, at most a quarter of a window. Bulk: bytes of a copy.
    pub chunk: u64,
    /// Agreed number of this kernel.
    pub kernel: u64,
    /// Packs of one channel's share: [`share_packs`], or more. Blocks of bulk copies take pieces in turn instead, and tiles are dealt out.
    pub share: u64,
    /// Packs of one diagonal block's share, where channels have shares. Bulk: of what it sends in lines, of each chunk.
    pub own_share: u64,
    /// Bulk: packs that each chunk begins with and that go in lines; else 0.
    pub first: u64,
    /// Direct, bulk, copy: address of a table of `world` addresses, where the output's symmetric allocation is mapped, by rank; else 0.
    pub outputs: u64,
    /// Direct: bytes from there to the output's first element; equal on all ranks.
    pub output_offset: u64,
    /// Bulk: address of the input's first element; else 0.
    pub input: u64,
    /// Lines of `layout(transposed)`: tiles of a chunk, if they travel tile by tile (see [`crate::line`]); else 0.
    pub tiles: u64,
    /// Channels used to each peer.
    pub channels: u32,
    /// `all_to_all`: blocks of the diagonal.
    pub diagonal: u32,
    /// `sendrecv`: where to send, or [`NOBODY`].
    pub send_peer: u32,
    /// `sendrecv`: from whom to receive, or [`NOBODY`].
    pub recv_peer: u32,
    /// Copy: 0 before the copies, 1 behind them.
    pub phase: u32,
    /// Direct: number of the output's symmetric allocation; equal on all ranks.
    pub allocation: u32,
    /// How chunks are cut: [`Shape::name_cut`]. A call names it to its peers beside its size.
    pub cut: u64,
}

impl Shape {
    /// The same with [`Shape::cut`] a digest of all that both ends of a channel cut by; `way` numbers the protocol, `copy` is the bytes of a
    /// bulk copy. Where it differs, what arrives would be taken for other packs.
    #[must_use]
    pub fn name_cut(self, way: u64, copy: u64) -> Self {
        let first = if self.first > 0 { [self.first, self.own_share] } else { [0; 2] };
        let parts = [way, copy, u64::from(self.channels), self.share, first[0], first[1]];
        let parts = parts.into_iter().chain([self.rows, self.cols, self.tiles]);
        let digest = parts.fold(0xcbf2_9ce4_8422_2325, |digest: u64, part| {
            (digest ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        Shape { cut: digest / CUT * CUT, ..self }
    }
}

/// Packs of each of `parts` shares of a chunk of `packs`: whole 128-byte lines, so that two blocks never share one.
pub const fn share_packs(packs: u64, parts: u32) -> u64 {
    packs.div_ceil(if parts == 0 { 1 } else { parts as u64 }).next_multiple_of(8)
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

/// The share of one block in a chunk: packs `first .. first + packs`.
#[derive(Clone, Copy)]
struct Share {
    first: usize,
    /// Fewer than 2^32: the host refuses larger shares.
    packs: u32,
}

impl Share {
    /// Share number `part` of `each` packs, of a chunk of `elements`.
    #[inline(always)]
    fn of<H: Hooks>(elements: u64, each: u64, part: u32) -> Self {
        let (first, packs) = cut(packs_of::<H>(elements), each, part);
        Share { first: first as usize, packs: packs as u32 }
    }

    /// The same, worked out here and now: the time before a wait is over is free.
    #[inline(always)]
    fn now(self) -> Self {
        let [first, packs] = [self.first as u64, u64::from(self.packs)].map(arch::late);
        Share { first: first as usize, packs: packs as u32 }
    }

    #[inline(always)]
    fn call(&self, shape: &Shape) -> Call {
        Call { kernel: shape.kernel, payload: 16 * u64::from(self.packs), cut: shape.cut }
    }
}

/// Part number `part` of `each`, of `packs`: its first, and how many.
#[inline(always)]
fn cut(packs: u64, each: u64, part: u32) -> (u64, u64) {
    let first = (each * u64::from(part)).min(packs);
    (first, (packs - first).min(each))
}

/// Packs of a chunk.
#[inline(always)]
fn packs_of<H: Hooks>(elements: u64) -> u64 {
    elements.div_ceil(Pack::<H::Wire>::LANES as u64)
}

/// The peers of an all-to-all, nearest first: in step `k` a rank sends to `to(k)` while it receives from `from(k)`.
#[derive(Clone, Copy)]
struct Ring {
    rank: u32,
    world: u32,
}

impl Ring {
    #[inline(always)]
    fn of<O: Ops>(ops: &O) -> Self {
        Ring { rank: ops.rank(), world: ops.world() }
    }

    #[inline(always)]
    fn to(self, step: u32) -> u32 {
        let peer = self.rank + step;
        if peer >= self.world { peer - self.world } else { peer }
    }

    #[inline(always)]
    fn from(self, step: u32) -> u32 {
        if step > self.rank { self.rank + self.world - step } else { self.rank - step }
    }
}

/// What part `part` of `parts` does of a chunk where every block may do any: a share of its own, or tiles of the whole, since a share
/// of few rows has none.
#[inline(always)]
fn work<H: Hooks>(elements: u64, each: u64, part: u32, parts: u32) -> (Team, Share) {
    if H::TRANSPOSED {
        let packs = packs_of::<H>(elements);
        (Team::among(&Block, part, parts), Share { first: 0, packs: packs as u32 })
    } else {
        (Team::all(&Block), Share::of::<H>(elements, each, part))
    }
}

/// A diagonal block's whole work: its part of the rank's own chunk, at `place`.
#[inline(always)]
fn own_share<O: Ops, H: Hooks>(
    ops: &O,
    watch: &Watch,
    shape: &Shape,
    place: &Ctx,
    part: u32,
    args: &H::Args<'_>,
) -> Flow {
    watch.enter(&Block)?;
    let (team, share) = work::<H>(shape.elements, shape.own_share, part, shape.diagonal);
    span::diagonal::<H>(team, place, share.first, share.packs, args);
    Block.sync();
    watch.check_panic(ops)
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
        shaped: None,
        beside: 0,
        most: chunk_start as usize,
        whole: false,
        thread: core::marker::PhantomData,
    }
}

#[cfg(test)]
mod tests {
    use super::{Ring, Shape, cut, share_packs, span};
    use crate::channel::{CUT, HEADER, stream_bytes};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_every_pack_once(elements in 0u64..100_000, shift in 1u32..5, parts in 1u32..40) {
            let packs = elements.div_ceil(1 << shift);
            let (each, mut next) = (share_packs(packs, parts), 0);
            for part in 0..parts {
                let (first, count) = cut(packs, each, part);
                prop_assert!(count == 0 || first == next);
                // Whole 128-byte lines, so that two blocks never share one.
                prop_assert!(count == 0 || first.is_multiple_of(8));
                next += count;
            }
            prop_assert_eq!(next, packs);
        }

        #[test]
        fn chunks_cover_every_pack_once(packs in 0u32..5000, lines in 1u64..40) {
            let (total, mut from, mut next) = (stream_bytes(16 * u64::from(packs)), 0, 0);
            while from < total {
                let to = total.min(from + 128 * lines);
                let (s0, count) = span::packs(from, to, packs);
                let s1 = s0 + count as usize;
                prop_assert!(count == 0 || s0 == next);
                prop_assert!(count == 0 || HEADER + 16 * s1 as u64 <= to);
                next = next.max(if count == 0 { 0 } else { s1 });
                from = to;
            }
            prop_assert_eq!(next, packs as usize);
        }
    }

    #[test]
    fn cuts_differ_in_name() {
        let plain: Shape = bytemuck::Zeroable::zeroed();
        let lines = Shape { first: 8, own_share: 8, ..plain };
        let shapes = [
            plain,
            Shape { channels: 1, ..plain },
            Shape { share: 1, ..plain },
            Shape { rows: 1, ..plain },
            Shape { cols: 1, ..plain },
            Shape { tiles: 1, ..plain },
            lines,
            Shape { first: 16, ..lines },
            Shape { own_share: 16, ..lines },
        ];
        let ways = [plain.name_cut(1, 0), plain.name_cut(0, 512)];
        let mut names: Vec<u64> =
            shapes.map(|s| s.name_cut(0, 0)).iter().chain(&ways).map(|s| s.cut).collect();
        assert!(names.iter().all(|name| name.is_multiple_of(CUT)), "{names:x?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), shapes.len() + ways.len());
        // Blocks of the rank's own chunk meet no peer.
        assert_eq!(Shape { own_share: 8, ..plain }.name_cut(0, 0).cut, plain.name_cut(0, 0).cut);
    }

    #[test]
    fn who_receives_in_a_step_is_who_is_sent_to() {
        for world in 1..9 {
            for rank in 0..world {
                for step in 1..world {
                    let to = Ring { rank, world }.to(step);
                    assert!(to < world && to != rank);
                    assert_eq!(Ring { rank: to, world }.from(step), rank);
                }
            }
        }
    }
}
