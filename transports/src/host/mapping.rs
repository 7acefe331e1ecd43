//! Memory that processes of one host share.

use super::{Error, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A shared mapping of a memfd, zeroed when created.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping is plain memory; users of `start` keep their own discipline.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New zeroed memory.
    ///
    /// # Errors
    /// If the system has no memory or no memfd.
    pub fn create(bytes: usize) -> Result<Self> {
        let fd =
            memfd_create("fusewire", MemfdFlags::CLOEXEC).map_err(Error::system("creating shared memory"))?;
        ftruncate(&fd, bytes as u64)
            .map_err(Error::system(format!("reserving {bytes} bytes of shared memory")))?;
        Self::map(fd, bytes)
    }

    /// Maps memory that another rank created.
    ///
    /// # Errors
    /// If it is smaller than `bytes` or cannot be mapped.
    pub fn map(fd: OwnedFd, bytes: usize) -> Result<Self> {
        let size = rustix::fs::fstat(&fd).map_err(Error::system("looking at a peer's shared memory"))?.st_size
            as u64;
        if size < bytes as u64 {
            return Err(Error::Misuse {
                what: format!("a peer shared {size} bytes where {bytes} were agreed"),
            });
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
        }
        .map_err(Error::system(format!("mapping {bytes} bytes of shared memory")))?;
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(Error::Misuse { what: "shared memory was mapped at address zero".into() });
        };
        Ok(Mapping { start, bytes, fd })
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The first byte.
    pub fn host(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Another descriptor of the same memory.
    ///
    /// # Errors
    /// If the process has none left.
    pub fn try_clone_fd(&self) -> Result<OwnedFd> {
        self.fd
            .try_clone()
            .map_err(|source| Error::System { what: "duplicating a file descriptor".into(), source })
    }

    /// Zeroes the first `bytes` bytes, for everybody who has them mapped: gives their pages back, so that what was never used costs nothing.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn clear(&self, bytes: usize) -> Result<()> {
        fallocate(&self.fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, bytes as u64)
            .map_err(Error::system(format!("clearing {bytes} bytes of shared memory")))
    }

    /// The file descriptor to pass on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, unmapped once; links wait for all ranks before they drop.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cleared_is_zero_for_all() -> Result<()> {
        let bytes = 5 << 12;
        let own = Mapping::create(bytes)?;
        let peers = Mapping::map(own.try_clone_fd()?, bytes)?;
        // SAFETY: live memory of this test alone.
        unsafe { own.host().write_bytes(7, bytes) };
        // Not a whole number of pages.
        let cleared = (3 << 12) + 40;
        own.clear(cleared)?;
        for mapping in [&own, &peers] {
            // SAFETY: as above.
            let found = unsafe { std::slice::from_raw_parts(mapping.host().as_ptr(), bytes) };
            assert!(found[..cleared].iter().all(|byte| *byte == 0));
            assert!(found[cleared..].iter().all(|byte| *byte == 7));
        }
        Ok(())
    }
}
