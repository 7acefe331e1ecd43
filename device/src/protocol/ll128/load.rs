//! What an LL128 channel carries.

use super::row;
use crate::tile::transpose;

/// Rows that a tile takes.
pub const TILE_ROWS: u32 = (transpose::ROWS * transpose::ACROSS).div_ceil(row::PACKS);

/// Rows of so many packs.
#[inline(always)]
pub(crate) const fn rows(packs: u32) -> u32 {
    packs.div_ceil(row::PACKS)
}

/// What an LL128 channel carries of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Packs `first .. first + packs`, if not by tiles.
    pub first: usize,
    pub packs: u32,
    /// By tiles: number `tile`, `tile + stride`, .., `tiles` of them.
    pub tile: u32,
    pub stride: u32,
    pub tiles: u32,
}

impl Load {
    /// Packs `first .. first + packs`.
    #[inline(always)]
    pub fn of_packs(first: usize, packs: u32) -> Self {
        Load { first, packs, tile: 0, stride: 0, tiles: 0 }
    }

    /// Those of part `part` of `parts`, of a chunk of `tiles` tiles.
    #[inline(always)]
    pub fn of_tiles(tiles: u32, part: u32, parts: u32) -> Self {
        let own = tiles.saturating_sub(part).div_ceil(parts);
        Load { first: 0, packs: 0, tile: part, stride: parts, tiles: own }
    }

    /// Rows that it takes.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        // Either of them is nothing.
        rows(self.packs) + TILE_ROWS * self.tiles
    }

    #[inline(always)]
    pub(super) fn nth(&self, tile: u32) -> u32 {
        self.tile + tile * self.stride
    }
}
