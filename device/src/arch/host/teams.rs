//! What teams are of one thread.

use core::cell::UnsafeCell;
use std::boxed::Box;
use std::vec;

/// Nobody is met.
pub fn arm() {}

/// Memory that a schedule keeps elements in, of its one thread.
#[derive(Debug)]
pub struct Shared {
    words: Box<[UnsafeCell<u64>]>,
}

impl Shared {
    /// `bytes`, a multiple of 8.
    pub fn new(_offset: u32, bytes: u32) -> Self {
        Shared { words: vec![0; bytes as usize / 8].into_iter().map(UnsafeCell::new).collect() }
    }

    /// Its address.
    pub fn pointer(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.words.as_ptr()).cast()
    }

    /// Stores the low `SIZE` bytes of `bits`.
    ///
    /// # Safety
    /// `offset` is a multiple of `SIZE`, and lies inside.
    #[inline(always)]
    pub unsafe fn store<const SIZE: usize>(&self, offset: u32, bits: u64) {
        // SAFETY: the caller's contract; one thread has it.
        unsafe { self.pointer().add(offset as usize).copy_from(bits.to_le_bytes().as_ptr(), SIZE) };
    }

    /// Loads `SIZE` bytes.
    ///
    /// # Safety
    /// As for [`Shared::store`].
    #[inline(always)]
    pub unsafe fn load<const SIZE: usize>(&self, offset: u32) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the caller's contract; one thread has it.
        unsafe { bytes.as_mut_ptr().copy_from(self.pointer().add(offset as usize), SIZE) };
        u64::from_le_bytes(bytes)
    }
}
