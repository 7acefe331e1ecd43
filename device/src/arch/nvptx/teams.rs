//! Shared memory of teams: words that go from warp to warp, where warps meet, and what schedules keep there.

use super::{lane_count, lane_index, meeting, sync_warp_any};
use crate::row::WARP;
use crate::team::MOST_WARPS;
use core::arch::asm;

// Two halves of a word for each warp, two of a vote, then each warp's count of meetings. Kernels that name it alone have it.
core::arch::global_asm!(".shared .align 16 .b8 fusewire_teams[448];");
const VOTES: u32 = 2 * 8 * MOST_WARPS;
const COUNTS: u32 = VOTES + 2 * 4 * MOST_WARPS;
const _: () = assert!(448 == COUNTS + 4 * MOST_WARPS);

// What `Kernel::shared` hands out.
core::arch::global_asm!(".shared .align 16 .b8 fusewire_shared[32768];");
const _: () = assert!(32768 == crate::team::SHARED_BYTES);

#[inline(always)]
fn start() -> u32 {
    let start: u32;
    // SAFETY: an address.
    unsafe { asm!("mov.u32 {0}, fusewire_teams;", out(reg32) start, options(pure, nomem, nostack)) };
    start
}

/// The block's teams have met at no meeting. For all threads, between two barriers of the block.
#[inline(always)]
pub fn arm() {
    if lane_index() < MOST_WARPS {
        store(start() + COUNTS + 4 * lane_index(), 0);
    }
}

/// This warp and its neighbours, `warps` of them or all of a smaller block: the first, and how many.
#[inline(always)]
pub fn team_of(warps: u32) -> (u32, u32) {
    let warp = lane_index() / WARP;
    (warp - warp % warps, warps.min(lane_count() / WARP))
}

/// The warps of a team of `warps` wait for each other.
#[inline(always)]
pub fn meet(warps: u32) {
    let (counts, (first, warps)) = (start() + COUNTS, team_of(warps));
    meeting::meet(counts, first, warps, meeting::next(counts));
}

/// The same, and whether any thread of them gave `true`.
#[inline(always)]
pub fn any(warps: u32, value: bool) -> bool {
    let (counts, (first, warps)) = (start() + COUNTS, team_of(warps));
    let (count, lane) = (meeting::next(counts), lane_index() % WARP);
    let own = sync_warp_any(value);
    // A warp that has come to the next meeting has seen this one's votes, and the one behind that has this half again.
    let votes = start() + VOTES + 4 * MOST_WARPS * (count & 1);
    if lane == 0 {
        store(votes + 4 * (lane_index() / WARP), u32::from(own));
    }
    meeting::meet(counts, first, warps, count);
    sync_warp_any(lane < warps && load(votes + 4 * (first + lane)) != 0)
}

/// Half `half` of the words of a team's warps, of which `first` is the first.
#[derive(Clone, Copy)]
pub struct Words {
    at: u32,
}

impl Words {
    /// Those.
    #[inline(always)]
    pub fn of(first: u32, half: u32) -> Self {
        Words { at: start() + 8 * (MOST_WARPS * (half & 1) + first) }
    }

    /// Sets word `k`, below the number of the team's warps. One thread, which no other stores beside or loads behind before the team's next sync.
    #[inline(always)]
    pub fn set(&self, k: u32, value: u64) {
        // SAFETY: within `fusewire_teams`.
        unsafe {
            asm!("st.volatile.shared.b64 [{0}], {1};", in(reg32) self.at + 8 * k, in(reg64) value, options(nostack))
        };
    }

    /// Word `k`.
    #[inline(always)]
    pub fn get(&self, k: u32) -> u64 {
        let value: u64;
        // SAFETY: within `fusewire_teams`.
        unsafe {
            asm!("ld.volatile.shared.b64 {0}, [{1}];", out(reg64) value, in(reg32) self.at + 8 * k, options(nostack))
        };
        value
    }
}

#[inline(always)]
fn store(at: u32, value: u32) {
    // SAFETY: callers give addresses of words within `fusewire_teams`.
    unsafe { asm!("st.volatile.shared.b32 [{0}], {1};", in(reg32) at, in(reg32) value, options(nostack)) };
}

#[inline(always)]
fn load(at: u32) -> u32 {
    let value: u32;
    // SAFETY: as for `store`.
    unsafe { asm!("ld.volatile.shared.b32 {0}, [{1}];", out(reg32) value, in(reg32) at, options(nostack)) };
    value
}

/// A part of the block's memory that a schedule keeps elements in.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    at: u32,
}

impl Shared {
    /// That from byte `offset` on.
    #[inline(always)]
    pub fn new(offset: u32, _bytes: u32) -> Self {
        let start: u32;
        // SAFETY: an address.
        unsafe { asm!("mov.u32 {0}, fusewire_shared;", out(reg32) start, options(pure, nomem, nostack)) };
        Shared { at: start + offset }
    }

    /// Its address among all memory, for atomics.
    #[inline(always)]
    pub fn pointer(&self) -> *mut u8 {
        let address: u64;
        // SAFETY: an address.
        unsafe {
            asm!("{{ .reg .b64 a; cvt.u64.u32 a, {1}; cvta.shared.u64 {0}, a; }}", out(reg64) address, in(reg32) self.at,
                options(pure, nomem, nostack));
        }
        address as *mut u8
    }

    /// Stores the low `SIZE` bytes of `bits`: 1, 2, 4 or 8.
    ///
    /// # Safety
    /// `offset` is a multiple of `SIZE`, and lies inside.
    #[inline(always)]
    pub unsafe fn store<const SIZE: usize>(&self, offset: u32, bits: u64) {
        let at = self.at + offset;
        // SAFETY: the caller's contract.
        unsafe {
            match SIZE {
                1 => {
                    asm!("st.volatile.shared.b8 [{0}], {1};", in(reg32) at, in(reg32) bits as u32, options(nostack))
                }
                2 => {
                    asm!("st.volatile.shared.b16 [{0}], {1};", in(reg32) at, in(reg16) bits as u16, options(nostack))
                }
                4 => store(at, bits as u32),
                _ => {
                    asm!("st.volatile.shared.b64 [{0}], {1};", in(reg32) at, in(reg64) bits, options(nostack))
                }
            }
        }
    }

    /// Loads `SIZE` bytes: 1, 2, 4 or 8.
    ///
    /// # Safety
    /// As for [`Shared::store`].
    #[inline(always)]
    pub unsafe fn load<const SIZE: usize>(&self, offset: u32) -> u64 {
        let at = self.at + offset;
        let (byte, half, word): (u32, u16, u64);
        // SAFETY: the caller's contract.
        unsafe {
            match SIZE {
                1 => {
                    asm!("ld.volatile.shared.u8 {0}, [{1}];", out(reg32) byte, in(reg32) at, options(nostack));
                    u64::from(byte)
                }
                2 => {
                    asm!("ld.volatile.shared.b16 {0}, [{1}];", out(reg16) half, in(reg32) at, options(nostack));
                    u64::from(half)
                }
                4 => u64::from(load(at)),
                _ => {
                    asm!("ld.volatile.shared.b64 {0}, [{1}];", out(reg64) word, in(reg32) at, options(nostack));
                    word
                }
            }
        }
    }
}
