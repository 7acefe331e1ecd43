//! Elements that threads change in turn.

use crate::arch;
use crate::atomic::{Device, Load, Modify, Relaxed};
use crate::element::{Bf16, Element, F16, Float};
use crate::fold::Number;
use crate::math;

/// Elements with atomic operations: `u32`, `u64`, `i32`, `i64`, `f32`, `f64`, `F16` and `Bf16`. Relaxed, among the threads of a GPU or a process.
///
/// # Safety
/// Every operation is one access of the element, of its size.
#[diagnostic::on_unimplemented(
    message = "there are no atomic operations for `{Self}`",
    label = "needs u32, u64, i32, i64, f32, f64, F16 or Bf16"
)]
pub unsafe trait Atomic: Element {
    /// Replaces element `index` by `f` of it, and returns what it was.
    ///
    /// # Safety
    /// `start` is aligned, and begins `len` elements that are valid for reads and writes, and accessed concurrently by these
    /// operations only; `index` is below `len`.
    unsafe fn fetch_update(start: *mut Self, len: usize, index: usize, f: impl Fn(Self) -> Self) -> Self;
    /// The element.
    ///
    /// # Safety
    /// As for [`Atomic::fetch_update`].
    unsafe fn load(start: *const Self, len: usize, index: usize) -> Self;
    /// Adds; integers wrap.
    ///
    /// # Safety
    /// As for [`Atomic::fetch_update`].
    unsafe fn fetch_add(start: *mut Self, len: usize, index: usize, value: Self) -> Self;
    /// The greater; NaN if either is.
    ///
    /// # Safety
    /// As for [`Atomic::fetch_update`].
    unsafe fn fetch_max(start: *mut Self, len: usize, index: usize, value: Self) -> Self;
    /// The lesser; NaN if either is.
    ///
    /// # Safety
    /// As for [`Atomic::fetch_update`].
    unsafe fn fetch_min(start: *mut Self, len: usize, index: usize, value: Self) -> Self;
    /// `new` if the element's bits are those of `old`.
    ///
    /// # Safety
    /// As for [`Atomic::fetch_update`].
    #[inline(always)]
    unsafe fn compare_exchange(start: *mut Self, len: usize, index: usize, old: Self, new: Self) -> Self {
        let same = |seen: Self| seen.to_bits64() == old.to_bits64();
        // SAFETY: the caller's contract.
        unsafe { Self::fetch_update(start, len, index, |seen| if same(seen) { new } else { seen }) }
    }
    /// Adds, and does not wait for what the element was.
    ///
    /// # Safety
    /// As for [`Atomic::fetch_update`]; `start` is global memory.
    #[inline(always)]
    unsafe fn add(start: *mut Self, len: usize, index: usize, value: Self) {
        // SAFETY: the caller's contract.
        unsafe { Self::fetch_add(start, len, index, value) };
    }
}

/// Replaces the word at `at` by `f` of it.
///
/// # Safety
/// A live word, aligned, accessed concurrently by atomic operations only.
#[inline(always)]
unsafe fn update<W>(at: *mut W, f: impl Fn(W) -> W) -> W
where
    W: Load<Device, Relaxed> + Modify<Device, Relaxed> + PartialEq,
{
    // SAFETY: the caller's contract.
    let mut seen = unsafe { W::load(at) };
    loop {
        // SAFETY: as above.
        let found = unsafe { W::compare_exchange(at, seen, f(seen)) };
        if found == seen {
            return seen;
        }
        seen = found;
    }
}

macro_rules! words {
    ($($t:ty, $word:ty, $add:expr, $max:expr, $min:expr $(, $red:expr)?;)*) => {$(
        // SAFETY: each is one access of the element's word.
        unsafe impl Atomic for $t {
            #[inline(always)]
            unsafe fn fetch_update(start: *mut Self, _: usize, index: usize, f: impl Fn(Self) -> Self) -> Self {
                let of = |bits: $word| f(Self::from_bits64(bits.into())).to_bits64() as $word;
                // SAFETY: the caller's contract; a word has its size and alignment.
                Self::from_bits64(unsafe { update::<$word>(start.add(index).cast(), of) }.into())
            }
            #[inline(always)]
            unsafe fn load(start: *const Self, _: usize, index: usize) -> Self {
                // SAFETY: as above.
                Self::from_bits64(unsafe { <$word as Load<Device, Relaxed>>::load(start.add(index).cast()) }.into())
            }
            #[inline(always)]
            unsafe fn compare_exchange(start: *mut Self, _: usize, index: usize, old: Self, new: Self) -> Self {
                let (old, new) = (old.to_bits64() as $word, new.to_bits64() as $word);
                // SAFETY: as above.
                let found = unsafe {
                    <$word as Modify<Device, Relaxed>>::compare_exchange(start.add(index).cast(), old, new)
                };
                Self::from_bits64(found.into())
            }
            #[inline(always)]
            unsafe fn fetch_add(start: *mut Self, _: usize, index: usize, value: Self) -> Self {
                // SAFETY: the caller's contract.
                unsafe { $add(start.add(index), value) }
            }
            #[inline(always)]
            unsafe fn fetch_max(start: *mut Self, _: usize, index: usize, value: Self) -> Self {
                // SAFETY: the caller's contract.
                unsafe { $max(start.add(index), value) }
            }
            #[inline(always)]
            unsafe fn fetch_min(start: *mut Self, _: usize, index: usize, value: Self) -> Self {
                // SAFETY: the caller's contract.
                unsafe { $min(start.add(index), value) }
            }
            $(
                #[inline(always)]
                unsafe fn add(start: *mut Self, _: usize, index: usize, value: Self) {
                    // SAFETY: the caller's contract.
                    unsafe { $red(start.add(index), value) }
                }
            )?
        }
    )*};
}

