//! What a kernel is launched with: one plain value, made by a host that has checked it.

use crate::hooks::Hooks;
use crate::protocol::simple::call::CUT;
use crate::wait::Control;

/// Of [`Shape::flags`]: the kernel behind the copy engine's copies, and not the one before them.
pub const BEHIND: u32 = 1;
/// Of [`Shape::flags`]: some slice does not begin at a multiple of 16 bytes, so that hooks' packs go element by element.
pub const UNALIGNED: u32 = 2;
/// Of [`Shape::flags`]: what a rank alone loads is replaced in the L2 cache in the usual order, not first.
pub const EVICT_NORMAL: u32 = 4;
/// Of [`Shape::flags`]: a rank alone that loads a row prefetches one further on into the L2 cache.
pub const PREFETCH: u32 = 8;

/// Geometry of one launch; equal on all ranks, but for what is said to be a rank's own.
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
    /// Simple: stream bytes that travel together; a multiple of 128, at most a quarter of a window. Bulk: bytes of a copy.
    pub chunk: u64,
    /// Agreed number of this kernel.
    pub kernel: u64,
    /// Packs of one channel's share: [`share_packs`], or more. Blocks of bulk copies take pieces in turn instead, and tiles are dealt out.
    pub share: u64,
    /// Packs of the share of a block of the self copy, where channels have shares. Bulk: of the LL128 prefix, of each chunk.
    pub own_share: u64,
    /// Bulk: packs that each chunk begins with and that go by LL128; else 0.
    pub first: u64,
    /// Direct, bulk, copy engine: address of a table of `world` addresses, where the output's symmetric allocation is mapped, by rank; else 0.
    pub outputs: u64,
    /// Direct: bytes from there to the output's first element; equal on all ranks.
    pub output_offset: u64,
    /// Bulk: address of the input's first element; else 0.
    pub input: u64,
    /// LL128 of `layout(transposed)`: tiles of a chunk, if they travel tile by tile (see [`crate::protocol::ll128`]); else 0.
    pub tiles: u64,
    /// Channels used to each peer.
    pub channels: u32,
    /// Blocks of the self copy: those that bring a rank's own chunk from `produce` to `consume`.
    pub self_copy: u32,
    /// [`UNALIGNED`], of the copy engine [`BEHIND`], of a rank alone [`EVICT_NORMAL`] and [`PREFETCH`]; a rank's own.
    pub flags: u32,
    /// Direct: number of the output's symmetric allocation; equal on all ranks.
    pub allocation: u32,
    /// How chunks are cut: [`Shape::name_cut`]. A call names it to its peers beside its size.
    pub cut: u64,
}

impl Shape {
    /// The same with [`Shape::cut`] a digest of all that both ends of a channel cut by; `way` numbers the protocol, `copy` is the bytes of a
    /// bulk copy or, by domains, of a piece, `root` the schedule's. Where it differs, what arrives would be taken for other packs.
    #[must_use]
    pub fn name_cut(self, way: u64, copy: u64, root: Option<u32>) -> Self {
        let first = if self.first > 0 { [self.first, self.own_share] } else { [0; 2] };
        let parts = [way, copy, u64::from(self.channels), self.share, first[0], first[1]];
        let root = root.map_or(0, |root| 1 + u64::from(root));
        let parts = parts.into_iter().chain([self.rows, self.cols, self.tiles, root]);
        Shape { cut: digest(parts) / CUT * CUT, ..self }
    }
}

/// One number for all of these, in their order.
pub fn digest(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0xcbf2_9ce4_8422_2325, |digest: u64, part| {
        (digest ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// Packs of each of `parts` shares of a chunk of `packs`: whole 128-byte lines, so that two blocks never share one.
pub const fn share_packs(packs: u64, parts: u32) -> u64 {
    packs.div_ceil(if parts == 0 { 1 } else { parts as u64 }).next_multiple_of(8)
}

/// Part number `part` of `each`, of `packs`: its first, and how many.
#[inline(always)]
pub(crate) fn cut(packs: u64, each: u64, part: u32) -> (u64, u64) {
    let first = (each * u64::from(part)).min(packs);
    (first, (packs - first).min(each))
}

/// All that a kernel gets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Params<O, S, R> {
    /// The transport's device half.
    pub ops: O,
    /// Abort word, record, deadline.
    pub control: Control,
    /// Geometry.
    pub shape: Shape,
    /// The user's arguments as they cross.
    pub raw: R,
    /// Who exchanges what with whom: this rank's, which may differ from its peers'.
    pub schedule: S,
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

#[cfg(test)]
mod tests {
    use super::*;
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
        let ways = [(1, 0, None), (0, 512, None), (0, 0, Some(0)), (0, 0, Some(1))]
            .map(|(way, copy, root)| plain.name_cut(way, copy, root));
        let mut names: Vec<u64> =
            shapes.map(|s| s.name_cut(0, 0, None)).iter().chain(&ways).map(|s| s.cut).collect();
        assert!(names.iter().all(|name| name.is_multiple_of(CUT)), "{names:x?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), shapes.len() + ways.len());
        // Blocks of the rank's own chunk meet no peer.
        assert_eq!(Shape { own_share: 8, ..plain }.name_cut(0, 0, None).cut, plain.name_cut(0, 0, None).cut);
    }
}
