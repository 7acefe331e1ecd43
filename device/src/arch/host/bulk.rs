//! Bulk copies: a stage remembers what it was to load, and the store copies it.

use crate::protocol::direct::bulk::{STAGES, Stages};

/// A block's stages.
#[derive(Clone, Copy, Debug)]
pub struct SharedStages {
    /// Where each was loaded from.
    from: [u64; STAGES as usize],
}

impl SharedStages {
    /// Those of this block.
    #[inline(always)]
    pub fn of_block(_bytes: u32) -> Self {
        SharedStages { from: [0; STAGES as usize] }
    }

    /// Prepares nothing.
    ///
    /// # Safety
    /// As on the device, where they are memory.
    #[inline(always)]
    pub unsafe fn prepare(&self) {}
}

impl Stages for SharedStages {
    unsafe fn load(&mut self, stage: u32, from: u64, _bytes: u32) {
        self.from[stage as usize] = from;
    }

    fn await_load(&mut self, _stage: u32, _turn: u32) {}

    unsafe fn store(&mut self, stage: u32, to: u64, bytes: u32) {
        let (from, to) = (self.from[stage as usize] as *const u8, to as *mut u8);
        // SAFETY: what `load` and `store` were promised; input and output do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(from, to, bytes as usize) };
    }

    fn await_reads(&mut self) {}

    fn await_stores(&mut self) {}
}
