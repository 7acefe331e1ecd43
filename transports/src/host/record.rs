//! What kernels on a GPU leave of a fault: in host memory that they reach.

use super::Result;
use fusewire_device::wait::{AbortRecord, FILLED};
use fusewire_driver::Context;
use fusewire_driver::memory::PinnedMemory;
use std::sync::atomic::{AtomicU32, Ordering};

/// The record of a rank's kernels on a GPU.
#[derive(Debug)]
pub(super) struct DeviceRecord(PinnedMemory);

impl DeviceRecord {
    /// An empty one.
    pub fn new(context: &Context) -> Result<Self> {
        Ok(DeviceRecord(PinnedMemory::new(context, size_of::<AbortRecord>())?))
    }

    /// Where kernels have it.
    pub fn address(&self) -> u64 {
        self.0.device_ptr().as_u64()
    }

    /// What is in it, if it is complete.
    pub fn read(&self) -> Option<AbortRecord> {
        let record = self.0.host_ptr().cast::<AbortRecord>();
        // SAFETY: live pinned memory, aligned to a page; the state word is accessed by atomics alone.
        let state = unsafe { AtomicU32::from_ptr(&raw mut (*record).state) };
        // SAFETY: complete, and not written again before the next `renew`.
        (state.load(Ordering::Acquire) == FILLED).then(|| unsafe { record.read_volatile() })
    }

    /// Empties it.
    ///
    /// # Safety
    /// No kernel of this rank runs.
    pub unsafe fn clear(&self) {
        // SAFETY: live pinned memory; nobody else accesses it.
        unsafe { self.0.host_ptr().cast::<AbortRecord>().write_volatile(AbortRecord::EMPTY) };
    }
}
