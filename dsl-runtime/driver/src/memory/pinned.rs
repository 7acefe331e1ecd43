//! Host memory that devices reach.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

use crate::error::{Error, Result, check, check_alloc};
use crate::{Context, DevicePtr};

/// Page-locked host memory, mapped for every device (`cuMemHostAlloc`, portable and mapped), zero at first.
///
/// Kernels and the host use it at the same time, so the slices are `unsafe`; [`PinnedMemory::atomic_u64`] is
/// the safe way to look at what a running kernel writes.
///
/// The process keeps what is dropped for the next one of about the size: to free it (`cuMemFreeHost`) would wait for all kernels that
/// run, and keep other threads from launching meanwhile.
#[derive(Debug)]
pub struct PinnedMemory {
    block: Block,
    bytes: usize,
}

/// What the driver gave.
#[derive(Clone, Debug)]
struct Block {
    host: NonNull<u8>,
    device: DevicePtr,
    bytes: usize,
    context: Context,
}

// SAFETY: the memory is owned, is not tied to a thread, and safe methods reach it only through atomics.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// Blocks that nobody uses.
static SPARE: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// A device's pages of host memory.
const PAGE: usize = 4096;

impl PinnedMemory {
    /// Allocates `bytes` zero bytes, aligned to a page (`cuMemHostAlloc`, `cuMemHostGetDevicePointer`).
    ///
    /// # Errors
    /// [`Error::Misuse`] for 0 bytes, [`Error::OutOfMemory`], [`Error::Capture`] on a thread that is capturing,
    /// or [`Error::Call`].
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::misuse("pinned memory must have at least 1 byte"));
        }
        let Some(size) = bytes.checked_next_multiple_of(PAGE) else {
            return Err(Error::misuse(format!("{bytes} bytes cannot be allocated")));
        };
        let block = match Block::spare(context, size) {
            Some(block) => block,
            None => Block::new(context, size)?,
        };
        // SAFETY: that many writable bytes, which nobody else knows of.
        unsafe { block.host.write_bytes(0, block.bytes) };
        Ok(Self { block, bytes })
    }

    /// The context it was made in, with all multiprocessors: what is kept for later keeps no part in use.
    pub fn context(&self) -> &Context {
        &self.block.context
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins for the host.
    pub fn host_ptr(&self) -> *mut u8 {
        self.block.host.as_ptr()
    }

    /// Where it begins for kernels, of any device.
    pub fn device_ptr(&self) -> DevicePtr {
        self.block.device
    }

    /// The bytes, for reading.
    ///
    /// # Safety
    /// While the slice lives, no kernel, copy or other thread writes the memory.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the allocation holds that many initialised bytes; the caller vouches that nobody writes.
        unsafe { std::slice::from_raw_parts(self.block.host.as_ptr(), self.bytes) }
    }

    /// The bytes, for writing.
    ///
    /// # Safety
    /// While the slice lives, no kernel or copy reads or writes the memory.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.block.host.as_ptr(), self.bytes) }
    }

    /// The 8 bytes at `offset`, as an atomic that host and kernels may both use.
    ///
    /// # Errors
    /// [`Error::Misuse`] if `offset` is not a multiple of 8 or the bytes do not lie within the memory.
    pub fn atomic_u64(&self, offset: usize) -> Result<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset.checked_add(8).is_none_or(|end| end > self.bytes) {
            let size = self.bytes;
            return Err(Error::misuse(format!(
                "an atomic at offset {offset} must be a multiple of 8 and lie within {size} bytes"
            )));
        }
        // SAFETY: the pointer is within the allocation, which begins at a page, and a multiple of 8; the bytes
        // live as long as `self` and safe code reaches them only as such atomics.
        Ok(unsafe { AtomicU64::from_ptr(self.block.host.as_ptr().add(offset).cast()) })
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(self.block.clone());
    }
}

impl Block {
    /// The smallest spare one that holds `bytes` and not twice as many.
    fn spare(context: &Context, bytes: usize) -> Option<Self> {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = context.whole();
        let fits = |block: &Self| block.context == whole && (bytes..2 * bytes).contains(&block.bytes);
        let best =
            spare.iter().enumerate().filter(|(_, block)| fits(block)).min_by_key(|(_, block)| block.bytes);
        let at = best.map(|(at, _)| at)?;
        Some(spare.swap_remove(at))
    }

    fn new(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut host: *mut c_void = std::ptr::null_mut();
        // SAFETY: `host` is a valid out-pointer and a context is current.
        let result = unsafe { sys::cuMemHostAlloc(&mut host, bytes, flags) };
        check_alloc(result, "cuMemHostAlloc", bytes, || "allocating pinned host memory".to_owned())?;
        let host = NonNull::new(host.cast::<u8>())
            .ok_or_else(|| Error::misuse("the driver returned no pinned memory"))?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer and `host` is mapped memory; zero is the only flag.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host.as_ptr().cast(), 0) };
        check(result, "cuMemHostGetDevicePointer", || "mapping pinned host memory".to_owned())?;
        Ok(Self { host, device: DevicePtr::new(address), bytes, context: context.whole() })
    }
}
