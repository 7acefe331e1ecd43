//! Rows: what hooks of `grain = row(N)` handle at a time.
//!
//! A row is `N` elements that follow each other. The threads of a *team* work on one together: a warp, or two, four or all eight of a block where rows
//! are long. Each thread holds up to 64 of its elements in registers, and a sum or a maximum goes through all of them. Hooks do not see this. They are
//! written as if one thread had the whole row:
//!
//! ```
//! # use fusewire_device::prelude::*;
//! # use fusewire_device::row;
//! # type Row<T> = row::Row<T, 4096, { row::slots(4096) }>;
//! # type ConsumeRow = row::ConsumeRow<4096, { row::slots(4096) }>;
//! # struct Args<'a> { gamma: &'a [f32], output: Out<'a, Bf16> }
//! fn consume(ctx: &ConsumeRow, args: &Args, row: Row<Bf16>) {
//!     let x = row.to_f32();
//!     let mean = x.map(|x| x * x).sum(ctx) / 4096.0;
//!     let scale = math::fast::rsqrt(mean + 1e-6);
//!     args.output.row(ctx).set(&x.zip(&args.gamma.each_row(ctx), |x, gamma| x * scale * gamma).to());
//! }
//! ```
//!
//! `#[comm_kernel]` gives the names `Row`, `Scaled`, `Groups`, `ProduceRow` and `ConsumeRow` to the module, for rows of its `N`.
//!
//! # One row, many threads
//! What stands in a hook outside of closures is done by every thread of the team, with the same values in each. So what goes through the whole row takes
//! the context, and closures cannot have it: they are `Sync`, and contexts are not. A closure is called for one element, on one thread.
//!
//! # Order
//! [`Row::reduce`], and with it [`Row::sum`], goes by a tree that depends on `N` alone, so host and device get the same bits. The eight elements of an
//! *octet* are `((0 1) (2 3)) ((4 5) (6 7))`; octet `k` belongs to lane `k % lanes(N)`, which folds its own in their order; and lanes are
//! folded by a balanced tree, with what stands for nothing in lanes that have none. [`Row::scan`] goes by 32 octets: each octet from left to right, octets by the
//! tree of Hillis and Steele, and what came before the 32 in front of that.

mod args;
mod ctx;
mod groups;
mod octet;
mod team;
pub(crate) mod walk;
mod wire;

pub use args::{OfGroups, OfRow, PerGroup, PerRow, RowPlace, Rows};
pub use ctx::{AtRow, ConsumeRow, ProduceRow, RowAt};
pub use groups::{Groups, Narrow, Scale, Scaled, Ue8m0};
pub use octet::OCTET;
pub(crate) use octet::fits as fits_element;
pub(crate) use team::leads as leads_row;
#[cfg(target_arch = "nvptx64")]
pub(crate) use team::moved;
pub use wire::{RowWire, SettledRow, fold, relays};

use crate::element::{Element, Float};
use crate::fold::Number;
#[cfg(target_arch = "nvptx64")]
use crate::pack::unroll;

/// Elements of the longest row.
pub const MOST_COLS: usize = 16384;

/// Elements of a row that a thread holds, but of the longest rows, of which it is [`MOST_EACH`]. With more, and a few rows beside them, a thread
/// has so many registers that a multiprocessor holds one block.
const EACH: usize = 32;

/// Elements of a row that a thread holds at most.
const MOST_EACH: usize = MOST_COLS / BLOCK as usize;

/// Lanes of a GPU's warp: also on the host, which folds rows as GPUs do.
pub(crate) const WARP: u32 = 32;

/// Threads of the largest block that works on rows, which share one of [`MOST_COLS`].
pub const BLOCK: u32 = 256;

/// Whether several warps share a row of `cols` elements, if hooks work by rows.
pub const fn shares_warps(cols: usize) -> bool {
    lanes(cols) > WARP
}

/// Bytes of the scales of all rows that a block works on at a time, at most: four for each 32 elements.
pub(crate) const MOST_TAIL: u32 = BLOCK * (MOST_EACH / groups::LEAST * 4) as u32;

