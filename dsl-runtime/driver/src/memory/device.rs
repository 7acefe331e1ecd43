//! Plain device memory.

use cudarc::driver::sys;

use super::DeviceRegion;
use crate::context::release;
use crate::error::{Error, Result, check_alloc};
use crate::{Context, DevicePtr};

/// Device memory from `cuMemAlloc`, freed on drop. Its content is undefined at first.
///
/// Freeing it (`cuMemFree`) may wait for work that is running on the device: do not drop one while a kernel
/// waits for something that the same thread does afterwards.
#[derive(Debug)]
pub struct DeviceMemory {
    ptr: DevicePtr,
    bytes: usize,
    context: Context,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes, aligned to 256 at least (`cuMemAlloc`).
    ///
    /// # Errors
    /// [`Error::Misuse`] for 0 bytes, [`Error::OutOfMemory`], [`Error::Capture`] on a thread that is capturing,
    /// or [`Error::Call`].
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::misuse("device memory must have at least 1 byte"));
        }
        context.bind()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer and a context is current.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
        check_alloc(result, "cuMemAlloc", bytes, || format!("allocating memory on {}", context.device()))?;
        Ok(Self { ptr: DevicePtr::new(address), bytes, context: context.clone() })
    }
}

impl DeviceRegion for DeviceMemory {
    fn context(&self) -> &Context {
        &self.context
    }

    fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the address is what `cuMemAlloc` returned and is freed here only.
        release(Some(&self.context), || unsafe { sys::cuMemFree_v2(self.ptr.as_u64()) });
    }
}
