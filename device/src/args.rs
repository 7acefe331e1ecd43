//! Kernel arguments.
//!
//! | field type | what hooks may do | soundness |
//! |---|---|---|
//! | `&'a [T]` | read anywhere, bounds-checked | nobody writes it during the launch |
//! | [`Out<'a, T>`](Out) | read and write the element (or pack) of the `Consume` at hand | each `Consume` exists once per launch |
//! | [`InOut<'a, T>`](InOut) | read the element of the `Produce` at hand, write that of the `Consume` | protocols read an element before they store to it |
//! | [`Accumulate<'a, T>`](Accumulate) | add and exchange anywhere, atomically | only atomics touch it |
//! | numbers, `bool`, [`Plain`] types of one's own, arrays of them; `Option` of these | read | by value |

mod accumulate;
mod atomic;
mod in_out;
mod part;

pub use crate::plain::{Crosses, Parts, Plain, RawOption, code_of, made_of};
pub use accumulate::Accumulate;
pub use atomic::Atomic;
pub(crate) use atomic::operations;
pub use in_out::InOut;
use part::gather;
pub(crate) use part::store_pack;

use crate::arch;
use crate::ctx::{Consume, Ctx};
use crate::element::Element;
use crate::pack::{Pack, unroll};
use core::marker::PhantomData;

/// The address of no elements: aligned for all.
const NOWHERE: u64 = 256;

/// A slice as it crosses from host to device: of `T` on both sides, see [`Crosses::CODE`].
#[derive(Debug)]
#[repr(C)]
pub struct RawSlice<T> {
    /// Address in the memory of the machine that runs the kernel, aligned as elements are; of no elements, some such number that is not 0.
    address: u64,
    /// Elements.
    len: u64,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for RawSlice<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RawSlice<T> {}

// SAFETY: two words; the code is of slices and the element.
unsafe impl<T: Element> Crosses for RawSlice<T> {
    const CODE: u64 = made_of(1, T::CODE);
}

impl<T> RawSlice<T> {
    /// `len` elements at `address`. What follows the address says what must be there.
    pub const fn new(address: u64, len: usize) -> Self {
        // Not where it is used: there it is a choice for each slice, which stands between the loads of a loop.
        let address = if len == 0 { NOWHERE } else { address };
        const { assert!(align_of::<T>() <= NOWHERE as usize) };
        RawSlice { address, len: len as u64, element: PhantomData }
    }

    /// Address of the first element.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The slice a hook sees.
    ///
    /// # Safety
    /// The launch checked that the address holds that many elements of `T`, aligned, that outlive `'a` and are not written in `'a`.
    #[inline(always)]
    pub unsafe fn slice<'a>(self, _: Lent<'a>) -> &'a [T]
    where
        T: Element,
    {
        // SAFETY: the caller's contract; of no elements, `new`'s address.
        unsafe { core::slice::from_raw_parts(self.address as *const T, self.len as usize) }
    }
}

/// How long arguments are lent to hooks: for `'a`, and no longer however a hook names its lifetimes.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a>(PhantomData<fn(&'a ()) -> &'a ()>);

impl<'a> Lent<'a> {
    /// For as long as `_while` is borrowed.
    #[inline(always)]
    pub const fn while_borrowed<T>(_while: &'a T) -> Self {
        Lent(PhantomData)
    }

    /// For a lifetime that the caller names.
    #[inline(always)]
    pub const fn named() -> Self {
        Lent(PhantomData)
    }
}

/// Packs of a slice.
pub trait Packs<T: Element> {
    /// The pack at the context's own index. Elements past `ctx.valid` are zero.
    ///
    /// # Panics
    /// If the slice ends before `ctx.index() + ctx.valid`, or does not start at a multiple of 16 bytes, as a part of one may; if the
    /// wire's elements are so narrow that `ctx.valid` are more than one pack of `T` (see [`Packs::packs`]).
    #[track_caller]
    fn pack(&self, ctx: &Ctx) -> Pack<T>;

    /// The `N` packs at the context's own index: for a wire whose elements are narrower, `N` times as many to a pack. Elements past
    /// `ctx.valid` are zero.
    ///
    /// # Panics
    /// As for [`Packs::pack`], with `N` packs in place of one.
    #[track_caller]
    fn packs<const N: usize>(&self, ctx: &Ctx) -> [Pack<T>; N];

    /// The `Pack::LANES` elements from `first` on.
    ///
    /// # Panics
    /// If the slice ends before them.
    #[track_caller]
    fn pack_at(&self, first: usize) -> Pack<T>;

    /// The element at `ctx.transposed_index()`, tested once for the whole chunk and not for each element: what a `produce` of
    /// `layout(transposed)` that only moves elements is best written with.
    ///
    /// # Panics
    /// If the slice ends before `ctx.chunk_start + ctx.chunk_len`.
    #[track_caller]
    fn transposed(&self, ctx: &Ctx) -> T;
}

