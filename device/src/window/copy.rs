//! Copying by all threads of a group.

use crate::arch;
use crate::group::Group;

/// Copies by all threads of the group, 16 bytes at a time where both ends are equally aligned.
///
/// # Safety
/// Both ranges are valid, do not overlap, and nobody else accesses them meanwhile.
#[inline(always)]
pub(super) unsafe fn copy<G: Group>(group: &G, to: *mut u8, from: *const u8, bytes: u64) {
    let (lane, lanes, bytes) = (group.lane() as usize, group.lanes() as usize, bytes as usize);
    let head = (to as usize).wrapping_neg() & 15;
    let aligned = (to as usize ^ from as usize) & 15 == 0 && bytes >= head + 16;
    let (head, wide) = if aligned { (head, (bytes - head) / 16) } else { (bytes, 0) };
    // SAFETY: in range by the caller's contract.
    unsafe {
        single(lane, lanes, to, from, 0, head);
        words(lane, lanes, to.add(head), from.add(head), wide);
        single(lane, lanes, to, from, head + 16 * wide, bytes);
    }
}

/// `count` aligned words of 16 bytes.
///
/// # Safety
/// As for [`copy`], and aligned to 16.
#[inline(always)]
unsafe fn words(lane: usize, lanes: usize, to: *mut u8, from: *const u8, count: usize) {
    // SAFETY: callers stay below `count`.
    let load = |i: usize| unsafe { arch::load_16(from.add(16 * i)) };
    // SAFETY: as above.
    let store = |i: usize, value| unsafe { arch::store_16(to.add(16 * i), value) };
    let mut i = lane;
    // Four in flight.
    while i + 3 * lanes < count {
        let (a, b, c, d) = (load(i), load(i + lanes), load(i + 2 * lanes), load(i + 3 * lanes));
        store(i, a);
        store(i + lanes, b);
        store(i + 2 * lanes, c);
        store(i + 3 * lanes, d);
        i += 4 * lanes;
    }
    while i < count {
        store(i, load(i));
        i += lanes;
    }
}

/// Bytes `first..end` one by one.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn single(lane: usize, lanes: usize, to: *mut u8, from: *const u8, first: usize, end: usize) {
    let mut i = first + lane;
    while i < end {
        // SAFETY: in range by the caller's contract.
        unsafe { to.add(i).write(from.add(i).read()) };
        i += lanes;
    }
}

#[cfg(test)]
mod tests {
    use super::copy;
    use crate::group::Thread;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn copies_those_bytes_and_no_others(seed in prop::collection::vec(any::<u8>(), 1..600), a in 0usize..40, b in 0usize..40) {
            let mut from = vec![0u8; 700];
            from[a..a + seed.len()].copy_from_slice(&seed);
            let mut to = vec![0x5au8; 700];
            // SAFETY: both ranges lie within their vectors.
            unsafe { copy(&Thread, to.as_mut_ptr().add(b), from.as_ptr().add(a), seed.len() as u64) };
            let mut want = vec![0x5au8; 700];
            want[b..b + seed.len()].copy_from_slice(&seed);
            prop_assert_eq!(to, want);
        }
    }
}
