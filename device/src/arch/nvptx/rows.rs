//! Shared memory of rows: what goes from thread to thread of those that share one.

use super::{Scratch, lane_index};
use crate::row::{self, BLOCK, MOST_TAIL, WARP};
use core::arch::asm;

/// Warps of a block.
const WARPS: u32 = BLOCK / WARP;

// Of two halves, each: the scales of a block's rows, and a word of each warp. Then each warp's count of meetings. Kernels that name it alone have it.
core::arch::global_asm!(".shared .align 16 .b8 fusewire_rows[4256];");
const HALF: u32 = MOST_TAIL + 8 * WARPS;
const COUNTS: u32 = 2 * HALF;
const _: () = assert!(4256 == COUNTS + 4 * WARPS);

#[inline(always)]
fn start() -> u32 {
    let start: u32;
    // SAFETY: an address.
    unsafe { asm!("mov.u32 {0}, fusewire_rows;", out(reg32) start, options(pure, nomem, nostack)) };
    start
}

/// The first warp of those that share a row of `N` elements with this one.
#[inline(always)]
pub fn first_warp<const N: usize>() -> u32 {
    lane_index() / WARP & const { !(row::lanes(N) / WARP - 1) }
}

/// Where this block's warps count their meetings; they have met at none. For all threads, before a barrier of the block.
#[inline(always)]
pub fn arm_rows() {
    // For those who read the code: no meeting stands before it.
    // SAFETY: touches nothing.
    unsafe { asm!("// meetings of rows are counted from here", options(nostack)) };
    if lane_index() < WARPS {
        // SAFETY: each word is one thread's, until the barrier.
        unsafe { Scratch { at: start() + COUNTS }.store_4(4 * lane_index(), 0) };
    }
}

/// Where they count.
#[inline(always)]
pub fn counts() -> u32 {
    start() + COUNTS
}

impl Scratch {
    /// Half `half` of the memory that those threads have for scales that share a row of `N` elements.
    #[inline(always)]
    pub fn of_scales<const N: usize>(half: u32) -> Self {
        Scratch { at: start() + half * HALF + first_warp::<N>() * (MOST_TAIL / WARPS) }
    }

    /// The same of a word for each of their warps.
    #[inline(always)]
    pub fn of_words<const N: usize>(half: u32) -> Self {
        Scratch { at: start() + half * HALF + MOST_TAIL + 8 * first_warp::<N>() }
    }

    /// Stores eight bytes.
    ///
    /// # Safety
    /// As for [`Scratch::store_1`]; `offset` is a multiple of 8.
    #[inline(always)]
    pub unsafe fn store_8(&self, offset: u32, value: u64) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!("st.shared.b64 [{0}], {1};", in(reg32) self.at + offset, in(reg64) value, options(nostack))
        };
    }

    /// Loads eight bytes.
    ///
    /// # Safety
    /// As for [`Scratch::load_16`]; `offset` is a multiple of 8.
    #[inline(always)]
    pub unsafe fn load_8(&self, offset: u32) -> u64 {
        let value: u64;
        // SAFETY: the caller's contract.
        unsafe {
            asm!("ld.shared.b64 {0}, [{1}];", out(reg64) value, in(reg32) self.at + offset,
                options(nostack, readonly));
        }
        value
    }
}
