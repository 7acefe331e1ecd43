//! Loops over the rows of a chunk, in place of those over packs.

use super::{RowAt, lanes};
use crate::ctx::{Consume, Ctx};
use crate::hooks::Hooks;
use crate::pack::Pack;
use crate::tile::{Kept, Sink, Source, Team, Then};

/// The rows of this thread's warp, or block, among `count` packs that begin with a row.
struct Rows {
    /// Packs before the row.
    at: u32,
    stride: u32,
}

impl Rows {
    #[inline(always)]
    fn of(team: Team, cols: usize, packs: usize) -> Self {
        let lanes = if cfg!(target_arch = "nvptx64") { lanes(cols) } else { 1 };
        // There may be more teams than rows, and nearly as many packs as numbers.
        let [at, stride] = [team.lane, team.lanes].map(|lane| (lane / lanes).saturating_mul(packs as u32));
        Rows { at, stride }
    }

    #[inline(always)]
    fn next(&mut self) {
        self.at = self.at.saturating_add(self.stride);
    }
}

/// Produces the rows among `count` packs from chunk pack `first` on and hands each pack to `put`, as `tile::produce` does.
#[inline(always)]
pub(crate) fn produce<W, S: Source<W>>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    source: &S,
    put: impl Fn(u32, &Ctx, Pack<W>),
) {
    let mut rows = Rows::of(team, S::COLS, S::ROW_PACKS);
    while rows.at < count {
        let at = RowAt::of(place, (first + rows.at as usize) / S::ROW_PACKS, S::COLS);
        source.row(at, &|pack, value| put(rows.at + pack, place, value));
        rows.next();
    }
}

/// Consumes the rows among `count` packs from chunk pack `first` on, of which `get` gives each, by its number.
#[inline(always)]
pub(crate) fn consume<W, S: Sink<W>>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    sink: &S,
    get: impl Fn(u32) -> Pack<W>,
) {
    let mut rows = Rows::of(team, S::COLS, S::ROW_PACKS);
    while rows.at < count {
        let at = RowAt::of(place, (first + rows.at as usize) / S::ROW_PACKS, S::COLS);
        sink.take_row(at, &|pack| get(rows.at + pack));
        rows.next();
    }
}

/// Produces those rows, hands each pack to `put` if that is there, and consumes them where they are kept.
#[inline(always)]
pub(crate) fn keep<H: Hooks>(
    team: Team,
    (place, kept): (&Ctx, Kept),
    first: usize,
    count: u32,
    args: &H::Args<'_>,
    put: Option<&impl Fn(u32, Pack<H::Wire>)>,
) {
    let mut rows = Rows::of(team, H::COLS, H::ROW_PACKS);
    let Consume(own) = kept.at::<H>(place.at(0, 0, false));
    while rows.at < count {
        let row = (first + rows.at as usize) / H::ROW_PACKS;
        let both = [place, &own].map(|place| RowAt::of(place, row, H::COLS));
        let put = put.map(|put| |pack, value| put(rows.at + pack, value));
        H::keep_row(both, args, put.as_ref());
        rows.next();
    }
}

/// Folds those rows, of which `of` gives each rank's packs by their numbers, and does with them what `then` says; `me` is this rank, where it produces what it
/// contributes here. `RANKS`: as [`Hooks::fold_row`] says.
#[inline(always)]
pub(crate) fn fold<H: Hooks, const RANKS: usize>(
    team: Team,
    (place, kept): (&Ctx, Kept),
    (first, count): (usize, u32),
    args: &H::Args<'_>,
    (me, ranks): (Option<u32>, u32),
    then: &impl Then<H>,
    of: impl Fn(u32, u32) -> Pack<H::Wire>,
) {
    let mut rows = Rows::of(team, H::COLS, H::ROW_PACKS);
    let Consume(own) = kept.at::<H>(place.at(0, 0, false));
    while rows.at < count {
        let row = (first + rows.at as usize) / H::ROW_PACKS;
        let [from, to] = [place, &own].map(|place| RowAt::of(place, row, H::COLS));
        let own = me.map(|me| (me, from));
        then.fold_row::<RANKS>(rows.at, to, args, ranks, own, &|rank, pack| of(rank, rows.at + pack));
        rows.next();
    }
}
