//! Meetings of some of a block's warps, which count them in shared memory and see what the others have counted. No barrier of the hardware's is for
//! some warps of a block and is passed when one of them has ended in a panic. Those that are all of a block's meet at its barrier, which is.

use super::{Scratch, block_panicked, lane_count, lane_index, sync_block, sync_warp, sync_warp_any};
use crate::row::WARP;
use core::arch::asm;

/// Number of this warp's next meeting: `counts` is the shared address of a word for each warp of the block, zero before the first.
#[inline(always)]
pub fn next(counts: u32) -> u32 {
    met(counts, lane_index() / WARP) + 1
}

/// How often warp `warp` has met others. What it stored before is there to be loaded.
#[inline(always)]
fn met(counts: u32, warp: u32) -> u32 {
    let count: u32;
    // SAFETY: a word of this block's, which one thread stores.
    unsafe {
        asm!("ld.acquire.cta.shared.u32 {0}, [{1}];", out(reg32) count, in(reg32) counts + 4 * warp, options(nostack));
    }
    count
}

/// Says that this warp has come to meeting `count`. One lane, behind a sync of the warp.
#[inline(always)]
fn come(counts: u32, count: u32) {
    let at = counts + lane_index() / WARP * 4;
    // SAFETY: a word of this warp's.
    unsafe { asm!("st.release.cta.shared.u32 [{0}], {1};", in(reg32) at, in(reg32) count, options(nostack)) };
}

/// The `warps` warps from `first` on, of which this is one, wait for each other, or for a panic in the block: then what is loaded may be anything.
#[inline(always)]
pub fn meet(counts: u32, first: u32, warps: u32, count: u32) {
    sync_warp();
    let lane = lane_index() % WARP;
    if warps * WARP == lane_count() {
        if lane == 0 {
            // SAFETY: a word of this warp's, which loads it behind the barrier.
            unsafe { Scratch { at: counts }.store_4(lane_index() / WARP * 4, count) };
        }
        return sync_block();
    }
    if lane == 0 {
        come(counts, count);
    }
    let waits = || lane < warps && (met(counts, first + lane).wrapping_sub(count) as i32) < 0;
    while sync_warp_any(waits() && !block_panicked()) {}
}
