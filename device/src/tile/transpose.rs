//! A loop over the packs of a chunk for hooks whose neighbours in memory are the *rows* of a column: `layout(transposed)`.
//!
//! By packs, the threads of a warp would each read a column's distance from the next. So a warp takes a tile: 32 rows of 128 bytes. Each
//! lane produces one row's elements, column by column, which puts neighbouring rows into neighbouring lanes, and lays them down in
//! scratch memory (shared memory on the device). Then eight lanes at a time take a row's packs from there: 128 bytes side by side.
//!
//! A warp shares its tile with nobody, so there is no barrier of the block here, and warps may have different numbers of tiles.
//!
//! Rows need not be whole packs. A pack belongs to the tile in which its first element stands; it is laid down with elements of the
//! next columns, or of the next row.

use super::{Source, Team, WARP};
use crate::arch::{self, Scratch};
use crate::ctx::{Ctx, Produce};
use crate::element::Element;
use crate::group::{Group, Warp};
use crate::pack::{Pack, together, unroll};

/// Rows of a tile.
pub const ROWS: u32 = 32;
/// Packs of a tile's row.
pub const ACROSS: u32 = 8;
/// Bytes from row to row in scratch memory: an odd number of words, so that neither a column nor four rows of packs meet in a bank.
const PITCH: u32 = 16 * ACROSS + 4;
/// Scratch bytes of a warp.
pub const SCRATCH: u32 = ROWS * PITCH;
/// Warps that have scratch memory: most of a block.
pub const WARPS: u32 = 8;

/// Rows of which a warp hands over packs at a time.
const DOWN: u32 = if WARP < ACROSS { 1 } else { WARP / ACROSS };

/// Elements of a batch, of which a lane has up to four in flight: the widest elements' rows have one.
const BATCH: usize = 16;
/// Elements that a lane has in flight at a chunk's edges.
const EDGE: usize = 4;

/// A part of a chunk, as tiles.
#[derive(Clone, Copy)]
struct Part<'k> {
    place: &'k Ctx,
    /// Its elements, as if the last pack were whole.
    begin: usize,
    end: usize,
    /// Whether these are all of the chunk.
    all: bool,
    /// Elements of a pack.
    lanes: usize,
}

/// The packs of one row in a tile.
#[derive(Clone, Copy)]
struct Window {
    /// Position of the tile's column in this row.
    base: usize,
    /// Position of the first pack, and behind the last; empty if not before.
    from: usize,
    until: usize,
}

