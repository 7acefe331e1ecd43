//! What the threads that share a row do together.

use super::PerSlot;
use crate::element::Element;

#[cfg(target_arch = "nvptx64")]
pub(crate) use gpu::moved;
#[cfg(target_arch = "nvptx64")]
pub(super) use gpu::{Meeting, lane, of_first, reduce, reduce_groups, scan};
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use host::{Meeting, lane, of_first, reduce, reduce_groups, scan};

/// Refuses what goes from thread to thread in more than two words.
pub(super) const fn small<T: Element>() {
    assert!(
        T::SIZE <= 8,
        "what goes through a whole row has at most 8 bytes: take a part of each element first"
    );
}

/// Whether this thread is the first of those that share a row of `N` elements.
#[inline(always)]
pub(crate) fn leads<const N: usize>() -> bool {
    lane::<N>() == 0
}

#[cfg(target_arch = "nvptx64")]
mod gpu {
    use super::*;
    use crate::arch::{self, Scratch, meeting, rows};
    use crate::pack::unroll;
    use crate::row::{OCTET, WARP, each_slot, lanes, octet_in, shares_warps, slots};

    /// This thread's number among those that share a row of `N` elements.
    #[inline(always)]
    pub fn lane<const N: usize>() -> u32 {
        arch::lane_index() & const { lanes(N) - 1 }
    }

    /// A meeting of the threads that share a row of `N` elements: what they store into shared memory before [`Meeting::meet`] each of them may load
    /// behind it.
    ///
    /// Warps count their meetings in shared memory and see what the others have counted. No barrier of the hardware's is for some warps of a block
    /// and is passed when one of them has ended in a panic.
    ///
    /// The memory has two halves, for meetings in turn. A warp that has come to the next meeting has loaded all that it wants of this one. So
    /// one wait is enough, and who comes to the one behind that finds this half free.
    pub struct Meeting<const N: usize> {
        count: u32,
    }

    impl<const N: usize> Meeting<N> {
        /// By all threads of the team.
        #[inline(always)]
        pub fn new() -> Self {
            Meeting { count: if const { shares_warps(N) } { meeting::next(rows::counts()) } else { 0 } }
        }

        /// The team's memory for scales.
        #[inline(always)]
        pub fn scales(&self) -> Scratch {
            Scratch::of_scales::<N>(self.count & 1)
        }

        /// The team's memory for a word of each warp.
        #[inline(always)]
        pub fn words(&self) -> Scratch {
            Scratch::of_words::<N>(self.count & 1)
        }

        /// All of them wait for each other, or for a panic in the block: then what is loaded may be anything.
        #[inline(always)]
        pub fn meet(&self) {
            if const { !shares_warps(N) } {
                arch::sync_warp();
                return;
            }
            meeting::meet(rows::counts(), rows::first_warp::<N>(), const { lanes(N) / WARP }, self.count);
        }

        /// Behind what was loaded.
        #[inline(always)]
        pub fn end(self) {
            // Else the other half is next.
            if const { !shares_warps(N) } {
                arch::sync_warp();
            }
        }
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
        let in_warp = butterfly(own, WARP, f);
        if const { !shares_warps(N) } {
            return in_warp;
        }
        let meeting = Meeting::<N>::new();
        let words = meeting.words();
        if arch::lane_index() % WARP == 0 {
            // SAFETY: each warp's word is its own.
            unsafe { words.store_8(8 * (lane::<N>() / WARP), in_warp.to_bits64()) };
        }
        meeting.meet();
        // SAFETY: stored before the warps met, and stored to again when they have met once more.
        let of = |warp: u32| T::from_bits64(unsafe { words.load_8(8 * warp) });
        let four = |a, b, c, d| f(f(a, b), f(c, d));
        let all = match const { lanes(N) / WARP } {
            2 => f(of(0), of(1)),
            4 => four(of(0), of(1), of(2), of(3)),
            _ => f(four(of(0), of(1), of(2), of(3)), four(of(4), of(5), of(6), of(7))),
        };
        meeting.end();
        all
    }

