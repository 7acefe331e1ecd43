//! Memory that adapters may reach.

use crate::Adapter;
use crate::error::{Error, Result};
use crate::sys::*;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Who may do what with registered memory. Writing by the own adapter (reads and receives that end there) is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Peers write.
    pub remote_write: bool,
    /// Peers read.
    pub remote_read: bool,
    /// Peers do atomics.
    pub remote_atomic: bool,
}

impl Access {
    /// Nothing for peers.
    pub const LOCAL: Self = Access { remote_write: false, remote_read: false, remote_atomic: false };
    /// Everything.
    pub const ALL: Self = Access { remote_write: true, remote_read: true, remote_atomic: true };

    pub(crate) fn flags(self) -> i32 {
        let flag = |on: bool, flag: i32| if on { flag } else { 0 };
        IBV_ACCESS_LOCAL_WRITE
            | flag(self.remote_write, IBV_ACCESS_REMOTE_WRITE)
            | flag(self.remote_read, IBV_ACCESS_REMOTE_READ)
            | flag(self.remote_atomic, IBV_ACCESS_REMOTE_ATOMIC)
    }
}

/// A registration; ended when dropped. Requests that still use it then fail at the adapter.
#[derive(Debug)]
pub struct Memory {
    adapter: Arc<Adapter>,
    region: NonNull<ibv_mr>,
    start: u64,
    bytes: usize,
}

// SAFETY: the region is plain data that is only read, and its end is thread-safe.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Registers memory that exists already: heap, stack, a mapping of any kind.
    ///
    /// # Safety
    /// `bytes` bytes from `start` stay mapped until the value is dropped. Adapters write them at any time that a request of this
    /// process or, as `access` says, of a peer names them: whoever reads or writes them meanwhile does so through raw pointers or
    /// atomics, by a protocol that orders the accesses.
    ///
    /// # Errors
    /// [`Error::Call`]: too much for `ulimit -l`, or not mapped.
    pub unsafe fn register(
        adapter: &Arc<Adapter>,
        start: *mut u8,
        bytes: usize,
        access: Access,
    ) -> Result<Self> {
        let verbs = adapter.verbs();
        // SAFETY: a live protection domain; the caller vouches for the memory.
        let region =
            unsafe { (verbs.ibv_reg_mr)(adapter.as_raw_domain(), start.cast(), bytes, access.flags()) };
        let region = NonNull::new(region).ok_or_else(|| {
            let doing = format!("registering {bytes} bytes at {start:p} (`ulimit -l` may be too small)");
            Error::call("ibv_reg_mr", adapter.name(), doing)
        })?;
        Ok(Memory { adapter: Arc::clone(adapter), region, start: start as u64, bytes })
    }

    /// Registers a dma-buf, of GPU memory say, from `offset` on; requests name its bytes as addresses from `address` on.
    ///
    /// # Safety
    /// As for [`Memory::register`], for the memory behind the dma-buf.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if library, kernel or adapter cannot; [`Error::Call`].
    pub unsafe fn register_dmabuf(
        adapter: &Arc<Adapter>,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        address: u64,
        access: Access,
    ) -> Result<Self> {
        const MISSING: &str = "registration of dma-bufs: use staging in host memory";
        let unsupported = || Error::Unsupported { adapter: adapter.name().into(), what: MISSING };
        let register = adapter.verbs().ibv_reg_dmabuf_mr.ok_or_else(unsupported)?;
        let (domain, fd) = (adapter.as_raw_domain(), dmabuf.as_raw_fd());
        // SAFETY: a live protection domain and descriptor; the caller vouches for the memory.
        let region = unsafe { register(domain, offset, bytes, address, fd, access.flags()) };
        let region = NonNull::new(region).ok_or_else(|| {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            let none =
                [rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::PROTONOSUPPORT, rustix::io::Errno::NOSYS];
            match none.iter().any(|e| e.raw_os_error() == errno) {
                true => unsupported(),
                false => {
                    Error::call("ibv_reg_dmabuf_mr", adapter.name(), format!("registering {bytes} bytes"))
                }
            }
        })?;
        Ok(Memory { adapter: Arc::clone(adapter), region, start: address, bytes })
    }

    /// The adapter.
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// Address of the first byte, as requests name it.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What this process's requests name it by.
    pub fn lkey(&self) -> u32 {
        // SAFETY: a live region; the keys never change.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    /// What peers' requests name it by.
    pub fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region.as_ptr()).rkey }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: registered in `register` and ended once.
        unsafe { (self.adapter.verbs().ibv_dereg_mr)(self.region.as_ptr()) };
    }
}
