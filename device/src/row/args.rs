//! Slices and outputs by rows.

use super::{AtRow, ConsumeRow, Groups, OCTET, ProduceRow, Row, each_slot, groups, octet, octet_in, team};
use crate::arch;
use crate::args::{Lent, Out, RawSlice};
use crate::element::Element;
use crate::pack::{Pack, unroll};
use core::marker::PhantomData;

/// Rows of a slice.
pub trait Rows<T: Element> {
    /// The context's own row: `N` elements from `ctx.index * N` on.
    ///
    /// # Panics
    /// If the slice ends before, or does not start at a multiple of 16 bytes, as a part of one may.
    #[track_caller]
    fn row<const N: usize, const S: usize>(&self, ctx: &impl AtRow<N, S>) -> Row<T, N, S>;

    /// Row number `index`: `N` elements from `index * N` on.
    ///
    /// # Panics
    /// As for [`Rows::row`].
    #[track_caller]
    fn row_at<const N: usize, const S: usize>(&self, ctx: &impl AtRow<N, S>, index: usize) -> Row<T, N, S>;

    /// The first `N` elements, the same for each row: weights of columns.
    ///
    /// # Panics
    /// As for [`Rows::row`].
    #[track_caller]
    fn each_row<const N: usize, const S: usize>(&self, ctx: &impl AtRow<N, S>) -> Row<T, N, S>;

    /// The values of the context's own row, one for each `G` of its elements: `N / G` from `ctx.index * (N / G)` on.
    ///
    /// # Panics
    /// If the slice ends before.
    #[track_caller]
    fn groups<const G: usize, const N: usize, const S: usize>(
        &self,
        ctx: &impl AtRow<N, S>,
    ) -> Groups<T, G, N, S>;
}

impl<T: Element> Rows<T> for [T] {
    #[inline(always)]
    #[track_caller]
    fn row<const N: usize, const S: usize>(&self, ctx: &impl AtRow<N, S>) -> Row<T, N, S> {
        if ctx.prefetches {
            prefetch_ahead::<T, N, S>(self, ctx.index);
        }
        self.row_at(ctx, ctx.index)
    }

    #[inline(always)]
    #[track_caller]
    fn row_at<const N: usize, const S: usize>(&self, ctx: &impl AtRow<N, S>, index: usize) -> Row<T, N, S> {
        assert!(index < self.len() / N, "input ends before this row");
        let start = starts::<T, N>(self.as_ptr(), index);
        // SAFETY: in bounds by the assertion, and aligned; nobody writes a slice.
        Row::of_slots(|_, octet| unsafe {
            load::<T>(start.add(octet * OCTET), |at| arch::load_input(ctx.cache_policy, at))
        })
    }

    #[inline(always)]
    #[track_caller]
    fn each_row<const N: usize, const S: usize>(&self, _ctx: &impl AtRow<N, S>) -> Row<T, N, S> {
        assert!(N <= self.len(), "input is shorter than a row");
        let start = starts::<T, N>(self.as_ptr(), 0);
        // SAFETY: as above. Others read it too: it may be kept.
        Row::of_slots(|_, octet| unsafe { load::<T>(start.add(octet * OCTET), |at| arch::load_16(at)) })
    }

    #[inline(always)]
    #[track_caller]
    fn groups<const G: usize, const N: usize, const S: usize>(
        &self,
        ctx: &impl AtRow<N, S>,
    ) -> Groups<T, G, N, S> {
        const { groups::check::<G, N>() };
        assert!(ctx.index < self.len() / (N / G), "input ends before this row's groups");
        let first = ctx.index * (N / G);
        // SAFETY: in bounds by the assertion.
        Groups::of(|group| unsafe { *self.get_unchecked(first + group) })
    }
}

/// Bytes between a row and the one to ask for while it is loaded: what a large GPU's memory gives in a microsecond, which a load from it takes.
const AHEAD: usize = 4 << 20;

