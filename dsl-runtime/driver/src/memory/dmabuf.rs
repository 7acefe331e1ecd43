//! Device memory for other devices' drivers.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use cudarc::driver::sys;

use super::allocation_at;
use crate::error::{Error, Result, check};
use crate::{Context, DevicePtr};

/// A dma-buf of the allocation that holds some device memory (`cuMemGetHandleForAddressRange`).
///
/// It is of the whole allocation: one exported from the middle of an allocation would begin elsewhere than its pages do.
#[derive(Debug)]
pub struct DmaBuf {
    fd: OwnedFd,
    offset: u64,
}

impl DmaBuf {
    /// Exports the allocation that holds `bytes` bytes from `start` on. The dma-buf keeps the memory alive, not its address.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the bytes are not within one allocation, or [`Error::Call`] if the device or the kernel has no dma-bufs
    /// (which takes an open kernel module of the driver and Linux 5.12 or later).
    pub fn export(context: &Context, start: DevicePtr, bytes: usize) -> Result<Self> {
        let (base, size) = allocation_at(context, start)?;
        let offset = start.as_u64() - base;
        if (size as u64) < offset || size as u64 - offset < bytes as u64 {
            return Err(Error::misuse(format!(
                "{bytes} bytes at offset {offset} of an allocation of {size} bytes"
            )));
        }
        let mut fd: RawFd = -1;
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        // SAFETY: `fd` has room for the one descriptor that this type of handle is; the range is an allocation.
        let result = unsafe { sys::cuMemGetHandleForAddressRange((&raw mut fd).cast(), base, size, kind, 0) };
        check(result, "cuMemGetHandleForAddressRange", || format!("exporting {size} bytes as a dma-buf"))?;
        // SAFETY: a descriptor that the driver has just made for this caller.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, offset })
    }

    /// Where the memory begins in the dma-buf.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl AsFd for DmaBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
