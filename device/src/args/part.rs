//! Packs of fewer elements than they have room for.

use crate::element::Element;
use crate::pack::{Pack, unroll};

#[cfg(target_arch = "nvptx64")]
pub(super) use gather_each as gather;
#[cfg(target_arch = "nvptx64")]
pub(crate) use store_each as store_pack;

/// The first elements of a pack. For the host the loop is a call: inlined, it would keep whole packs from vector registers.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(super) fn gather<T: Element>(own: &[T]) -> Pack<T> {
    if let [one] = own { Pack::ZERO.with::<0>(*one) } else { gather_each(own) }
}

#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(super) fn gather_each<T: Element>(own: &[T]) -> Pack<T> {
    let mut pack = Pack::ZERO;
    unroll!(Pack::<T>::LANES, |K| if K < own.len() {
        pack = pack.with::<K>(own[K]);
    });
    pack
}

/// As [`store_each`], which is a call for the host.
///
/// # Safety
/// The same.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(crate) unsafe fn store_pack<T: Element>(at: *mut T, valid: usize, pack: Pack<T>) {
    // SAFETY: the caller's contract.
    unsafe { if valid == 1 { at.write(pack.get(0)) } else { store_each(at, valid, pack) } }
}

/// Stores the first `valid` elements of a pack, one by one.
///
/// # Safety
/// `at` is valid for writing them, and nobody else accesses them.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(crate) unsafe fn store_each<T: Element>(at: *mut T, valid: usize, pack: Pack<T>) {
    unroll!(Pack::<T>::LANES, |K| if K < valid {
        // SAFETY: the caller's contract.
        unsafe { at.add(K).write(pack.get(K)) };
    });
}
