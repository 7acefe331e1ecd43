//! Copies of bytes that a peer may write or read at the same time: by relaxed atomics, so that they come out old, new or mixed, and
//! nothing worse.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Copies into shared bytes.
///
/// # Safety
/// `bytes.len()` bytes at `to` are live, and accessed by atomics alone meanwhile: of any size, or by an adapter.
pub(crate) unsafe fn copy_in(to: *mut u8, bytes: &[u8]) {
    let (head, words) = cut(to, bytes.len());
    let (first, rest) = bytes.split_at(head);
    let (middle, last) = rest.split_at(8 * words);
    // SAFETY: within the caller's range; words are aligned by `cut`.
    unsafe {
        singly_in(to, first);
        for (k, word) in middle.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            AtomicU64::from_ptr(to.add(head + 8 * k).cast()).store(word, Relaxed);
        }
        singly_in(to.add(head + 8 * words), last);
    }
}

/// Copies out of shared bytes.
///
/// # Safety
/// As for [`copy_in`].
pub(crate) unsafe fn copy_out(from: *const u8, into: &mut [u8]) {
    let (head, words) = cut(from, into.len());
    let (first, rest) = into.split_at_mut(head);
    let (middle, last) = rest.split_at_mut(8 * words);
    // SAFETY: within the caller's range; words are aligned by `cut`.
    unsafe {
        singly_out(from, first);
        for (k, place) in middle.chunks_exact_mut(8).enumerate() {
            let word = AtomicU64::from_ptr(from.add(head + 8 * k).cast_mut().cast()).load(Relaxed);
            place.copy_from_slice(&word.to_ne_bytes());
        }
        singly_out(from.add(head + 8 * words), last);
    }
}

/// Bytes up to the first aligned word, and whole words from there.
fn cut(at: *const u8, bytes: usize) -> (usize, usize) {
    let head = (at.addr().wrapping_neg() & 7).min(bytes);
    (head, (bytes - head) / 8)
}

/// # Safety
/// As for [`copy_in`].
unsafe fn singly_in(to: *mut u8, bytes: &[u8]) {
    for (k, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe { AtomicU8::from_ptr(to.add(k)) }.store(*byte, Relaxed);
    }
}

/// # Safety
/// As for [`copy_in`].
unsafe fn singly_out(from: *const u8, into: &mut [u8]) {
    for (k, byte) in into.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        *byte = unsafe { AtomicU8::from_ptr(from.add(k).cast_mut()) }.load(Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn copies_those_bytes_and_no_others(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..17) {
            let mut memory = vec![0x5au8; 256];
            let place = memory.as_mut_ptr().wrapping_add(at);
            // SAFETY: within the vector, which nobody else has.
            unsafe { copy_in(place, &bytes) };
            let mut out = vec![0; bytes.len()];
            // SAFETY: as above.
            unsafe { copy_out(place, &mut out) };
            prop_assert_eq!(&out, &bytes);
            let mut want = vec![0x5au8; 256];
            want[at..at + bytes.len()].copy_from_slice(&bytes);
            prop_assert_eq!(memory, want);
        }
    }
}
