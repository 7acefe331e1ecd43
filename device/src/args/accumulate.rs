//! Sums that any thread adds to.

use super::{Lent, RawSlice};
use crate::arch;
use crate::element::Element;
use core::marker::PhantomData;

/// An output to which any thread may add, at any index, atomically (relaxed, this GPU or process). Sums of floats depend on the
/// order, and a GPU takes subnormal `f32` for zero here.
#[derive(Clone, Copy, Debug)]
pub struct Accumulate<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: all access through it is atomic.
unsafe impl<T: Send> Send for Accumulate<'_, T> {}
// SAFETY: all access through it is atomic.
unsafe impl<T: Send> Sync for Accumulate<'_, T> {}

/// Elements with an atomic addition: `u32`, `u64`, `f32`, `f64`.
#[diagnostic::on_unimplemented(
    message = "there is no atomic addition for `{Self}`",
    label = "needs u32, u64, f32 or f64"
)]
pub trait AtomicAdd: Element {
    /// # Safety
    /// `at` is aligned, valid for reads and writes, and accessed concurrently by atomic operations only.
    unsafe fn atomic_add(at: *mut Self, value: Self);
}

impl AtomicAdd for u32 {
    #[inline(always)]
    unsafe fn atomic_add(at: *mut Self, value: Self) {
        // SAFETY: the caller's contract.
        unsafe {
            <u32 as crate::atomic::Modify<crate::atomic::Device, crate::atomic::Relaxed>>::fetch_add(
                at, value,
            )
        };
    }
}

impl AtomicAdd for u64 {
    #[inline(always)]
    unsafe fn atomic_add(at: *mut Self, value: Self) {
        // SAFETY: the caller's contract.
        unsafe {
            <u64 as crate::atomic::Modify<crate::atomic::Device, crate::atomic::Relaxed>>::fetch_add(
                at, value,
            )
        };
    }
}

impl AtomicAdd for f32 {
    #[inline(always)]
    unsafe fn atomic_add(at: *mut Self, value: Self) {
        // SAFETY: the caller's contract.
        unsafe { arch::add_f32(at, value) };
    }
}

impl AtomicAdd for f64 {
    #[inline(always)]
    unsafe fn atomic_add(at: *mut Self, value: Self) {
        // SAFETY: the caller's contract.
        unsafe { arch::add_f64(at, value) };
    }
}

impl<'a, T: AtomicAdd> Accumulate<'a, T> {
    /// The output a hook sees.
    ///
    /// # Safety
    /// The launch checked that `raw` holds `len` aligned elements of `T` that outlive `'a`, and nothing but this launch accesses them.
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

    /// Adds `value` to element `index`.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    #[inline(always)]
    #[track_caller]
    pub fn add(&self, index: usize, value: T) {
        assert!(index < self.len, "index past the end of the output");
        // SAFETY: in bounds by the assertion; this type gives no other access.
        unsafe { T::atomic_add(self.start.add(index), value) };
    }
}