/// Has the L2 cache fetch this thread's part of a row that other blocks will load soon, 64 bytes of each octet at most. They do not wait for memory
/// then, and memory is not idle while all of them compute.
#[inline(always)]
fn prefetch_ahead<T: Element, const N: usize, const S: usize>(slice: &[T], index: usize) {
    let index = index + const { AHEAD / (N * T::SIZE) };
    if index < slice.len() / N {
        let start = slice.as_ptr().wrapping_add(index * N);
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
            let at = start.wrapping_add(octet * OCTET).cast::<u8>();
            unroll!(2, |SECTOR| if SECTOR * 32 < OCTET * T::SIZE {
                arch::prefetch(at.wrapping_add(SECTOR * 32));
            });
        });
    }
}

/// The address of a row.
#[inline(always)]
#[track_caller]
fn starts<T: Element, const N: usize>(slice: *const T, index: usize) -> *const T {
    assert!(
        (slice as usize).is_multiple_of(16),
        "this part of a slice is not aligned: begin it at a whole row"
    );
    // Within the slice, as the caller has seen.
    slice.wrapping_add(index * N)
}

/// The octet at `at`.
///
/// # Safety
/// Eight elements in memory that `load` may read, at a multiple of their size, or of 16 bytes where that is less.
#[inline(always)]
unsafe fn load<T: Element>(at: *const T, load: impl Fn(*const u8) -> [u32; 4]) -> [T; OCTET] {
    if const { T::SIZE == 1 } {
        // SAFETY: the caller's contract.
        return octet::of_bytes(unsafe { at.cast::<u64>().read() });
    }
    // SAFETY: the caller's contract.
    octet::of_packs(|pack| Pack::from_words(unsafe { load(at.cast::<Pack<T>>().add(pack).cast()) }))
}

/// Stores an octet.
///
/// # Safety
/// As for [`load`], and nobody else accesses it.
#[inline(always)]
unsafe fn store<T: Element>(at: *mut T, octet: &[T; OCTET]) {
    if const { T::SIZE == 1 } {
        // SAFETY: the caller's contract.
        unsafe { arch::store_8(at.cast(), octet::bytes(octet)) };
        return;
    }
    octet::each_pack(octet, |pack, value| {
        // SAFETY: the caller's contract.
        unsafe { arch::store_16(at.cast::<Pack<T>>().add(pack).cast(), value.words()) };
    });
}

impl<T: Element> Out<'_, T> {
    /// The row of this `consume` call: `N` elements from `ctx.index * N` on.
    ///
    /// # Panics
    /// If the output ends before.
    #[inline(always)]
    #[track_caller]
    pub fn row<'c, const N: usize, const S: usize>(
        &'c self,
        ctx: &'c ConsumeRow<N, S>,
    ) -> RowPlace<'c, T, N, S> {
        assert!(ctx.index < self.len() / N, "output ends before this row");
        RowPlace { at: self.pointer(ctx.index * N), own: PhantomData }
    }

    /// The row of a `produce` call, of what is input and output in one. Nobody has stored to it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn row_to_send<const N: usize, const S: usize>(&self, ctx: &ProduceRow<N, S>) -> Row<T, N, S> {
        assert!(ctx.index < self.len() / N, "output ends before this row");
        let start = self.pointer(ctx.index * N).cast_const();
        // SAFETY: in bounds by the assertion, aligned as for `RowPlace::get`, and stored to by the row's `consume` alone, which comes later.
        Row::of_slots(|_, octet| unsafe {
            load::<T>(start.add(octet * OCTET), |at| arch::load_input(ctx.cache_policy, at))
        })
    }
}

/// A row of an [`Out`] that belongs to one `consume` call.
#[derive(Debug)]
pub struct RowPlace<'c, T, const N: usize, const S: usize> {
    at: *mut T,
    own: PhantomData<&'c mut T>,
}

impl<T: Element, const N: usize, const S: usize> RowPlace<'_, T, N, S> {
    /// The row.
    #[inline(always)]
    pub fn get(&self) -> Row<T, N, S> {
        // SAFETY: in bounds (checked by `Out::row`), aligned since rows are whole packs, and each octet is one thread's of the one team.
        Row::of_slots(|_, octet| unsafe { load::<T>(self.at.add(octet * OCTET), |at| arch::load_16(at)) })
    }

    /// Sets the row.
    #[inline(always)]
    pub fn set(&self, row: &Row<T, N, S>) {
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
            // SAFETY: as for `get`.
            unsafe { store(self.at.add(octet * OCTET), &row.octets[K]) };
        });
    }
}

