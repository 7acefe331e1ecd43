//! Waiting with a deadline, by one thread.

use crate::device::arch;
use crate::device::atomic::{self, Acquire, Relaxed, System};
use crate::device::wait::{Control, LOOK_NS};

/// Why an operation did not happen, or is not known to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The deadline passed.
    Expired,
    /// The kernel was aborted.
    Aborted,
    /// The adapter ended an entry with an error: see [`wqe`](super::wqe) for opcodes, `syndrome` is the completion's. The queue pair
    /// refuses everything until the transport is renewed.
    Adapter {
        /// Syndrome of the first completion with an error.
        syndrome: u8,
        /// Index of its entry.
        entry: u64,
    },
    /// Another thread of the group knows why.
    Elsewhere,
}

/// How a signal is compared, as unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `<=`
    AtMost,
    /// `<`
    Below,
}

impl Compare {
    /// Whether `seen` is what was waited for.
    #[inline(always)]
    pub const fn holds(self, seen: u64, expected: u64) -> bool {
        match self {
            Compare::Equal => seen == expected,
            Compare::NotEqual => seen != expected,
            Compare::AtLeast => seen >= expected,
            Compare::Above => seen > expected,
            Compare::AtMost => seen <= expected,
            Compare::Below => seen < expected,
        }
    }
}

/// One wait under way: looks at the clock and the abort word now and then.
pub(super) struct Patience {
    start: u64,
    look: u64,
    turn: u32,
}

impl Patience {
    #[inline(always)]
    pub fn begin() -> Self {
        let now = arch::now_ns();
        Patience { start: now, look: now, turn: 0 }
    }

    /// One turn of a loop that found nothing.
    #[inline(always)]
    pub fn turn(&mut self, control: &Control) -> Result<(), Broken> {
        arch::relax(self.turn);
        self.turn = self.turn.saturating_add(1);
        let now = arch::now_ns();
        if now.wrapping_sub(self.look) < LOOK_NS {
            return Ok(());
        }
        self.look = now;
        // SAFETY: a live word if there is one, by the contract of whoever made the control words.
        let aborted = || unsafe { atomic::load::<System, Relaxed, u64>(control.abort as *const u64) } != 0;
        if control.abort != 0 && aborted() {
            return Err(Broken::Aborted);
        }
        if now.wrapping_sub(self.start) >= control.deadline_ns {
            return Err(Broken::Expired);
        }
        Ok(())
    }
}

/// Waits until the signal at `at` compares to `expected`. What its writers put on the same queue pair before is visible then.
///
/// # Errors
/// [`Broken::Expired`] and [`Broken::Aborted`].
///
/// # Safety
/// `at` is aligned to 8 bytes and live, and so is the abort word of `control`.
#[inline(always)]
pub unsafe fn wait_signal(
    at: *const u64,
    compare: Compare,
    expected: u64,
    control: &Control,
) -> Result<u64, Broken> {
    let mut patience = Patience::begin();
    loop {
        // SAFETY: the caller's contract.
        let seen = unsafe { read_signal(at) };
        if compare.holds(seen, expected) {
            return Ok(seen);
        }
        patience.turn(control)?;
    }
}

/// The signal at `at` as it is now. What its writers put on the same queue pair before is visible then.
///
/// # Safety
/// `at` is aligned to 8 bytes and live.
#[inline(always)]
pub unsafe fn read_signal(at: *const u64) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { atomic::load::<System, Acquire, u64>(at) }
}