/// Whether rows of `cols` elements can be: whole packs of any element type.
pub const fn fits(cols: usize) -> bool {
    cols > 0 && cols <= MOST_COLS && cols.is_multiple_of(16)
}

/// Packs of the fewest rows of so many that are whole 128-byte lines: what travels together is a multiple.
pub const fn whole(row_packs: usize) -> u64 {
    let mut packs = row_packs as u64;
    while !packs.is_multiple_of(8) {
        packs *= 2;
    }
    packs
}

/// Lanes of a GPU that share a row of `cols` elements. Also on the host, which sums as they do.
pub const fn lanes(cols: usize) -> u32 {
    let mut lanes = WARP;
    while lanes as usize * EACH < cols && lanes < BLOCK {
        lanes *= 2;
    }
    lanes
}

/// Octets of a row of `cols` elements that one thread holds: on the host all of them.
pub const fn slots(cols: usize) -> usize {
    let octets = cols / OCTET;
    if cfg!(target_arch = "nvptx64") { octets.div_ceil(lanes(cols) as usize) } else { octets }
}

/// Repeats `$body` for each slot: with constants on the device, so that rows stay in registers. There no thread has more than eight.
#[cfg(target_arch = "nvptx64")]
macro_rules! each_slot {
    ($n:expr, |$k:ident| $body:expr) => {
        unroll!(@each $n, 8, $k, $body, 0 1 2 3 4 5 6 7)
    };
}
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! each_slot {
    ($n:expr, |$k:ident| $body:expr) => {
        #[allow(non_snake_case)]
        for $k in 0..$n {
            $body
        }
    };
}
pub(crate) use each_slot;

/// A row of `N` elements, of which a thread holds `S` octets.
///
/// The octets of no row, where `N` is no multiple of all lanes' octets, are [`Default`].
#[derive(Clone, Debug)]
pub struct Row<T, const N: usize, const S: usize> {
    pub(crate) octets: PerSlot<[T; OCTET], S>,
}

/// One value for each octet that this thread holds.
#[cfg(target_arch = "nvptx64")]
pub(crate) type PerSlot<T, const S: usize> = [T; S];
/// One value for each octet that this thread holds.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) type PerSlot<T, const S: usize> = Vec<T>;

/// The same value in each slot.
#[inline(always)]
pub(crate) fn filled<T: Copy, const S: usize>(value: T) -> PerSlot<T, S> {
    #[cfg(target_arch = "nvptx64")]
    return [value; S];
    #[cfg(not(target_arch = "nvptx64"))]
    std::vec![value; S]
}

/// The octet of the row in slot `slot` of this thread, if there is one.
#[inline(always)]
pub(crate) fn octet_in<const N: usize>(slot: usize) -> Option<usize> {
    if !cfg!(target_arch = "nvptx64") {
        return Some(slot);
    }
    let octet = slot * const { lanes(N) as usize } + team::lane::<N>() as usize;
    if const { (N / OCTET).is_multiple_of(lanes(N) as usize) } {
        return Some(octet);
    }
    (octet < N / OCTET).then_some(octet)
}

impl<T: Copy + Default, const N: usize, const S: usize> Row<T, N, S> {
    /// Elements of the row.
    pub const COLS: usize = N;

    /// The row whose element `col` is `f(col)`.
    #[inline(always)]
    pub fn from_fn(f: impl Fn(usize) -> T + Sync) -> Self {
        Self::of_slots(|_, octet| octet::of(|k| f(octet * OCTET + k)))
    }