/// An output that has one element for each row. Its own type, so that no element of it belongs to a row in one way and to another row in another.
#[derive(Clone, Copy, Debug)]
pub struct PerRow<'a, T> {
    all: Out<'a, T>,
}

/// An output that has one element for each `G` of a row's: 32, 64, 128 or 256. As [`PerRow`].
#[derive(Clone, Copy, Debug)]
pub struct PerGroup<'a, T, const G: usize> {
    all: Out<'a, T>,
}

impl<'a, T: Element> PerRow<'a, T> {
    /// The output a hook sees.
    ///
    /// # Safety
    /// As for [`Out::from_raw`].
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn from_raw(raw: RawSlice<T>, lent: Lent<'a>) -> Self {
        // SAFETY: the caller's contract.
        PerRow { all: unsafe { Out::from_raw(raw, lent) } }
    }

    /// The element of this `consume` call's row: number `ctx.index`.
    ///
    /// # Panics
    /// If the output ends before.
    #[inline(always)]
    #[track_caller]
    pub fn at<'c, const N: usize, const S: usize>(&'c self, ctx: &'c ConsumeRow<N, S>) -> OfRow<'c, T, N> {
        assert!(ctx.index < self.all.len(), "output ends before this row");
        OfRow { at: self.all.pointer(ctx.index), own: PhantomData }
    }
}

impl<'a, T: Element, const G: usize> PerGroup<'a, T, G> {
    /// The output a hook sees.
    ///
    /// # Safety
    /// As for [`Out::from_raw`].
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn from_raw(raw: RawSlice<T>, lent: Lent<'a>) -> Self {
        // SAFETY: the caller's contract.
        PerGroup { all: unsafe { Out::from_raw(raw, lent) } }
    }

    /// The elements of this `consume` call's row: `N / G` from `ctx.index * (N / G)` on.
    ///
    /// # Panics
    /// If the output ends before.
    #[inline(always)]
    #[track_caller]
    pub fn at<'c, const N: usize, const S: usize>(
        &'c self,
        ctx: &'c ConsumeRow<N, S>,
    ) -> OfGroups<'c, T, G, N, S> {
        const { groups::check::<G, N>() };
        assert!(ctx.index < self.all.len() / (N / G), "output ends before this row's groups");
        OfGroups { at: self.all.pointer(ctx.index * (N / G)), own: PhantomData }
    }
}

/// The element of a [`PerRow`] that belongs to one `consume` call's row. All threads of the row ask for it together.
#[derive(Debug)]
pub struct OfRow<'c, T, const N: usize> {
    at: *mut T,
    own: PhantomData<&'c mut T>,
}

impl<T: Element, const N: usize> OfRow<'_, T, N> {
    /// The element.
    #[inline(always)]
    pub fn get(&self) -> T {
        const { team::small::<T>() };
        // SAFETY: in bounds (checked by `PerRow::at`), and accessed by the team's first thread alone.
        team::of_first::<T, N>(|| unsafe { self.at.read() })
    }

    /// Sets it.
    #[inline(always)]
    pub fn set(&self, value: T) {
        if team::lane::<N>() == 0 {
            // SAFETY: as above.
            unsafe { self.at.write(value) };
        }
    }
}

/// The elements of a [`PerGroup`] that belong to one `consume` call's row. All threads of the row ask for them together.
#[derive(Debug)]
pub struct OfGroups<'c, T, const G: usize, const N: usize, const S: usize> {
    at: *mut T,
    own: PhantomData<&'c mut T>,
}

impl<T: Element, const G: usize, const N: usize, const S: usize> OfGroups<'_, T, G, N, S> {
    /// The elements.
    #[inline(always)]
    pub fn get(&self) -> Groups<T, G, N, S> {
        // SAFETY: in bounds (checked by `PerGroup::at`), and accessed by the first of a group's threads alone.
        Groups::of_first(|group| unsafe { self.at.add(group).read() })
    }

    /// Sets them, each by the first of its threads.
    #[inline(always)]
    pub fn set(&self, groups: &Groups<T, G, N, S>) {
        groups.each_first(|group, value| {
            // SAFETY: as for `get`.
            unsafe { self.at.add(group).write(value) };
        });
    }
}
