//! Memory of a row's scales on their way to whole packs.

use crate::row::MOST_TAIL;
use core::cell::UnsafeCell;

/// That of one thread, which has a row to itself.
#[derive(Debug)]
pub struct RowScratch {
    bytes: UnsafeCell<[u8; MOST_TAIL as usize]>,
}

impl RowScratch {
    /// That of this thread.
    pub fn of_row<const N: usize>() -> Self {
        RowScratch { bytes: UnsafeCell::new([0; MOST_TAIL as usize]) }
    }

    /// Nobody is waited for.
    pub fn sync(&self) {}

    fn at(&self, offset: u32, bytes: u32) -> *mut u8 {
        debug_assert!(offset + bytes <= MOST_TAIL, "past the scratch memory");
        // SAFETY: the caller of each method promises an offset inside.
        unsafe { self.bytes.get().cast::<u8>().add(offset as usize) }
    }

    /// Stores one byte.
    ///
    /// # Safety
    /// `offset` is below the bytes of the row's scales.
    pub unsafe fn store_1(&self, offset: u32, value: u8) {
        // SAFETY: the caller's contract.
        unsafe { self.at(offset, 1).write(value) }
    }

    /// Stores four bytes.
    ///
    /// # Safety
    /// As for [`RowScratch::store_1`].
    pub unsafe fn store_4(&self, offset: u32, value: u32) {
        // SAFETY: the caller's contract.
        unsafe { self.at(offset, 4).cast::<u32>().write_unaligned(value) }
    }

    /// Loads 16 bytes.
    ///
    /// # Safety
    /// They lie inside.
    pub unsafe fn load_16(&self, offset: u32) -> [u32; 4] {
        // SAFETY: the caller's contract.
        unsafe { self.at(offset, 16).cast::<[u32; 4]>().read_unaligned() }
    }
}