    /// The row of which `f(slot, octet)` is what this thread has in a slot, of octet `octet`.
    #[inline(always)]
    pub(crate) fn of_slots(f: impl Fn(usize, usize) -> [T; OCTET]) -> Self {
        let mut octets = filled::<_, S>([T::default(); OCTET]);
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
            octets[K] = f(K, octet);
        });
        Row { octets }
    }

    /// Element by element.
    #[inline(always)]
    pub fn map<U: Copy + Default>(&self, f: impl Fn(T) -> U + Sync) -> Row<U, N, S> {
        self.map_at(|_, x| f(x))
    }

    /// Element by element, with the column of each.
    #[inline(always)]
    pub fn map_at<U: Copy + Default>(&self, f: impl Fn(usize, T) -> U + Sync) -> Row<U, N, S> {
        Row::of_slots(|slot, octet| octet::of(|k| f(octet * OCTET + k, self.octets[slot][k])))
    }

    /// Element by element with another row.
    #[inline(always)]
    pub fn zip<U, V>(&self, other: &Row<U, N, S>, f: impl Fn(T, U) -> V + Sync) -> Row<V, N, S>
    where
        U: Copy + Default,
        V: Copy + Default,
    {
        Row::of_slots(|slot, _| octet::of(|k| f(self.octets[slot][k], other.octets[slot][k])))
    }
}

impl<T: Element, const N: usize, const S: usize> Row<T, N, S> {
    /// All elements by `f`, which is associative but for rounding, and of which `nothing` is the neutral element. Every thread gets the result.
    #[inline(always)]
    pub fn reduce(&self, _ctx: &impl AtRow<N, S>, nothing: T, f: impl Fn(T, T) -> T + Sync) -> T {
        const { team::small::<T>() };
        team::reduce::<T, N>(nothing, &f, |slot| octet::folded(&self.octets[slot], &f))
    }

    /// Element `col` is the fold of those before it, in their order; of the first one `nothing`, which is the neutral element of `f`. `f` is associative
    /// but for rounding.
    ///
    /// ```
    /// # use fusewire_device::prelude::*;
    /// # use fusewire_device::row;
    /// # type Row<T> = row::Row<T, 4096, { row::slots(4096) }>;
    /// # type ConsumeRow = row::ConsumeRow<4096, { row::slots(4096) }>;
    /// # struct Args<'a> { output: Out<'a, u32> }
    /// // Where each element goes if those that are not zero are moved to the front.
    /// fn consume(ctx: &ConsumeRow, args: &Args, row: Row<u32>) {
    ///     let kept = row.map(|x| u32::from(x != 0));
    ///     args.output.row(ctx).set(&kept.scan(ctx, 0, |a, b| a + b));
    /// }
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn scan(&self, _ctx: &impl AtRow<N, S>, nothing: T, f: impl Fn(T, T) -> T + Sync) -> Self {
        const { team::small::<T>() };
        let mut octets = self.octets.clone();
        let total = |slot: usize| self.octets[slot].into_iter().reduce(&f).unwrap_or(nothing);
        team::scan::<T, N>(nothing, &f, total, |slot, before| {
            octets[slot] = octet::scanned(&self.octets[slot], before, &f);
        });
        Row { octets }
    }

    /// The sum of all elements; of integers modulo their range.
    #[inline(always)]
    pub fn sum(&self, ctx: &impl AtRow<N, S>) -> T
    where
        T: Number,
    {
        self.reduce(ctx, T::NOTHING, T::plus)
    }

    /// The greatest element; NaN if any is.
    #[inline(always)]
    pub fn max(&self, ctx: &impl AtRow<N, S>) -> T
    where
        T: Number,
    {
        self.reduce(ctx, T::LEAST, T::greater)
    }

    /// The least element; NaN if any is.
    #[inline(always)]
    pub fn min(&self, ctx: &impl AtRow<N, S>) -> T
    where
        T: Number,
    {
        self.reduce(ctx, T::GREATEST, T::lesser)
    }
}

impl<T: Float, const N: usize, const S: usize> Row<T, N, S> {
    /// The elements, widened (`f64` rounded).
    #[inline(always)]
    pub fn to_f32(&self) -> Row<f32, N, S> {
        Row::of_slots(|slot, _| octet::widened(&self.octets[slot]))
    }
}

impl<const N: usize, const S: usize> Row<f32, N, S> {
    /// The elements, rounded to nearest. 8-bit types saturate.
    #[inline(always)]
    pub fn to<T: Float>(&self) -> Row<T, N, S> {
        Row::of_slots(|slot, _| octet::narrowed(&self.octets[slot]))
    }
}

#[cfg(test)]
mod tests;
