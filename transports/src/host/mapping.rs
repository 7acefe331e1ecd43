//! Memory that processes of one host share.

use super::{Error, Result};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A shared mapping of a memfd, zeroed when created. Nobody can change its size: an access behind a shorter end would end the process.
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

/// The size stays as it is, and so does that.
const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Mapping {
    /// New zeroed memory.
    ///
    /// # Errors
    /// If the system has no memory or no memfd.
    pub fn create(bytes: usize) -> Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("fusewire", flags).map_err(Error::system("creating shared memory"))?;
        ftruncate(&fd, bytes as u64)
            .map_err(Error::system(format!("reserving {bytes} bytes of shared memory")))?;
        fcntl_add_seals(&fd, SIZED).map_err(Error::system("fixing the size of shared memory"))?;
        Self::map(fd, bytes)
    }

    /// Maps memory that another rank created.
    ///
    /// # Errors
    /// If it is smaller than `bytes`, can become so, or cannot be mapped.
    pub fn map(fd: OwnedFd, bytes: usize) -> Result<Self> {
        let size = rustix::fs::fstat(&fd).map_err(Error::system("looking at a peer's shared memory"))?.st_size
            as u64;
        if size < bytes as u64 {
            return Err(Error::Misuse {
                what: format!("a peer shared {size} bytes where {bytes} were agreed"),
            });
        }
        let seals = fcntl_get_seals(&fd).map_err(Error::system("looking at a peer's shared memory"))?;
        if !seals.contains(SIZED) {
            return Err(Error::Misuse {
                what: "a peer shared memory whose size can change: run the same build on every rank".into(),
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

    /// Zeroes the first `bytes` bytes, for everybody who has them mapped: gives their pages back, so that what was never used costs nothing. Not for
    /// memory that a device has pinned: it goes on with the pages that were there.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn clear(&self, bytes: usize) -> Result<()> {
        self.clear_at(0, bytes)
    }

    /// As [`Mapping::clear`], of the `bytes` bytes from `offset` on. Of no bytes nothing is done.
    ///
    /// # Errors
    /// As there.
    pub fn clear_at(&self, offset: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.fd, how, offset as u64, bytes as u64)
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

    /// A peer that makes its memory shorter would end this process at the next access.
    #[test]
    fn sizes_are_fixed() -> Result<()> {
        let own = Mapping::create(1 << 13)?;
        let theirs = own.try_clone_fd()?;
        for bytes in [0, 1 << 12, 1 << 14] {
            assert!(ftruncate(&theirs, bytes).is_err(), "{bytes} bytes");
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let loose = memfd_create("loose", flags).map_err(Error::system("creating memory"))?;
        ftruncate(&loose, 1 << 13).map_err(Error::system("sizing memory"))?;
        let text = Mapping::map(loose, 1 << 13).unwrap_err().to_string();
        assert!(text.contains("whose size can change"), "{text}");
        Ok(())
    }

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
