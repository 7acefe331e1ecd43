//! Waits for rows: for lines with this call's flag.

use super::line::{HEADER, Line, flag};
use super::row::{self, Loaded};
use crate::arch;
use crate::group::{Group, Warp};
use crate::ops::Direct;
use crate::pack::unroll;
use crate::protocol::simple::channel::Call;
use crate::wait::{About, LOOK_NS, Watch, kind, operation};

impl<O: Direct> Line<'_, O> {
    /// Waits for `U` rows from `row` on, as far as they lie before `end`. All lanes of a warp together.
    ///
    /// # Safety
    /// They lie in the buffer `input`.
    #[inline(always)]
    pub(super) unsafe fn poll<const U: usize>(
        &self,
        input: *const u8,
        row: u32,
        end: u32,
    ) -> Option<[Loaded; U]> {
        // SAFETY: the caller's contract.
        unsafe { self.poll_from((self.peer(), input), row, end) }
    }

    /// As [`Line::poll`], of the buffer `input` of `peer`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn poll_from<const U: usize>(
        &self,
        (peer, input): (u32, *const u8),
        row: u32,
        end: u32,
    ) -> Option<[Loaded; U]> {
        let at = |k: usize| {
            // Those past the end, which would need a branch, are the last one again.
            let row = (row + k as u32).min(end - 1) as usize;
            // SAFETY: the caller's contract.
            unsafe { input.add(row * row::BYTES) }
        };
        // SAFETY: as above.
        unsafe { self.poll_at::<U>(at, |_| (peer, input)) }
    }

    /// Waits for `U` rows, of which `k` is at `at(k)`, in the buffer `of(k)` of a peer. All lanes of a warp together.
    ///
    /// # Safety
    /// They lie there.
    #[inline(always)]
    pub(super) unsafe fn poll_at<const U: usize>(
        &self,
        at: impl Fn(usize) -> *const u8,
        of: impl Fn(usize) -> (u32, *const u8),
    ) -> Option<[Loaded; U]> {
        let fresh = flag(self.calls + 1, self.call.kernel, self.call.size());
        let (mut start, mut look, mut turn) = (0, 0, 0u32);
        // Together: lanes that load apart would load a line in parts, its flag after its data.
        if !row::whole() {
            return None;
        }
        loop {
            // All are asked for before the first is looked at.
            let mut found = [Loaded::NONE; U];
            unroll!(U <= 8, |K| {
                // SAFETY: the caller's contract.
                found[K] = unsafe { Loaded::look(at(K)) };
            });
            let mut differs = 0;
            unroll!(U <= 8, |K| differs |= found[K].differs(fresh));
            if !Warp.any(differs != 0) {
                return Some(found);
            }
            arch::relax(turn);
            turn = turn.saturating_add(1);
            if !turn.is_multiple_of(64) {
                continue;
            }
            let now = arch::now_ns();
            if start == 0 {
                (start, look) = (now, now);
            }
            let mut gives_up = false;
            if differs != 0 && now.wrapping_sub(look) >= LOOK_NS {
                look = now;
                let (mut odd, mut which) = (fresh, 0);
                unroll!(U <= 8, |K| if found[K].differs(fresh) != 0 {
                    (odd, which) = (fresh ^ found[K].differs(fresh), K);
                });
                let (peer, input) = of(which);
                // SAFETY: the buffer's header.
                gives_up =
                    unsafe { self.gives_up(peer, input.add(HEADER as usize), odd, now.wrapping_sub(start)) };
            }
            if Warp.any(gives_up) {
                return None;
            }
        }
    }

    /// Whether a wait that found the flag `odd` ends: aborted, expired, or another call's line. Says why, unless somebody has.
    ///
    /// # Safety
    /// `header` is the header line of a live buffer.
    #[inline(always)]
    unsafe fn gives_up(&self, peer: u32, header: *const u8, odd: u64, age: u64) -> bool {
        if self.watch.aborted() {
            return true;
        }
        let fresh = flag(self.calls + 1, self.call.kernel, self.call.size());
        let about = About { peer, channel: self.channel, operation: operation::RECEIVE };
        if (odd ^ fresh) << 16 == 0 && odd != fresh {
            // SAFETY: the caller's contract.
            unsafe { compare(self.ops, self.watch, header, self.calls + 1, self.call, about) };
            return true;
        }
        let expired = age >= self.watch.deadline_ns();
        if expired {
            let (expected, seen) = (fresh & 0xffff_ffff_ffff, odd & 0xffff_ffff_ffff);
            self.watch.give_up(self.ops, kind::EXPIRED, about, expected, seen, age);
        }
        expired
    }
}

/// A lane that found another call's flag: says what differs, unless somebody else has said something before.
///
/// # Safety
/// `header` is the header line of a live buffer.
#[cold]
#[inline(always)]
unsafe fn compare<O: Direct>(
    ops: &O,
    watch: &Watch,
    header: *const u8,
    number: u64,
    call: Call,
    about: About,
) {
    // SAFETY: the caller's contract.
    let (size, seen) = unsafe { arch::load_line(header) };
    let expected = flag(number, call.kernel, 0);
    let size = u64::from(size[0]) | u64::from(size[1]) << 32;
    if seen != expected {
        let about = About { operation: operation::DIGEST, ..about };
        watch.give_up(ops, kind::MISMATCH, about, expected >> 48, seen >> 48, 0);
    } else {
        let about = About { operation: operation::HEADER, ..about };
        watch.give_up(ops, kind::MISMATCH, about, call.size(), size, 0);
    }
}
