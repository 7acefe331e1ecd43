//! Host memory of the caller's own that devices reach.

use std::ptr::NonNull;

use cudarc::driver::sys;

use crate::context::release;
use crate::error::{Error, Result, check};
use crate::{Context, DevicePtr};

/// Host memory, a shared mapping for instance, page-locked and mapped for every device (`cuMemHostRegister`, portable and mapped)
/// until this is dropped.
#[derive(Debug)]
pub struct RegisteredMemory {
    host: NonNull<u8>,
    device: DevicePtr,
    bytes: usize,
    context: Context,
}

// SAFETY: the registration is not tied to a thread; the memory is reached through raw addresses alone.
unsafe impl Send for RegisteredMemory {}
// SAFETY: as above.
unsafe impl Sync for RegisteredMemory {}

impl RegisteredMemory {
    /// Registers `bytes` bytes from `host` on, which begin at a page.
    ///
    /// # Safety
    /// They stay mapped for as long as this lives, and are not registered otherwise.
    ///
    /// # Errors
    /// [`Error::Misuse`] for 0 bytes, [`Error::Capture`] on a thread that is capturing, or [`Error::Call`].
    pub unsafe fn new(context: &Context, host: NonNull<u8>, bytes: usize) -> Result<Self> {
        // SAFETY: the caller's contract.
        unsafe { Self::with(context, host, bytes, 0, "page-locking") }
    }

    /// Maps `bytes` bytes of another device's registers, which the CPU has from `host` on, for kernels (`cuMemHostRegister` of
    /// I/O memory): a network adapter's doorbell, for instance.
    ///
    /// # Safety
    /// As for [`RegisteredMemory::new`], and they are a device's registers.
    ///
    /// # Errors
    /// As for [`RegisteredMemory::new`]; the driver refuses where it may not map other devices' registers.
    pub unsafe fn io(context: &Context, host: NonNull<u8>, bytes: usize) -> Result<Self> {
        // SAFETY: the caller's contract.
        unsafe { Self::with(context, host, bytes, sys::CU_MEMHOSTREGISTER_IOMEMORY, "mapping registers in") }
    }

    /// # Safety
    /// As for [`RegisteredMemory::new`].
    unsafe fn with(
        context: &Context,
        host: NonNull<u8>,
        bytes: usize,
        more: u32,
        doing: &str,
    ) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::misuse("registered memory must have at least 1 byte"));
        }
        context.bind()?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP | more;
        // SAFETY: the caller vouches for the range; a context is current.
        let result = unsafe { sys::cuMemHostRegister_v2(host.as_ptr().cast(), bytes, flags) };
        check(result, "cuMemHostRegister", || format!("{doing} {bytes} bytes of host memory"))?;
        let mut memory = Self { host, device: DevicePtr::NULL, bytes, context: context.clone() };
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer and `host` was just registered as mapped; zero is the only flag.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host.as_ptr().cast(), 0) };
        check(result, "cuMemHostGetDevicePointer", || "mapping registered host memory".to_owned())?;
        memory.device = DevicePtr::new(address);
        Ok(memory)
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins for kernels, of any device.
    pub fn device_ptr(&self) -> DevicePtr {
        self.device
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        // SAFETY: registered by `new`, unregistered here only.
        release(Some(&self.context), || unsafe { sys::cuMemHostUnregister(self.host.as_ptr().cast()) });
    }
}