impl<T: Element> Packs<T> for [T] {
    #[inline(always)]
    #[track_caller]
    fn pack(&self, ctx: &Ctx) -> Pack<T> {
        let first = ctx.index();
        // One comparison with what does not change in a loop; and no numbers in the message, which would cost stack on the device.
        assert!(ctx.inside(self.len()), "input ends before this element");
        // SAFETY: in bounds by the assertion.
        let own = unsafe { self.get_unchecked(first..first + ctx.valid) };
        if ctx.whole && Pack::<T>::LANES == ctx.valid {
            // The index is a multiple of a pack. A launch's slice is aligned; a part of one, that a hook made, may not be.
            assert!(
                (self.as_ptr() as usize).is_multiple_of(16),
                "this part of a slice is not aligned: use `pack_at`"
            );
            // SAFETY: in bounds by the slicing above, aligned by the assertion.
            Pack::from_words(unsafe { arch::load_input(ctx.cache_policy, own.as_ptr().cast()) })
        } else {
            fits::<T>(ctx, 1);
            gather(own)
        }
    }

    #[inline(always)]
    #[track_caller]
    fn packs<const N: usize>(&self, ctx: &Ctx) -> [Pack<T>; N] {
        let (first, lanes) = (ctx.index(), Pack::<T>::LANES);
        assert!(ctx.inside(self.len()), "input ends before this element");
        // SAFETY: in bounds by the assertion.
        let own = unsafe { self.get_unchecked(first..first + ctx.valid) };
        let mut packs = [Pack::ZERO; N];
        if ctx.whole && N * lanes == ctx.valid {
            // As for one pack.
            assert!(
                (self.as_ptr() as usize).is_multiple_of(16),
                "this part of a slice is not aligned: use `pack_at`"
            );
            unroll!(N, |K| {
                // SAFETY: inside `own`, aligned by the assertion.
                packs[K] = Pack::from_words(unsafe {
                    arch::load_input(ctx.cache_policy, own.as_ptr().add(K * lanes).cast())
                });
            });
        } else {
            fits::<T>(ctx, N);
            unroll!(N, |K| packs[K] = gather(own.get(K * lanes..).unwrap_or_default()));
        }
        packs
    }

    #[inline(always)]
    #[track_caller]
    fn pack_at(&self, first: usize) -> Pack<T> {
        assert!(Pack::<T>::LANES > 0, "elements of this size are no part of a pack: take them one by one");
        // As in `pack`. No sum of `first`, which may be any number.
        assert!(first <= self.len() && Pack::<T>::LANES <= self.len() - first, "input ends before this pack");
        // SAFETY: in bounds by the assertion.
        let own = unsafe { self.get_unchecked(first..first + Pack::<T>::LANES) };
        if (own.as_ptr() as usize).is_multiple_of(16) {
            // SAFETY: in bounds by the slicing above, aligned by the test.
            Pack::from_words(unsafe { arch::load_16(own.as_ptr().cast()) })
        } else {
            gather(own)
        }
    }

    #[inline(always)]
    #[track_caller]
    fn transposed(&self, ctx: &Ctx) -> T {
        // The same for all elements of a chunk, so that one test serves all that are asked for together. The sum is a number: launches and
        // tiles whose chunks end beyond are refused.
        assert!(ctx.chunk_start + ctx.chunk_len <= self.len(), "input ends before this chunk");
        let (first, beside) = ctx.transposed_parts();
        // Two instructions for each of neighbours, and not four. `beside` is of whole tiles, which go over 128 bytes of a column at least, and
        // a chunk has fewer than 2^32 packs: a row is shorter than 4 GiB.
        let row = (ctx.rows * size_of::<T>()) as u32;
        // SAFETY: a context's row and column are inside its chunk's shape, which has `chunk_len` elements.
        unsafe { *self.as_ptr().add(first).byte_add(beside * row as usize) }
    }
}

/// Not asked of whole packs, whose number the compiler knows.
#[inline(always)]
#[track_caller]
fn fits<T: Element>(ctx: &Ctx, packs: usize) {
    // A constant.
    assert!(Pack::<T>::LANES > 0, "elements of this size are no part of a pack: take them one by one");
    assert!(
        ctx.valid <= packs * Pack::<T>::LANES,
        "the wire's elements are narrower than these: take several packs at once (`packs`, `get_packs`, `set_packs`)"
    );
}

/// An output of which each `consume` call owns one element, or one pack.
///
/// There is no `&mut [T]`: thousands of threads hold this value at once. [`Out::at`] takes the [`Consume`] as witness.
#[derive(Clone, Copy, Debug)]
pub struct Out<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: through an `Out` each thread reaches only the elements whose `Consume` it holds, and each `Consume` exists once.
unsafe impl<T: Send> Send for Out<'_, T> {}
// SAFETY: as above; there is no access without a witness.
unsafe impl<T: Send> Sync for Out<'_, T> {}

