//! Host memory of the caller's own that devices reach.

use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

use crate::context::release;
use crate::error::{Error, Result, check};
use crate::{Context, DevicePtr};

/// Host memory, a shared mapping for instance, page-locked and mapped for every device (`cuMemHostRegister`, portable and mapped)
/// until this is dropped; what was given with its owner ([`RegisteredMemory::owned`]) until [`release_dropped`].
#[derive(Debug)]
pub struct RegisteredMemory {
    /// There until it is dropped.
    kept: Option<Kept>,
}

/// A registration, and what keeps its memory mapped: dropped in this order.
#[derive(Debug)]
struct Kept {
    registration: Registration,
    owner: Option<Box<dyn Owner>>,
}

/// What can be dropped anywhere.
trait Owner: Debug + Send + Sync {}
impl<T: Debug + Send + Sync> Owner for T {}

#[derive(Debug)]
struct Registration {
    host: NonNull<u8>,
    device: DevicePtr,
    bytes: usize,
    context: Context,
}

// SAFETY: the registration is not tied to a thread; the memory is reached through raw addresses alone.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

/// Registrations that were dropped and whose memory is still there.
static DROPPED: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// Ends the registrations of memory with an owner that were dropped so far, and drops the owners. To end one (`cuMemHostUnregister`) waits
/// for all kernels that run, and keeps other threads from launching meanwhile: call it when no kernel that runs needs a launch that is not
/// queued yet.
pub fn release_dropped() {
    let dropped = std::mem::take(&mut *DROPPED.lock().unwrap_or_else(PoisonError::into_inner));
    drop(dropped);
}

impl RegisteredMemory {
    /// Registers `bytes` bytes from `host` on, which begin at a page. Its drop waits for nothing: [`release_dropped`] ends the registration.
    ///
    /// # Safety
    /// The bytes stay mapped for as long as `owner` lives, and are not registered otherwise.
    ///
    /// # Errors
    /// [`Error::Misuse`] for 0 bytes, [`Error::Capture`] on a thread that is capturing, or [`Error::Call`].
    pub unsafe fn owned(
        context: &Context,
        host: NonNull<u8>,
        bytes: usize,
        owner: impl Debug + Send + Sync + 'static,
    ) -> Result<Self> {
        // SAFETY: the caller's contract; the owner goes behind the registration.
        unsafe { Self::with(context, host, bytes, 0, "page-locking", Some(Box::new(owner))) }
    }

    /// Maps `bytes` bytes of another device's registers, which the CPU has from `host` on, for kernels (`cuMemHostRegister` of
    /// I/O memory): a network adapter's doorbell, for instance. Its drop waits for all kernels that run.
    ///
    /// # Safety
    /// They are a device's registers, stay mapped for as long as this lives, and are not registered otherwise.
    ///
    /// # Errors
    /// As for [`RegisteredMemory::owned`]; the driver refuses where it may not map other devices' registers.
    pub unsafe fn io(context: &Context, host: NonNull<u8>, bytes: usize) -> Result<Self> {
        let (flags, doing) = (sys::CU_MEMHOSTREGISTER_IOMEMORY, "mapping registers in");
        // SAFETY: the caller's contract.
        unsafe { Self::with(context, host, bytes, flags, doing, None) }
    }

    /// # Safety
    /// The bytes stay mapped for as long as the owner lives, or this if there is none, and are not registered otherwise.
    unsafe fn with(
        context: &Context,
        host: NonNull<u8>,
        bytes: usize,
        more: u32,
        doing: &str,
        owner: Option<Box<dyn Owner>>,
    ) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::misuse("registered memory must have at least 1 byte"));
        }
        context.bind()?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP | more;
        // SAFETY: the caller vouches for the range; a context is current.
        let result = unsafe { sys::cuMemHostRegister_v2(host.as_ptr().cast(), bytes, flags) };
        check(result, "cuMemHostRegister", || format!("{doing} {bytes} bytes of host memory"))?;
        let mut registration =
            Registration { host, device: DevicePtr::NULL, bytes, context: context.whole() };
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer and `host` was just registered as mapped; zero is the only flag.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, host.as_ptr().cast(), 0) };
        check(result, "cuMemHostGetDevicePointer", || "mapping registered host memory".to_owned())?;
        registration.device = DevicePtr::new(address);
        Ok(Self { kept: Some(Kept { registration, owner }) })
    }

    fn registration(&self) -> &Registration {
        &self.kept.as_ref().expect("it is there until the drop").registration
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.registration().bytes
    }

    /// Where it begins for kernels, of any device.
    pub fn device_ptr(&self) -> DevicePtr {
        self.registration().device
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take_if(|kept| kept.owner.is_some()) {
            DROPPED.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered by `with`, unregistered here only.
        release(Some(&self.context), || unsafe { sys::cuMemHostUnregister(self.host.as_ptr().cast()) });
    }
}
