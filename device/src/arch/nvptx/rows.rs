//! Shared memory of rows: what goes from thread to thread of those that share one.

use super::{lane_index, sync_block, sync_warp};
use crate::row::{self, MOST_TAIL};
use core::arch::asm;

// A row's scales, or one for each of eight warps; then a word of each warp. Kernels that name it alone have it.
core::arch::global_asm!(".shared .align 16 .b8 fusewire_rows[2112];");
const _: () = assert!(2112 == MOST_TAIL + 8 * row::BLOCK / 32);

/// The part that those who share a row have of it.
#[derive(Clone, Copy)]
pub struct RowScratch {
    at: u32,
    block: bool,
}

impl RowScratch {
    /// That of the threads that share a row of `N` elements with this one.
    #[inline(always)]
    pub fn of_row<const N: usize>() -> Self {
        let start: u32;
        // SAFETY: an address.
        unsafe { asm!("mov.u32 {0}, fusewire_rows;", out(reg32) start, options(pure, nomem, nostack)) };
        let block = row::lanes(N) == row::BLOCK;
        let part = if block { 0 } else { lane_index() / 32 * (MOST_TAIL / (row::BLOCK / 32)) };
        RowScratch { at: start + part, block }
    }

    /// They wait for each other.
    #[inline(always)]
    pub fn sync(&self) {
        if self.block { sync_block() } else { sync_warp() }
    }

    /// Stores one byte.
    ///
    /// # Safety
    /// `offset` is below the bytes of the row's scales; no other thread accesses that byte before the next sync.
    #[inline(always)]
    pub unsafe fn store_1(&self, offset: u32, value: u8) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!("st.shared.b8 [{0}], {1};",
                in(reg32) self.at + offset, in(reg32) u32::from(value), options(nostack));
        }
    }

    /// Stores four bytes.
    ///
    /// # Safety
    /// As for [`RowScratch::store_1`]; `offset` is a multiple of 4.
    #[inline(always)]
    pub unsafe fn store_4(&self, offset: u32, value: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!("st.shared.b32 [{0}], {1};", in(reg32) self.at + offset, in(reg32) value, options(nostack));
        }
    }

    /// Loads 16 bytes of a row's scales.
    ///
    /// # Safety
    /// `offset`, a multiple of 16, lies inside; no other thread writes there before the next sync.
    #[inline(always)]
    pub unsafe fn load_16(&self, offset: u32) -> [u32; 4] {
        let (a, b, c, d): (u32, u32, u32, u32);
        // SAFETY: the caller's contract.
        unsafe {
            asm!("ld.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];",
                out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) self.at + offset,
                options(nostack, readonly))
        };
        [a, b, c, d]
    }

    /// Stores the word of warp `warp` of a block that shares a row.
    ///
    /// # Safety
    /// No other thread accesses it before the next sync.
    #[inline(always)]
    pub unsafe fn store_word(&self, warp: u32, value: u64) {
        // SAFETY: the caller's contract.
        unsafe {
            asm!("st.shared.b64 [{0}], {1};", in(reg32) self.at + MOST_TAIL + 8 * warp, in(reg64) value, options(nostack));
        }
    }

    /// Loads it.
    ///
    /// # Safety
    /// No other thread writes it before the next sync.
    #[inline(always)]
    pub unsafe fn load_word(&self, warp: u32) -> u64 {
        let value: u64;
        // SAFETY: the caller's contract.
        unsafe {
            asm!("ld.shared.b64 {0}, [{1}];", out(reg64) value, in(reg32) self.at + MOST_TAIL + 8 * warp,
                options(nostack, readonly));
        }
        value
    }
}
