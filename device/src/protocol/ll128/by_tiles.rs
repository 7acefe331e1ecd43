//! Chunks of `layout(transposed)`, tile by tile.

use super::line::{Line, Outlet, PACKS};
use super::load::TILE_ROWS;
use super::row;
use crate::arch;
use crate::ctx::Consume;
use crate::element::Element;
use crate::group::{Group, Warp};
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::tile::transpose::{self, Tiling};
use crate::tile::{Sink, Source, WARP};

/// Most tiles of one channel in one call.
pub const TILES: u32 = PACKS as u32 / row::PACKS / TILE_ROWS;

/// Rows of a tile that are stored together.
const OF_TILE: usize = 3;

impl<O: Direct> Line<'_, O> {
    /// Stores tiles, each of them one warp's.
    ///
    /// # Safety
    /// As for [`Line::send`].
    #[inline(always)]
    pub(super) unsafe fn send_tiles<W: Element, T: Outlet<W>>(&self, to: &T, source: &impl Source<W>) {
        let (tiling, scratch) = (Tiling::of::<W>(&self.place), arch::Scratch::of_warp());
        let (mut tile, warps) = (self.team.lane / WARP, self.team.lanes / WARP);
        while tile < self.load.tiles {
            let corner = tiling.corner(self.load.nth(tile));
            tiling.fill(corner, Warp.lane(), source, &scratch);
            Warp.sync();
            let (mut row, mut before) = (tile * TILE_ROWS, 0);
            let end = row + TILE_ROWS;
            while row < end {
                row::each_lane(|slot| {
                    let mut packs = [[0; 4]; OF_TILE];
                    unroll!(OF_TILE = 3, |K| {
                        let k = before + K as u32 * row::PACKS + slot;
                        if slot < row::PACKS
                            && let Some(ctx) = tiling.pack(corner, k)
                        {
                            // SAFETY: laid down before the sync.
                            packs[K] = unsafe { transpose::laid_down(&scratch, k) };
                            if T::KEEPS {
                                to.keep(ctx, Pack::from_words(packs[K]));
                            }
                        }
                    });
                    // SAFETY: the caller's contract; a tile's rows are one warp's.
                    unsafe { self.put::<OF_TILE, _, _>(to, row, end, slot, packs) };
                });
                // SAFETY: as above.
                unsafe { self.seal::<OF_TILE, _, _>(to, row, end) };
                (row, before) = (row + OF_TILE as u32, before + OF_TILE as u32 * row::PACKS);
            }
            Warp.sync();
            tile += warps;
        }
    }

    /// Takes tiles, any of whose rows may be any warp's; whether they came.
    ///
    /// # Safety
    /// `input` is the channel's buffer of this call.
    #[inline(always)]
    pub(super) unsafe fn receive_tiles<const U: usize, W: Element>(
        &self,
        input: *const u8,
        sink: &impl Sink<W>,
    ) -> bool {
        let tiling = Tiling::of::<W>(&self.place);
        let (warp, warps) = (self.team.lane / WARP, self.team.lanes / WARP);
        let (mut row, end) = (warp * U as u32, self.load.rows());
        while row < end {
            // SAFETY: rows of the buffer.
            let Some(found) = (unsafe { self.poll::<U>(input, row, end) }) else { return false };
            // They are of one tile, or of two: fewer than a tile has.
            let (tile, first) = (row / TILE_ROWS, row % TILE_ROWS);
            let corners = [tile, tile + 1].map(|tile| tiling.corner(self.load.nth(tile)));
            row::each_lane(|slot| {
                let mut packs = [Pack::<W>::ZERO; U];
                unroll!(U <= 8, |K| packs[K] = Pack::from_words(found[K].pack(slot)));
                unroll!(U <= 8, |K| {
                    let of = first + K as u32;
                    let (corner, of) =
                        if of < TILE_ROWS { (corners[0], of) } else { (corners[1], of - TILE_ROWS) };
                    if slot < row::PACKS
                        && row + (K as u32) < end
                        && let Some(ctx) = tiling.pack(corner, of * row::PACKS + slot)
                    {
                        sink.take(&Consume(ctx), packs[K]);
                    }
                });
            });
            row += warps * U as u32;
        }
        true
    }
}
