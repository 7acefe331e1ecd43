//! What the threads that share a row do together.

use super::PerSlot;
use crate::element::Element;

#[cfg(target_arch = "nvptx64")]
pub(super) use gpu::{lane, reduce, reduce_groups, sync};
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use host::{lane, reduce, reduce_groups, sync};

#[cfg(target_arch = "nvptx64")]
mod gpu {
    use super::*;
    use crate::arch::{self, Scratch};
    use crate::pack::unroll;
    use crate::row::{BLOCK, MOST_TAIL, OCTET, each_slot, lanes, octet_in, slots};

    /// This thread's number among those that share a row of `N` elements.
    #[inline(always)]
    pub fn lane<const N: usize>() -> u32 {
        arch::lane_index() & (lanes(N) - 1)
    }

    /// All of them wait for each other.
    #[inline(always)]
    pub fn sync<const N: usize>() {
        if lanes(N) == BLOCK { arch::sync_block() } else { arch::sync_warp() }
    }

    /// Folds what each slot gives, over the lanes of a row of `N` elements.
    #[inline(always)]
    pub fn reduce<T: Element, const N: usize>(
        nothing: T,
        f: &impl Fn(T, T) -> T,
        of_slot: impl Fn(usize) -> T,
    ) -> T {
        let mut own = nothing;
        each_slot!(slots(N), |K| if octet_in::<N>(K).is_some() {
            own = if K == 0 { of_slot(K) } else { f(own, of_slot(K)) };
        });
        let in_warp = butterfly(own, 32, f);
        if lanes(N) < BLOCK {
            return in_warp;
        }
        let scratch = Scratch::of_row::<N>();
        let warp = arch::lane_index() / 32;
        if arch::lane_index() % 32 == 0 {
            // SAFETY: each warp's word is its own.
            unsafe { scratch.store_8(MOST_TAIL + 8 * warp, in_warp.to_bits64()) };
        }
        sync::<N>();
        // SAFETY: stored before the barrier, and stored to again behind the next one.
        let of = |warp: u32| T::from_bits64(unsafe { scratch.load_8(MOST_TAIL + 8 * warp) });
        let all = f(f(f(of(0), of(1)), f(of(2), of(3))), f(f(of(4), of(5)), f(of(6), of(7))));
        sync::<N>();
        all
    }

    /// The same of the lanes that share a group, in each slot.
    #[inline(always)]
    pub fn reduce_groups<T: Element, const G: usize, const S: usize>(
        values: &mut PerSlot<T, S>,
        f: &impl Fn(T, T) -> T,
    ) {
        each_slot!(S, |K| values[K] = butterfly(values[K], (G / OCTET) as u32, f));
    }

    /// Folds the values of `width` neighbours, a power of two; each gets the result.
    #[inline(always)]
    fn butterfly<T: Element>(value: T, width: u32, f: &impl Fn(T, T) -> T) -> T {
        let (mut value, mut distance) = (value, 1);
        while distance < width {
            let bits = value.to_bits64();
            let mut other = u64::from(arch::exchange(bits as u32, distance));
            if T::SIZE == 8 {
                other |= u64::from(arch::exchange((bits >> 32) as u32, distance)) << 32;
            }
            let other = T::from_bits64(other);
            // The lower one stands left in both.
            let left = arch::lane_index() & distance == 0;
            let (a, b) = if left { (value, other) } else { (other, value) };
            value = f(a, b);
            distance *= 2;
        }
        value
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::*;
    use crate::row::{OCTET, lanes};
    use std::vec;

    /// One thread has the whole row.
    pub fn lane<const N: usize>() -> u32 {
        0
    }

    /// Nobody is waited for.
    pub fn sync<const N: usize>() {}

    /// Folds what each octet gives as the lanes of a GPU do.
    #[inline]
    pub fn reduce<T: Element, const N: usize>(
        nothing: T,
        f: &impl Fn(T, T) -> T,
        of_slot: impl Fn(usize) -> T,
    ) -> T {
        let lanes = lanes(N) as usize;
        let mut own = vec![nothing; lanes];
        for octet in 0..N / OCTET {
            let (lane, next) = (octet % lanes, of_slot(octet));
            own[lane] = if octet < lanes { next } else { f(own[lane], next) };
        }
        balanced(&mut own, f)
    }

    /// The same of the octets of each group.
    #[inline]
    pub fn reduce_groups<T: Element, const G: usize, const S: usize>(
        values: &mut PerSlot<T, S>,
        f: &impl Fn(T, T) -> T,
    ) {
        for group in values.chunks_mut(G / OCTET) {
            let all = balanced(group, f);
            group.fill(all);
        }
    }

    /// Folds a power of two of values by a balanced tree.
    fn balanced<T: Copy>(values: &mut [T], f: &impl Fn(T, T) -> T) -> T {
        let mut left = values.len();
        while left > 1 {
            left /= 2;
            for k in 0..left {
                values[k] = f(values[2 * k], values[2 * k + 1]);
            }
        }
        values[0]
    }
}
