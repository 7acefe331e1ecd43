//! Shared memory of rows: what goes from thread to thread of those that share one.

use super::{Scratch, lane_index};
use crate::row::{self, MOST_TAIL};
use core::arch::asm;

// A row's scales, or one for each of eight warps; then a word of each warp. Kernels that name it alone have it.
core::arch::global_asm!(".shared .align 16 .b8 fusewire_rows[2112];");
const _: () = assert!(2112 == MOST_TAIL + 8 * row::BLOCK / 32);

impl Scratch {
    /// The part that the threads have that share a row of `N` elements: the row's scales, and of a block behind [`MOST_TAIL`] bytes a word of each
    /// warp.
    #[inline(always)]
    pub fn of_row<const N: usize>() -> Self {
        let start: u32;
        // SAFETY: an address.
        unsafe { asm!("mov.u32 {0}, fusewire_rows;", out(reg32) start, options(pure, nomem, nostack)) };
        let warp = lane_index() / 32 * (MOST_TAIL / (row::BLOCK / 32));
        Scratch { at: start + if row::takes_block(N) { 0 } else { warp } }
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
