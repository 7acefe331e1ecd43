//! Elements that threads change in turn, relaxed.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

macro_rules! fetches {
    ($($name:ident, $t:ty, $word:ty, $how:ident;)*) => {$(
        /// Changes an element in memory, and returns what it was.
        ///
        /// # Safety
        /// `at` is aligned, valid for reads and writes, accessed concurrently by atomic operations only.
        #[inline(always)]
        pub unsafe fn $name(at: *mut $t, value: $t) -> $t {
            // SAFETY: the caller's contract.
            unsafe { <$word>::from_ptr(at) }.$how(value, Relaxed)
        }
    )*};
}
fetches! {
    fetch_add_i32, i32, AtomicI32, fetch_add;
    fetch_add_i64, i64, AtomicI64, fetch_add;
    fetch_max_i32, i32, AtomicI32, fetch_max;
    fetch_max_i64, i64, AtomicI64, fetch_max;
    fetch_min_u32, u32, AtomicU32, fetch_min;
    fetch_min_u64, u64, AtomicU64, fetch_min;
    fetch_min_i32, i32, AtomicI32, fetch_min;
    fetch_min_i64, i64, AtomicI64, fetch_min;
}

macro_rules! adds {
    ($($fetch:ident, $add:ident, $t:ty, $word:ty;)*) => {$(
        /// Adds to an element in memory, and returns what it was.
        ///
        /// # Safety
        /// `at` is aligned, valid for reads and writes, accessed concurrently by atomic operations only.
        pub unsafe fn $fetch(at: *mut $t, value: $t) -> $t {
            // SAFETY: the caller's contract; the layouts of the two types agree.
            let word = unsafe { <$word>::from_ptr(at.cast()) };
            let sum = |bits| Some((<$t>::from_bits(bits) + value).to_bits());
            let (Ok(old) | Err(old)) = word.fetch_update(Relaxed, Relaxed, sum);
            <$t>::from_bits(old)
        }

        /// Adds to an element in memory.
        ///
        /// # Safety
        /// As for the one that returns what it was.
        pub unsafe fn $add(at: *mut $t, value: $t) {
            // SAFETY: the caller's contract.
            unsafe { $fetch(at, value) };
        }
    )*};
}
adds! {
    fetch_add_f32, add_f32, f32, AtomicU32;
    fetch_add_f64, add_f64, f64, AtomicU64;
}

macro_rules! no_halves {
    ($($name:ident)*) => {$(
        /// `None`: CPUs have no instruction that adds to an element of two bytes.
        ///
        /// # Safety
        /// None is needed; on GPUs `at` is a live element.
        #[inline(always)]
        pub unsafe fn $name(_: *mut u16, _: u16) -> Option<u16> {
            None
        }
    )*};
}
no_halves! { fetch_add_f16 fetch_add_bf16 }

/// Loads two bytes.
///
/// # Safety
/// `at` is aligned, valid for reads, written concurrently by atomic operations only.
#[inline(always)]
pub unsafe fn load_u16(at: *const u16) -> u16 {
    // SAFETY: the caller's contract.
    unsafe { AtomicU16::from_ptr(at.cast_mut()) }.load(Relaxed)
}

/// Stores `new` if two bytes hold `old`; returns what they held.
///
/// # Safety
/// `at` is aligned, valid for reads and writes, accessed concurrently by atomic operations only.
#[inline(always)]
pub unsafe fn compare_exchange_u16(at: *mut u16, old: u16, new: u16) -> u16 {
    // SAFETY: the caller's contract.
    let word = unsafe { AtomicU16::from_ptr(at) };
    match word.compare_exchange(old, new, Relaxed, Relaxed) {
        Ok(v) | Err(v) => v,
    }
}
