//! Outputs that any thread changes.

use super::{Atomic, Lent, RawSlice};
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
    /// The launch checked that `raw` holds `len` elements of `T`, 16-byte aligned, that outlive `'a`, and nothing but this launch accesses them.
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
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $of:ty),*) $(-> $result:ty)?;)*) => {
        impl<T: Atomic> Accumulate<'_, T> {
            $(
                $(#[$doc])*
                ///
                /// # Panics
                /// If `index` is not below `len()`.
                #[inline(always)]
                #[track_caller]
                pub fn $name(&self, index: usize $(, $argument: $of)*) $(-> $result)? {
                    assert!(index < self.len, "index past the end of the output");
                    // SAFETY: in bounds by the assertion; this type gives no access that is not atomic.
                    unsafe { T::$name(self.start, self.len, index $(, $argument)*) }
                }
            )*
        }
    };
}
operations! {
    /// Adds `value` to element `index`; integers wrap.
    add(value: T);
    /// Element `index`: what it is just now.
    load() -> T;
    /// Adds `value` to element `index`, and returns what it was.
    fetch_add(value: T) -> T;
    /// Sets element `index` to the greater of it and `value` (NaN if either is), and returns what it was.
    fetch_max(value: T) -> T;
    /// Sets element `index` to the lesser of it and `value` (NaN if either is), and returns what it was.
    fetch_min(value: T) -> T;
    /// Replaces element `index` by `f` of it, and returns what it was. `f` may be called several times.
    fetch_update(f: impl Fn(T) -> T) -> T;
    /// Sets element `index` to `new` if its bits are those of `old`, and returns what it was.
    compare_exchange(old: T, new: T) -> T;
}