impl<'a, T: Element> Out<'a, T> {
    /// The output a hook sees.
    ///
    /// # Safety
    /// The launch checked that `raw` holds `len` elements of `T`, aligned, that outlive `'a`, and that nothing but the
    /// consume calls of this one launch accesses them in `'a`.
    #[inline(always)]
    pub unsafe fn from_raw(raw: RawSlice<T>, _: Lent<'a>) -> Self {
        Self { start: raw.address as *mut T, len: raw.len as usize, life: PhantomData }
    }

    /// Elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of this `consume` call: index `ctx.index()`, `ctx.valid` elements.
    ///
    /// # Panics
    /// If the output ends before it.
    #[inline(always)]
    #[track_caller]
    pub fn at<'c>(&'c self, ctx: &'c Consume) -> Place<'c, T> {
        self.there(ctx)
    }

    /// The place at a context's index, which the caller alone reaches, or only reads while nobody writes.
    #[inline(always)]
    #[track_caller]
    fn there<'c>(&'c self, ctx: &'c Ctx) -> Place<'c, T> {
        let first = ctx.index();
        assert!(ctx.inside(self.len), "output ends before this element");
        // SAFETY: in bounds by the assertion.
        Place { at: unsafe { self.start.add(first) }, ctx, own: PhantomData }
    }

    /// The address of element `first`, which the caller has seen to be inside.
    #[inline(always)]
    pub(crate) fn pointer(&self, first: usize) -> *mut T {
        self.start.wrapping_add(first)
    }

    /// The place of `len` elements from `first` on, which belong to as many `consume` calls.
    ///
    /// # Panics
    /// If the output ends before them.
    #[cfg(not(target_arch = "nvptx64"))]
    #[track_caller]
    pub(crate) fn run(&self, first: usize, len: usize) -> *mut T {
        assert!(len <= self.len && first <= self.len - len, "output ends before these elements");
        // SAFETY: in bounds by the assertion.
        unsafe { self.start.add(first) }
    }

    /// Reads element `index`, whoever owns it.
    ///
    /// # Safety
    /// No other thread writes that element meanwhile: this block wrote it before its last sync, say.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn read(&self, index: usize) -> T {
        assert!(index < self.len, "index past the end of the output");
        // SAFETY: in bounds by the assertion, not written by the caller's contract.
        unsafe { self.start.add(index).read() }
    }

    /// Writes element `index`, whoever owns it.
    ///
    /// # Safety
    /// No other thread of the launch reads or writes that element: the caller's indices are a permutation, say.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn write(&self, index: usize, value: T) {
        assert!(index < self.len, "index past the end of the output");
        // SAFETY: in bounds by the assertion, exclusive by the caller's contract.
        unsafe { self.start.add(index).write(value) };
    }
}

/// The element or pack of an [`Out`] that belongs to one `consume` call. Used like a `Cell`: values go in and out, no reference does.
#[derive(Debug)]
pub struct Place<'c, T> {
    at: *mut T,
    ctx: &'c Ctx,
    own: PhantomData<&'c mut T>,
}

