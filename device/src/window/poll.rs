//! Waiting for words of a window.

use super::{Links, Window};
use crate::arch;
use crate::atomic::{self, Acquire, System};
use crate::ops::Ops;
use crate::wait::{ABORTED, Fault, LOOK_NS, kind};

/// Looks at a word between two looks at the clock, which is slow to read.
const LOOKS: u32 = 8;

/// The word at `at`; what its writer did before is visible afterwards.
///
/// # Safety
/// `at` is a live word of a window.
#[inline(always)]
pub(super) unsafe fn acquire(at: u64) -> u64 {
    // SAFETY: the caller's contract; windows' words are accessed by atomics alone.
    unsafe { atomic::load::<System, Acquire, u64>(at as *const u64) }
}

impl<O: Ops, L: Links> Window<'_, O, L> {
    /// Reads until `held`, or the deadline or an abort ends it. One thread; `wanted` is for the record.
    #[inline(always)]
    pub(super) fn poll(
        &self,
        wanted: u64,
        read: impl Fn() -> u64,
        held: impl Fn(u64) -> bool,
    ) -> (u64, Fault) {
        let mut seen = read();
        if held(seen) {
            return (seen, Fault::NONE);
        }
        let (_, watch) = self.kernel.parts();
        let start = arch::now_ns();
        let (mut look, mut turn) = (start, 0u32);
        loop {
            let mut looks = 0;
            while looks < LOOKS {
                seen = read();
                if held(seen) {
                    return (seen, Fault::NONE);
                }
                looks += 1;
            }
            arch::relax(turn);
            turn = turn.saturating_add(1);
            let now = arch::now_ns();
            if now.wrapping_sub(look) >= LOOK_NS {
                look = now;
                let age_ns = now.wrapping_sub(start);
                let fault = |kind| (seen, Fault { kind, expected: wanted, seen, age_ns, ..Fault::NONE });
                if watch.aborted() {
                    return fault(ABORTED);
                }
                if age_ns >= watch.deadline_ns() {
                    return fault(kind::EXPIRED);
                }
            }
        }
    }

    /// As [`Window::poll`], of one word.
    ///
    /// # Safety
    /// `at` is a live word of this window.
    #[inline(always)]
    pub(super) unsafe fn poll_word(&self, at: u64, wanted: u64, held: impl Fn(u64) -> bool) -> Fault {
        // SAFETY: the caller's contract.
        self.poll(wanted, || unsafe { acquire(at) }, held).1
    }
}

/// Whether a count that may wrap has reached `target`.
#[inline(always)]
pub(super) fn reached(seen: u64, target: u64) -> bool {
    seen.wrapping_sub(target) as i64 >= 0
}