impl Part<'_> {
    /// Elements of a tile's row.
    #[inline(always)]
    fn wide(&self) -> usize {
        ACROSS as usize * self.lanes
    }

    #[inline(always)]
    fn window(&self, row: usize, col: usize) -> Window {
        let up = |pos: usize| (pos + self.lanes - 1) & !(self.lanes - 1);
        let base = row * self.place.cols + col;
        let past = base + self.wide().min(self.place.cols - col);
        Window { base, from: up(base).max(self.begin), until: up(past).min(self.end) }
    }

    /// Whether the tile at `row` and `col` is whole: all its rows, and of each as many packs as fit across, which begin at its column.
    #[inline(always)]
    fn holds(&self, row: usize, col: usize) -> bool {
        let Ctx { rows, cols, .. } = *self.place;
        let (top, bottom) = (row * cols + col, (row + ROWS as usize - 1) * cols + col);
        cols.is_multiple_of(self.lanes)
            & (row + ROWS as usize <= rows)
            & (col + self.wide() <= cols)
            & (self.all || (self.begin <= top) & (bottom + self.wide() <= self.end))
    }

    /// Lays down the rows of the tile at `row` and `col` that are this lane's. `whole`: as [`Part::holds`] says.
    #[inline(always)]
    fn fill<W: Element, S: Source<W>>(
        &self,
        lane: u32,
        (row, col): (usize, usize),
        whole: bool,
        source: &S,
        scratch: &Scratch,
    ) {
        let some = S::IN_FLIGHT.min(self.wide());
        let mut i = lane;
        while i < ROWS {
            let row = row + i as usize;
            let base = row * self.place.cols + col;
            let window = match whole {
                true => Window { base, from: base, until: base + self.wide() },
                false => self.window(row, col),
            };
            let (from, until) = (window.from, window.until.min(self.place.chunk_len));
            let across = from == base && until == from + self.wide() && col + self.wide() <= self.place.cols;
            if whole || across {
                let mut j = 0;
                while j < self.wide() {
                    // The compiler would carry an address for each of them from turn to turn.
                    let (pos, col) = (from + j, arch::opaque(col + j));
                    // All are loaded before the first is laid down.
                    let batch = |number: usize| match number * BATCH < some {
                        true => self.batch(pos, (row, col), number * BATCH, source),
                        false => [W::default(); BATCH],
                    };
                    let [a, b, c, d] = [batch(0), batch(1), batch(2), batch(3)];
                    let lay_down = |number: usize, values: [W; BATCH]| {
                        if number * BATCH < some {
                            unroll!(BATCH = 16, |K| store(scratch, i, j + number * BATCH + K, values[K]));
                        }
                    };
                    lay_down(0, a);
                    lay_down(1, b);
                    lay_down(2, c);
                    lay_down(3, d);
                    j += some;
                }
            } else if from < window.until {
                self.fill_edge(i, window, row, col, source, scratch);
            }
            i += WARP;
        }
    }

    /// Elements next to each other in a row, from the one `beside` behind `pos` on.
    #[inline(always)]
    fn batch<W: Element>(
        &self,
        pos: usize,
        at: (usize, usize),
        beside: usize,
        source: &impl Source<W>,
    ) -> [W; BATCH] {
        let mut values = [W::default(); BATCH];
        unroll!(BATCH = 16, |K| values[K] = self.element(pos + beside + K, at, beside + K, source));
        values
    }

    /// A row that is not whole.
    #[inline(always)]
    fn fill_edge<W: Element>(
        &self,
        i: u32,
        window: Window,
        row: usize,
        col: usize,
        source: &impl Source<W>,
        scratch: &Scratch,
    ) {
        let Window { base, from, until } = window;
        // Relative to the tile's column: few bits, few registers.
        let [from, end, until] =
            [from, until.min(self.place.chunk_len), until].map(|pos| pos.saturating_sub(base) as u32);
        // All lanes of the warp are at one column, whatever their rows begin with. Rows of whole packs begin and end alike.
        let more = if self.place.cols.is_multiple_of(self.lanes) { 0 } else { self.lanes };
        let (mut j, columns) = (0, (self.wide().min(self.place.cols - col) + more) as u32);
        while j < columns {
            let mut values = [W::default(); EDGE];
            unroll!(EDGE = 4, |K| {
                let at = j + K as u32;
                if from <= at && at < end {
                    let (mut row, mut col) = (row, col + at as usize);
                    while col >= self.place.cols {
                        (row, col) = (row + 1, col - self.place.cols);
                    }
                    values[K] = self.element(base + at as usize, (row, col), 0, source);
                }
            });
            unroll!(EDGE = 4, |K| {
                let at = j + K as u32;
                if from <= at && at < until {
                    store(scratch, i, (at - from) as usize, values[K]);
                }
            });
            j += EDGE as u32;
        }
    }

    #[inline(always)]
    fn element<W: Element>(
        &self,
        pos: usize,
        at: (usize, usize),
        beside: usize,
        source: &impl Source<W>,
    ) -> W {
        source.pack(&Produce(self.place.of_shape(pos, at, beside))).get(0)
    }

    /// Hands the packs of the tile to `put`, as `tile::produce` does.
    #[inline(always)]
    fn drain<W: Element>(
        &self,
        lane: u32,
        (row, col): (usize, usize),
        whole: bool,
        scratch: &Scratch,
        put: &impl Fn(u32, &Ctx, Pack<W>),
    ) {
        let aligned = self.place.in_packs(self.lanes);
        if whole {
            // A lane of a warp has the same packs of every fourth row, so that there is one addition from each to the next.
            let mut i = lane / ACROSS;
            let mut start = (row + i as usize) * self.place.cols + col;
            while i < ROWS {
                let mut p = lane % ACROSS;
                while p < ACROSS {
                    let pos = start + p as usize * self.lanes;
                    // SAFETY: laid down by this warp, before its sync.
                    let pack = Pack::from_words(unsafe { laid_down(scratch, i * ACROSS + p) });
                    let ctx = self.place.at(pos, self.lanes, aligned);
                    put(((pos - self.begin) / self.lanes) as u32, &ctx, pack);
                    p += if WARP < ACROSS { WARP } else { ACROSS };
                }
                i += DOWN;
                start += DOWN as usize * self.place.cols;
            }
            return;
        }
        let mut k = lane;
        while k < ROWS * ACROSS {
            let (i, p) = (k / ACROSS, k % ACROSS);
            let window = self.window(row + i as usize, col);
            let pos = window.from + p as usize * self.lanes;
            if pos < window.until {
                // SAFETY: laid down by this warp, before its sync.
                let pack = Pack::from_words(unsafe { laid_down(scratch, k) });
                let valid = self.lanes.min(self.place.chunk_len - pos);
                let ctx = self.place.at(pos, valid, aligned && valid == self.lanes);
                put(((pos - self.begin) / self.lanes) as u32, &ctx, pack);
            }
            k += WARP;
        }
    }
}