    /// Calls `each` with each slot, and the fold of what all octets give that stand before the one in it.
    #[inline(always)]
    pub fn scan<T: Element, const N: usize>(
        nothing: T,
        f: &impl Fn(T, T) -> T,
        of_slot: impl Fn(usize) -> T,
        mut each: impl FnMut(usize, T),
    ) {
        let (lane, warp) = (arch::lane_index() % WARP, lane::<N>() / WARP);
        let mut all = nothing;
        each_slot!(slots(N), |K| {
            let mut up_to = if octet_in::<N>(K).is_some() { of_slot(K) } else { nothing };
            let mut distance = 1;
            while distance < WARP {
                let below = moved(up_to, |word| arch::from_below(word, distance));
                up_to = if lane >= distance { f(below, up_to) } else { up_to };
                distance *= 2;
            }
            let below = moved(up_to, |word| arch::from_below(word, 1));
            let below = if lane > 0 { below } else { nothing };
            // Of one warp too: a lane's word is its last one's.
            let meeting = Meeting::<N>::new();
            let words = meeting.words();
            if lane == WARP - 1 {
                // SAFETY: each warp's word is its own.
                unsafe { words.store_8(8 * warp, up_to.to_bits64()) };
            }
            meeting.meet();
            let mut before = all;
            let mut k = 0;
            while k < const { lanes(N) / WARP } {
                before = if k == warp { all } else { before };
                // SAFETY: stored before the warps met, and stored to again when they have met once more.
                all = f(all, T::from_bits64(unsafe { words.load_8(8 * k) }));
                k += 1;
            }
            meeting.end();
            if octet_in::<N>(K).is_some() {
                each(K, f(before, below));
            }
        });
    }

    /// What the first thread of those that share a row of `N` elements is given.
    #[inline(always)]
    pub fn of_first<T: Element, const N: usize>(value: impl FnOnce() -> T) -> T {
        let meeting = Meeting::<N>::new();
        let words = meeting.words();
        if lane::<N>() == 0 {
            // SAFETY: the first word is this thread's.
            unsafe { words.store_8(0, value().to_bits64()) };
        }
        meeting.meet();
        // SAFETY: as in `reduce`.
        let value = T::from_bits64(unsafe { words.load_8(0) });
        meeting.end();
        value
    }

    /// Folds, in each slot, what the lanes have that share a group.
    #[inline(always)]
    pub fn reduce_groups<T: Element, const G: usize, const S: usize>(
        values: &mut PerSlot<T, S>,
        f: &impl Fn(T, T) -> T,
    ) {
        each_slot!(S, |K| values[K] = butterfly(values[K], (G / OCTET) as u32, f));
    }

    /// What `words` makes of a value's words.
    #[inline(always)]
    pub fn moved<T: Element>(value: T, words: impl Fn(u32) -> u32) -> T {
        let bits = value.to_bits64();
        let mut moved = u64::from(words(bits as u32));
        if const { T::SIZE > 4 } {
            moved |= u64::from(words((bits >> 32) as u32)) << 32;
        }
        T::from_bits64(moved)
    }

    /// Folds the values of `width` neighbours, a power of two up to a warp; each gets the result.
    #[inline(always)]
    fn butterfly<T: Element>(value: T, width: u32, f: &impl Fn(T, T) -> T) -> T {
        let mut value = value;
        unroll!(5, |L| if const { 1 << L } < width {
            let other = moved(value, |word| arch::exchange(word, const { 1 << L }));
            // The lower one stands left in both.
            let left = arch::lane_index() & const { 1 << L } == 0;
            let (a, b) = if left { (value, other) } else { (other, value) };
            value = f(a, b);
        });
        value
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::*;
    use crate::arch::Scratch;
    use crate::row::{OCTET, WARP, lanes};
    use std::vec;

    /// One thread has the whole row.
    pub fn lane<const N: usize>() -> u32 {
        0
    }

    /// A meeting of one.
    pub struct Meeting<const N: usize>;

    impl<const N: usize> Meeting<N> {
        /// Nobody is waited for.
        pub fn new() -> Self {
            Meeting
        }

        /// Memory for the row's scales.
        pub fn scales(&self) -> Scratch {
            Scratch::of_scales::<N>(0)
        }

        /// Nobody is waited for.
        pub fn meet(&self) {}

        /// Nobody is waited for.
        pub fn end(self) {}
    }

    /// What there is.
    pub fn of_first<T: Element, const N: usize>(value: impl FnOnce() -> T) -> T {
        value()
    }

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

    /// Calls `each` with each octet and the fold of what those before it give, as the lanes of a GPU do.
    pub fn scan<T: Element, const N: usize>(
        nothing: T,
        f: &impl Fn(T, T) -> T,
        of_slot: impl Fn(usize) -> T,
        mut each: impl FnMut(usize, T),
    ) {
        let mut all = nothing;
        for first in (0..N / OCTET).step_by(WARP as usize) {
            let octets = (N / OCTET - first).min(WARP as usize);
            let mut up_to = [nothing; WARP as usize];
            for (lane, up_to) in up_to.iter_mut().take(octets).enumerate() {
                *up_to = of_slot(first + lane);
            }
            let mut distance = 1;
            while distance < WARP as usize {
                let below = up_to;
                for lane in distance..WARP as usize {
                    up_to[lane] = f(below[lane - distance], below[lane]);
                }
                distance *= 2;
            }
            for lane in 0..octets {
                each(first + lane, f(all, if lane > 0 { up_to[lane - 1] } else { nothing }));
            }
            all = f(all, up_to[WARP as usize - 1]);
        }
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
