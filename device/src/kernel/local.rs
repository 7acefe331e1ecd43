//! Tiles that stay on this rank.

use super::{Grain, Kernel, State, Tile, last_start, packs_in};
use crate::ctx::{Consume, Produce};
use crate::element::Element;
use crate::group::{Block, Group};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::tile::{self, Each, Sink, Source, Team, Unroll};

impl<O: Ops> Kernel<O> {
    /// Calls `hook` for each element of a tile that stays on this rank. [`Kernel::keep_tile`] does it by packs.
    ///
    /// # Safety
    /// As for [`Kernel::recv_tile`].
    ///
    /// # Panics
    /// If the tile's end is no index, or if `hook` does what is for the whole block: sends or receives, waits or signals, or uses a team.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn local_tile(&self, tile: Tile, hook: impl Fn(&Consume)) {
        self.whole();
        ends(tile);
        let before = self.state.get();
        self.state.set(State::Local(before == State::Stopped));
        let place = self.tile_place(self.rank(), tile);
        let mut pos = Block.lane() as usize;
        while pos < tile.len {
            hook(&Consume(place.at(pos, 1, false)));
            pos += Block.lanes() as usize;
        }
        // A window's operation of the hook may have stopped.
        let stopped = self.state.get() == State::Local(true);
        self.state.set(if stopped { State::Stopped } else { before });
    }

    /// A tile that this rank sends to itself: what `give` makes of the tile `from` goes to `take`, which gets it for a tile of the same length from
    /// index `to` on. The hooks are those of [`Kernel::send_tile`] and [`Kernel::recv_tile`], by element or by pack. Nothing is staged.
    ///
    /// # Safety
    /// As for [`Kernel::recv_tile`], of the indices from `to` on. `give` reads nothing that `take` writes.
    ///
    /// # Panics
    /// If a tile's end is no index, or it has [`MOST_PACKS`](super::MOST_PACKS) packs. If a hook sends or receives.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn keep_tile<G: Grain>(
        &self,
        from: Tile,
        to: usize,
        give: impl Fn(&Produce) -> G,
        take: impl Fn(&Consume, G),
    ) {
        // SAFETY: the caller's contract.
        unsafe { self.keep_by::<G, G::Wire>(from, to, &Each::of(give), &Each::of(take)) };
    }

    /// [`Kernel::keep_tile`] of what `source` gives.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn keep_by<U: Unroll, W: Element>(
        &self,
        from: Tile,
        to: usize,
        source: &impl Source<W>,
        sink: &impl Sink<W>,
    ) {
        self.whole();
        let tiles = [from, Tile { start: to, len: from.len }];
        tiles.into_iter().for_each(ends);
        assert!(packs_in::<W>(from) < super::MOST_PACKS, "a tile of 2^32 packs or more");
        // After a stop as well: nothing is sent, so it is done all the same.
        let before = self.state.replace(State::Busy);
        let [here, there] = tiles.map(|tile| self.tile_place(self.rank(), tile));
        let (lanes, packs) = (Pack::<W>::LANES, packs_in::<W>(from) as u32);
        let whole = there.in_packs(lanes);
        tile::produce::<U, W, _>(Team::all(&Block), &here, 0, packs, source, |s, ctx, pack| {
            let pos = s as usize * lanes;
            sink.take(&Consume(there.at(pos, ctx.valid, whole && ctx.valid == lanes)), pack);
        });
        self.state.set(before);
    }
}

/// # Panics
/// If the tile's end is no index.
#[inline(always)]
#[track_caller]
fn ends(tile: Tile) {
    assert!((tile.start as u64) < last_start(tile), "a tile whose end is no index");
}