/// Lays down element `at` of row `i`.
#[inline(always)]
fn store<W: Element>(scratch: &Scratch, i: u32, at: usize, value: W) {
    let (offset, bits) = (i * PITCH + (at * W::SIZE) as u32, value.to_bits64());
    // SAFETY: inside the scratch memory: a row has at most `ACROSS` packs; each row is one lane's.
    unsafe {
        match W::SIZE {
            1 => scratch.store_1(offset, bits as u8),
            2 => scratch.store_2(offset, bits as u16),
            4 => scratch.store_4(offset, bits as u32),
            _ => {
                scratch.store_4(offset, bits as u32);
                scratch.store_4(offset + 4, (bits >> 32) as u32);
            }
        }
    }
}

/// Tiles of a chunk of that shape, as [`produce`] deals them out: in 32 bits, since the host refuses chunks of more packs.
#[inline(always)]
pub fn of_chunk<W: Element>(rows: u64, cols: u64) -> u32 {
    let across = cols.div_ceil(u64::from(ACROSS) * Pack::<W>::LANES as u64);
    rows.div_ceil(u64::from(ROWS)) as u32 * across as u32
}

/// A whole chunk as tiles, where rows are whole packs: any warp may take any of them.
#[derive(Clone, Copy)]
pub(crate) struct Tiling<'k> {
    part: Part<'k>,
    /// Tiles below each other.
    down: u32,
}

/// Row and column where a tile begins.
#[derive(Clone, Copy)]
pub(crate) struct Corner {
    row: usize,
    col: usize,
}

impl<'k> Tiling<'k> {
    #[inline(always)]
    pub(crate) fn of<W: Element>(place: &'k Ctx) -> Self {
        let part = Part { place, begin: 0, end: place.chunk_len, all: true, lanes: Pack::<W>::LANES };
        Tiling { part, down: (place.rows as u32).div_ceil(ROWS).max(1) }
    }

    /// That of tile number `tile`. Tiles below each other are neighbours in what `produce` reads, and follow each other here.
    #[inline(always)]
    pub(crate) fn corner(&self, tile: u32) -> Corner {
        let (y, x) = (tile % self.down, tile / self.down);
        Corner { row: (y * ROWS) as usize, col: x as usize * self.part.wide() }
    }

    /// Lays down the rows of a tile that are this lane's.
    #[inline(always)]
    pub(crate) fn fill<W: Element>(&self, at: Corner, lane: u32, source: &impl Source<W>, scratch: &Scratch) {
        let whole = self.part.holds(at.row, at.col);
        self.part.fill(lane, (at.row, at.col), whole, &ForLines(source), scratch);
    }

    /// Where pack `k` of a tile's [`ROWS`] times [`ACROSS`] is, if the chunk has it; it is whole.
    #[inline(always)]
    pub(crate) fn pack(&self, at: Corner, k: u32) -> Option<Ctx> {
        let Part { place, lanes, .. } = self.part;
        let (row, col) = (at.row + (k / ACROSS) as usize, at.col + (k % ACROSS) as usize * lanes);
        if k >= ROWS * ACROSS || row >= place.rows || col >= place.cols {
            return None;
        }
        let aligned = place.in_packs(lanes);
        Some(Ctx { shaped: Some((row, col)), ..place.at(row * place.cols + col, lanes, aligned) })
    }
}

/// A source whose tiles go in lines: with where these stand in registers, 64 elements of 8 bits are more than are left on some GPUs.
struct ForLines<'k, S>(&'k S);

impl<W: Element, S: Source<W>> Source<W> for ForLines<'_, S> {
    const TRANSPOSED: bool = S::TRANSPOSED;
    const IN_FLIGHT: usize = if W::SIZE == 1 { 32 } else { S::IN_FLIGHT };
    #[inline(always)]
    fn pack(&self, ctx: &Produce) -> Pack<W> {
        self.0.pack(ctx)
    }
}

