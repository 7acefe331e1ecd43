//! Outputs that any thread changes.

use super::{Atomic, Lent, RawSlice, operations};
use core::marker::PhantomData;

/// An output that any thread may change at any index, atomically (relaxed, this GPU or process). Sums of floats depend on the
/// order, and a GPU takes subnormal `f32` for zero in them.
///
/// The operations that return what an element was wait for it; [`Accumulate::add`] does not.
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

impl<'a, T: Atomic> Accumulate<'a, T> {
    /// The output a hook sees.
    ///
    /// # Safety
    /// The launch checked that `raw` holds `len` elements of `T`, aligned, that outlive `'a`, and nothing but this launch accesses them.
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
    /// Where all elements begin, and how many there are.
    ///
    /// # Panics
    /// If `index` is not below that.
    #[inline(always)]
    #[track_caller]
    fn elements(&self, index: usize) -> (*mut T, usize) {
        assert!(index < self.len, "index past the end of the output");
        (self.start, self.len)
    }

    /// Adds `value` to element `index`; integers wrap.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    #[inline(always)]
    #[track_caller]
    pub fn add(&self, index: usize, value: T) {
        let (start, len) = self.elements(index);
        // SAFETY: in bounds by `elements`; this type gives no access that is not atomic.
        unsafe { T::add(start, len, index, value) }
    }

    /// Element `index`: what it is just now.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, index: usize) -> T {
        let (start, len) = self.elements(index);
        // SAFETY: as above.
        unsafe { T::load(start, len, index) }
    }
}
operations!(Accumulate);