impl<T: Element> Place<'_, T> {
    /// The (first) element.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: in bounds (checked by `Out::at`), and only this call reaches it.
        unsafe { self.at.read() }
    }

    /// Sets the (first) element.
    #[inline(always)]
    pub fn set(&self, value: T) {
        // SAFETY: as for `get`.
        unsafe { self.at.write(value) };
    }

    /// Replaces the (first) element by `f` of it.
    #[inline(always)]
    pub fn update(&self, f: impl FnOnce(T) -> T) {
        self.set(f(self.get()));
    }

    /// Adds to the (first) element.
    #[inline(always)]
    pub fn add(&self, value: T)
    where
        T: core::ops::Add<Output = T>,
    {
        self.update(|old| old + value);
    }

    /// The pack; elements past `ctx.valid` are zero.
    ///
    /// # Panics
    /// If the wire's elements are so narrow that `ctx.valid` are more than one pack of `T`: see [`Place::get_packs`].
    #[inline(always)]
    #[track_caller]
    pub fn get_pack(&self) -> Pack<T> {
        if self.ctx.whole && Pack::<T>::LANES == self.ctx.valid {
            // SAFETY: in bounds and exclusive as for `get`; aligned since `whole`.
            Pack::from_words(unsafe { arch::load_16(self.at.cast_const().cast()) })
        } else {
            fits::<T>(self.ctx, 1);
            // SAFETY: `ctx.valid` elements are in bounds (checked by `Out::at`), and only this call reaches them.
            gather(unsafe { core::slice::from_raw_parts(self.at, self.ctx.valid) })
        }
    }

    /// The elements of this call, which are up to `N` packs: for outputs whose elements are wider than those of the wire. Elements past
    /// `ctx.valid` are zero.
    ///
    /// # Panics
    /// If `ctx.valid` are more.
    #[inline(always)]
    #[track_caller]
    pub fn get_packs<const N: usize>(&self) -> [Pack<T>; N] {
        let lanes = Pack::<T>::LANES;
        let mut packs = [Pack::ZERO; N];
        if self.ctx.whole && self.ctx.valid == N * lanes {
            unroll!(N, |K| {
                // SAFETY: in bounds and exclusive as for `get`; aligned since `whole`, and by whole packs from there.
                packs[K] =
                    Pack::from_words(unsafe { arch::load_16(self.at.add(K * lanes).cast_const().cast()) });
            });
        } else {
            fits::<T>(self.ctx, N);
            // SAFETY: `ctx.valid` elements are in bounds (checked by `Out::at`), and only this call reaches them.
            let own = unsafe { core::slice::from_raw_parts(self.at, self.ctx.valid) };
            unroll!(N, |K| packs[K] = gather(own.get(K * lanes..).unwrap_or_default()));
        }
        packs
    }

    /// Sets the pack; elements past `ctx.valid` are left out.
    ///
    /// # Panics
    /// As for [`Place::get_pack`].
    #[inline(always)]
    #[track_caller]
    pub fn set_pack(&self, value: Pack<T>) {
        if self.ctx.whole && Pack::<T>::LANES == self.ctx.valid {
            // SAFETY: in bounds and exclusive as for `get`; aligned since `whole`.
            unsafe { arch::store_16(self.at.cast(), value.words()) };
        } else {
            fits::<T>(self.ctx, 1);
            // SAFETY: `ctx.valid` elements are in bounds, and only this call reaches them.
            unsafe { store_pack(self.at, self.ctx.valid, value) };
        }
    }

    /// Sets the elements of this call, which are up to `N` packs: for outputs whose elements are wider than those of the wire. Elements
    /// past `ctx.valid` are left out.
    ///
    /// # Panics
    /// As for [`Place::get_packs`].
    #[inline(always)]
    #[track_caller]
    pub fn set_packs<const N: usize>(&self, values: [Pack<T>; N]) {
        let lanes = Pack::<T>::LANES;
        if !(self.ctx.whole && self.ctx.valid == N * lanes) {
            fits::<T>(self.ctx, N);
        }
        // Of a rank alone, which has no other work for the L2 cache.
        let in_pairs = self.ctx.cache_policy.is_some() && N.is_multiple_of(2);
        unroll!(N, |K| {
            if self.ctx.whole && self.ctx.valid == N * lanes {
                let at = self.at.wrapping_add(K * lanes).cast();
                if !in_pairs {
                    // SAFETY: in bounds and exclusive as for `get`; aligned since `whole`, and by whole packs from there.
                    unsafe { arch::store_16(at, values[K].words()) };
                } else if K.is_multiple_of(2) {
                    // SAFETY: the same; lanes access what is their own.
                    unsafe { arch::store_32::<N>(at, [values[K].words(), values[K + 1].words()]) };
                }
            } else if K * lanes < self.ctx.valid {
                // SAFETY: `ctx.valid` elements are in bounds, and only this call reaches them.
                unsafe { store_pack(self.at.add(K * lanes), self.ctx.valid - K * lanes, values[K]) };
            }
        });
    }

    /// Sets the elements of this call, the first of `values`: by 16 bytes where they are as many.
    #[inline(always)]
    pub(crate) fn set_first(&self, values: [T; 8]) {
        let (valid, lanes) = (self.ctx.valid, Pack::<T>::LANES);
        if !self.ctx.whole || !valid.is_multiple_of(lanes) {
            unroll!(8, |K| if K < valid {
                // SAFETY: in bounds (checked by `Out::at`), and only this call reaches them.
                unsafe { self.at.add(K).write(values[K]) };
            });
            return;
        }
        unroll!(4, |K| if K * lanes < valid {
            let mut pack = Pack::ZERO;
            unroll!(8, |J| if J < lanes && K * lanes + J < 8 {
                pack = pack.with::<J>(values[K * lanes + J]);
            });
            // SAFETY: as above; aligned since `whole`, and by whole packs from there.
            unsafe { arch::store_16(self.at.add(K * lanes).cast(), pack.words()) };
        });
    }

    /// Replaces the pack by `f` of it.
    ///
    /// # Panics
    /// As for [`Place::get_pack`].
    #[inline(always)]
    #[track_caller]
    pub fn update_pack(&self, f: impl FnOnce(Pack<T>) -> Pack<T>) {
        self.set_pack(f(self.get_pack()));
    }
}