/// Pack `k` of the tile that lies in a warp's scratch memory.
///
/// # Safety
/// `k` is less than [`ROWS`] times [`ACROSS`]; the warp has laid it down, before a sync.
#[inline(always)]
pub(crate) unsafe fn laid_down(scratch: &Scratch, k: u32) -> [u32; 4] {
    // SAFETY: the caller's contract.
    unsafe { scratch.load_16(k / ACROSS * PITCH + 16 * (k % ACROSS)) }
}

/// How the warps of a team go through tiles, `down` of which lie below each other: these are neighbours in what `produce` reads, so warps
/// take them at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    y: u32,
    x: u32,
    /// From a warp's tile to its next.
    below: u32,
    beside: u32,
    down: u32,
}

impl Walk {
    #[inline(always)]
    fn of(team: Team, down: u32) -> Self {
        let (warp, warps) = (team.lane / WARP, team.lanes / WARP);
        Walk { y: warp % down, x: warp / down, below: warps % down, beside: warps / down, down }
    }

    /// Of a whole chunk of `rows` rows.
    #[inline(always)]
    pub(crate) fn of_chunk(team: Team, rows: u64) -> Self {
        Self::of(team, (rows as u32).div_ceil(ROWS).max(1))
    }

    /// The same, worked out by now.
    #[inline(always)]
    pub(crate) fn now(self) -> Self {
        let now = |n: u32| arch::late(u64::from(n)) as u32;
        let Walk { y, x, below, beside, down } = self;
        Walk { y: now(y), x: now(x), below: now(below), beside: now(beside), down: now(down) }
    }

    #[inline(always)]
    fn next(&mut self) {
        (self.y, self.x) = (self.y + self.below, self.x + self.beside);
        if self.y >= self.down {
            (self.y, self.x) = (self.y - self.down, self.x + 1);
        }
    }
}

/// As `tile::produce`, by tiles. Whole warps, of a block of at most [`WARPS`].
#[inline(always)]
pub fn produce<W: Element>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    source: &impl Source<W>,
    put: impl Fn(u32, &Ctx, Pack<W>),
) {
    if count == 0 {
        return;
    }
    let lanes = Pack::<W>::LANES;
    let (begin, end) = (first * lanes, (first + count as usize) * lanes);
    let cols = place.cols.max(1);
    let top = begin / cols;
    let down = ((end.min(place.chunk_len).div_ceil(cols) - top) as u32).div_ceil(ROWS);
    each(Part { place, begin, end, all: false, lanes }, top, Walk::of(team, down), source, &put);
}

/// [`produce`] of a whole chunk, by warps of which each knows its way.
#[inline(always)]
pub(crate) fn produce_chunk<W: Element>(
    walk: Walk,
    place: &Ctx,
    source: &impl Source<W>,
    put: impl Fn(u32, &Ctx, Pack<W>),
) {
    let lanes = Pack::<W>::LANES;
    if place.chunk_len > 0 {
        let part = Part { place, begin: 0, end: place.chunk_len.next_multiple_of(lanes), all: true, lanes };
        each(part, 0, walk, source, &put);
    }
}

#[inline(always)]
fn each<W: Element>(
    part: Part<'_>,
    top: usize,
    mut walk: Walk,
    source: &impl Source<W>,
    put: &impl Fn(u32, &Ctx, Pack<W>),
) {
    let (scratch, lane) = (Scratch::of_warp(), Warp.lane());
    while (walk.x as usize) * part.wide() < part.place.cols {
        let at = (top + (walk.y * ROWS) as usize, walk.x as usize * part.wide());
        let whole = part.holds(at.0, at.1);
        part.fill(lane, at, whole, source, &scratch);
        Warp.sync();
        part.drain(lane, at, whole, &scratch, put);
        Warp.sync();
        walk.next();
    }
}

/// The pack at `ctx`, element by element: for chunks so small that what it loads from afar costs less than a tile's two steps.
#[inline(always)]
pub fn gather<W: Element>(ctx: &Ctx, source: &impl Source<W>) -> Pack<W> {
    let mut at = ctx.row_col();
    let mut values = [W::default(); 16];
    unroll!(Pack::<W>::LANES, |K| if K < ctx.valid {
        let (row, col) = at;
        values[K] = source.pack(&Produce(ctx.of_shape(ctx.pos + K, at, 0))).get(0);
        at = if col + 1 == ctx.cols { (row + 1, 0) } else { (row, col + 1) };
    });
    let _ = at;
    together(values)
}

#[cfg(test)]
mod tests;
