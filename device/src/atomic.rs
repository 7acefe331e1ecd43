//! Memory operations whose scope and order are types.
//!
//! `core::sync::atomic` is not used on the device: its read-modify-writes lose both order and scope on `nvptx64`
//! (rust-lang/rust#136480). Each operation here is one instruction of PTX with explicit qualifiers; `tests` pins the text.
//!
//! On the host every scope is the same, and each order is `core`'s.

/// All threads of all processors that reach the address: GPUs, CPU, adapters.
pub struct System;
/// All threads of this GPU.
pub struct Device;
/// All threads of this block.
pub struct Block;

/// No ordering of other accesses.
pub struct Relaxed;
/// Accesses after it in program order are not performed before it.
pub struct Acquire;
/// Accesses before it in program order (and those observed before it) are visible to whoever acquires the value.
pub struct Release;
/// Both.
pub struct AcqRel;

/// A word of `T` that can be accessed with scope `S` and order `O`. Implemented in [`crate::arch`] for `u32` and `u64`.
pub trait Load<S, O>: Copy {
    /// # Safety
    /// `at` is aligned, valid for reads, and written concurrently by atomic stores only.
    unsafe fn load(at: *const Self) -> Self;
}

/// Stores with scope and order.
pub trait Store<S, O>: Copy {
    /// # Safety
    /// `at` is aligned, valid for writes, and accessed concurrently by atomic operations only.
    unsafe fn store(at: *mut Self, value: Self);
}

/// Read-modify-writes with scope and order; each returns the old value.
pub trait Modify<S, O>: Copy {
    /// Wrapping addition.
    /// # Safety
    /// As for [`Store::store`], and valid for reads.
    unsafe fn fetch_add(at: *mut Self, value: Self) -> Self;
    /// Exchange.
    /// # Safety
    /// As for [`Modify::fetch_add`].
    unsafe fn exchange(at: *mut Self, value: Self) -> Self;
    /// Stores `new` if the word holds `old`.
    /// # Safety
    /// As for [`Modify::fetch_add`].
    unsafe fn compare_exchange(at: *mut Self, old: Self, new: Self) -> Self;
    /// Maximum of unsigned numbers.
    /// # Safety
    /// As for [`Modify::fetch_add`].
    unsafe fn fetch_max(at: *mut Self, value: Self) -> Self;
}

/// Loads a word with scope `S` and order `O`.
///
/// # Safety
/// As for [`Load::load`].
#[inline(always)]
pub unsafe fn load<S, O, T: Load<S, O>>(at: *const T) -> T {
    // SAFETY: the caller's contract is this function's contract.
    unsafe { T::load(at) }
}

/// Stores a word with scope `S` and order `O`.
///
/// # Safety
/// As for [`Store::store`].
#[inline(always)]
pub unsafe fn store<S, O, T: Store<S, O>>(at: *mut T, value: T) {
    // SAFETY: the caller's contract is this function's contract.
    unsafe { T::store(at, value) }
}
