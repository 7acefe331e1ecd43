//! Blocks and threads of calls whose bytes travel beside flags: by LL128, and by LL.

use super::limits::*;
use super::{Cut, Hooks, Work};
use crate::schedule::Protocol;
use fusewire_device::protocol::ll128 as line;
use fusewire_device::tile::transpose as tiles;

/// Blocks whose LL128 buffers are to hold a call that goes by LL128 by default.
///
/// Each has warps that wait for what they load, before they send and behind what arrives: more blocks, fewer such waits one behind the other.
pub(super) fn line_blocks(hooks: Hooks, several: bool) -> u32 {
    match hooks {
        Hooks::Copy => 32,
        _ if several => 90,
        _ => 64,
    }
}

impl Work {
    /// Of folds by LL128. They have eight warps a block, and a second row of a warp takes as long as the first: as many as have a row for each warp, if they
    /// get that far. Two ranks' warps take up to five rows at once, or four in turn.
    pub(super) fn folding_blocks(&self) -> u32 {
        let rows = u32::try_from(self.wire_bytes / 16).unwrap_or(u32::MAX).div_ceil(line::ROW_PACKS);
        match (self.several(), self.total() >> 20) {
            // The last row of a block may not be whole.
            (false, _) if self.folds_at_once() => {
                rows.div_ceil(8).clamp(24, FOLDING_FEW.max(rows.div_ceil(8 * FOLDED_ROWS - 1)))
            }
            (false, _) => {
                // All warps have as many turns.
                let turns = rows.div_ceil(8 * 4 * FOLDING_IN_TURN);
                rows.div_ceil(8 * 4 * turns)
            }
            (true, ..2) => rows.div_ceil(8).clamp(32, FOLDING_BLOCKS),
            (true, _) => FOLDING_BLOCKS,
        }
    }

    /// Whether warps have their rows of two ranks at once, in so many blocks as leave room for the next call's.
    fn folds_at_once(&self) -> bool {
        self.wire_bytes / 16 <= (FOLDING_AT_ONCE * (8 * FOLDED_ROWS - 1) * line::ROW_PACKS) as usize
    }

    /// Whether warps that have more rows than that send and fold them bundle by bundle: those of two ranks.
    pub(super) fn folds_in_turn(&self) -> bool {
        self.pattern.folds && !self.several()
    }

    /// Whether hooks copy what one peer sends, or gets, or both, by a schedule of chunks that all ranks get alike or that one rank sends or gets.
    pub(super) fn copies_with_one(&self) -> bool {
        (self.pattern.once || self.pattern.rooted && self.pattern.own)
            && !self.several()
            && self.hooks == Hooks::Copy
    }

    /// Of such copies by LL128: from measurements on two H200s.
    pub(super) fn copying_blocks(&self) -> u32 {
        match (self.wire_bytes, self.pattern.rooted) {
            (..COPIED_FEW, false) => 16,
            (..COPIED_LONG, true) => 24,
            (..COPIED_LONG, false) => 40,
            (..COPIED_LONGEST, _) => 32,
            _ => COPYING_BLOCKS,
        }
    }

    /// Whether blocks of copies by LL128 have 256 threads at most, as those of folds have: with more the next call's have no place beside them, and so many fill
    /// the links.
    pub(in crate::schedule) fn leaves_room(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Ll128 && self.copies_with_one() && self.pattern.mutual && !self.pattern.folds
    }

    /// Blocks for the rank's own chunk, of `blocks` that work by LL128. It waits for nobody: a block for two or three
    /// of a peer's, or two for three where hooks have much to do for each byte; of tiles every fifth, since what arrives is work as well.
    pub(super) fn ll128_self_copy(&self, blocks: u32) -> u32 {
        let peers = self.pattern.peers.max(1);
        let most = match self.hooks {
            Hooks::Slow => 2 * blocks / (3 + 2 * peers),
            _ if self.tiles > 0 => blocks / 5,
            _ => blocks / (2 + 2 * peers),
        };
        match self.own_blocks(Protocol::Ll128) {
            // A warp for each tile.
            true if self.tiles > 0 => self.tiles.div_ceil(tiles::WARPS).clamp(1, most.max(3)),
            true => (self.wire_bytes / 16).div_ceil(1024).clamp(1, most.max(3) as usize) as u32,
            false => 0,
        }
    }

    /// Channels of a call that goes by LL or LL128 by default, at most.
    pub(in crate::schedule) fn most_flagged_channels(&self, protocol: Protocol) -> u32 {
        match self.pattern.folds {
            _ if protocol == Protocol::Ll => self.ll_cut().channels,
            true if self.folds_in_turn() => FOLDING_BLOCKS.min(self.limit),
            true => self.multiprocessors(protocol),
            false if self.copies_with_one() => self.ll128_channels(COPYING_BLOCKS.min(self.limit)),
            false => self.ll128_channels(line_blocks(self.hooks, self.several()).min(self.limit)),
        }
    }

    /// Of LL: as many blocks as have a row for each team, or as many packs; those of the self copy wait for nobody.
    pub(super) fn ll_cut(&self) -> Cut {
        let packs = u32::try_from(self.wire_bytes / 16).unwrap_or(u32::MAX);
        let (most, wanted) = (self.multiprocessors(Protocol::Ll), packs.div_ceil(self.ll_packs));
        let self_copy = match self.own_blocks(Protocol::Ll) {
            true => wanted.clamp(1, (most / 2).max(1)),
            false => 0,
        };
        let left = most.saturating_sub(self_copy);
        let channels = if self.pattern.mutual || self.pattern.rooted { left } else { left / 2 };
        Cut::of(wanted.clamp(1, channels.max(1)), self_copy)
    }

    /// LL128 channels that so many blocks have room for.
    pub(super) fn ll128_channels(&self, blocks: u32) -> u32 {
        let left = blocks.saturating_sub(self.ll128_self_copy(blocks));
        // Of rooted schedules each rank has one of the two ends.
        if self.pattern.mutual || self.copies_with_one() { left } else { left / 2 }
    }
}