/// Operations that are made of others.
mod made {
    use super::*;
    macro_rules! made {
        ($($name:ident($t:ty, $value:ident) = |$seen:ident| $by:expr;)*) => {$(
            #[inline(always)]
            pub unsafe fn $name(at: *mut $t, $value: $t) -> $t {
                // SAFETY: the caller's contract.
                unsafe { <$t>::fetch_update(at, 1, 0, |$seen| $by) }
            }
        )*};
    }
    made! {
        max_f32(f32, value) = |seen| math::max_nan(seen, value);
        min_f32(f32, value) = |seen| math::min_nan(seen, value);
        max_f64(f64, value) = |seen| math::max_nan(seen, value);
        min_f64(f64, value) = |seen| math::min_nan(seen, value);
    }
}

words! {
    u32, u32, <u32 as Modify<Device, Relaxed>>::fetch_add, <u32 as Modify<Device, Relaxed>>::fetch_max, arch::fetch_min_u32;
    u64, u64, <u64 as Modify<Device, Relaxed>>::fetch_add, <u64 as Modify<Device, Relaxed>>::fetch_max, arch::fetch_min_u64;
    i32, u32, arch::fetch_add_i32, arch::fetch_max_i32, arch::fetch_min_i32;
    i64, u64, arch::fetch_add_i64, arch::fetch_max_i64, arch::fetch_min_i64;
    f32, u32, arch::fetch_add_f32, made::max_f32, made::min_f32, arch::add_f32;
    f64, u64, arch::fetch_add_f64, made::max_f64, made::min_f64, arch::add_f64;
}

macro_rules! halves {
    ($($t:ty, $add:path;)*) => {$(
        // SAFETY: each is one access of the element's two bytes.
        unsafe impl Atomic for $t {
            #[inline(always)]
            unsafe fn fetch_update(start: *mut Self, _: usize, index: usize, f: impl Fn(Self) -> Self) -> Self {
                // SAFETY: the caller's contract.
                let at = unsafe { start.add(index).cast::<u16>() };
                // SAFETY: as above.
                let mut seen = unsafe { arch::load_u16(at) };
                loop {
                    let new = f(Self::from_bits(seen)).to_bits();
                    // SAFETY: as above.
                    let found = unsafe { arch::compare_exchange_u16(at, seen, new) };
                    if found == seen {
                        return Self::from_bits(seen);
                    }
                    seen = found;
                }
            }
            #[inline(always)]
            unsafe fn load(start: *const Self, _: usize, index: usize) -> Self {
                // SAFETY: the caller's contract.
                Self::from_bits(unsafe { arch::load_u16(start.add(index).cast()) })
            }
            #[inline(always)]
            unsafe fn fetch_add(start: *mut Self, len: usize, index: usize, value: Self) -> Self {
                // SAFETY: the caller's contract.
                match unsafe { $add(start.add(index).cast(), value.to_bits()) } {
                    Some(seen) => Self::from_bits(seen),
                    // SAFETY: as above.
                    None => unsafe { Self::fetch_update(start, len, index, |seen| seen + value) },
                }
            }
            #[inline(always)]
            unsafe fn fetch_max(start: *mut Self, len: usize, index: usize, value: Self) -> Self {
                let of = |seen: Self| Self::from_f32(seen.to_f32().greater(value.to_f32()));
                // SAFETY: the caller's contract.
                unsafe { Self::fetch_update(start, len, index, of) }
            }
            #[inline(always)]
            unsafe fn fetch_min(start: *mut Self, len: usize, index: usize, value: Self) -> Self {
                let of = |seen: Self| Self::from_f32(seen.to_f32().lesser(value.to_f32()));
                // SAFETY: the caller's contract.
                unsafe { Self::fetch_update(start, len, index, of) }
            }
        }
    )*};
}
halves! {
    F16, arch::fetch_add_f16;
    Bf16, arch::fetch_add_bf16;
}

/// The operations that return what an element was, of a type whose `elements` gives where all begin and how many there are, and panics for an index that
/// is not below.
macro_rules! operations {
    ($of:ident) => {
        operations! { $of:
            /// Adds `value` to element `index`, and returns what it was.
            fetch_add(value: T);
            /// Sets element `index` to the greater of it and `value` (NaN if either is), and returns what it was.
            fetch_max(value: T);
            /// Sets element `index` to the lesser of it and `value` (NaN if either is), and returns what it was.
            fetch_min(value: T);
            /// Replaces element `index` by `f` of it, and returns what it was. `f` may be called several times.
            fetch_update(f: impl Fn(T) -> T);
            /// Sets element `index` to `new` if its bits are those of `old`, and returns what it was.
            compare_exchange(old: T, new: T);
        }
    };
    ($of:ident: $($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        impl<T: Atomic> $of<'_, T> {
            $(
                $(#[$doc])*
                ///
                /// # Panics
                /// If `index` is not below `len()`.
                #[inline(always)]
                #[track_caller]
                pub fn $name(&self, index: usize $(, $argument: $type)*) -> T {
                    let (start, len) = self.elements(index);
                    // SAFETY: in bounds by `elements`; every access of these elements is atomic.
                    unsafe { T::$name(start, len, index $(, $argument)*) }
                }
            )*
        }
    };
}
pub(crate) use operations;
