//! Memory that somebody else allocated, for other devices and processes to map.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr;

use cudarc::driver::sys;

use super::allocation_at;
use super::vmm::PhysicalMemory;
use crate::context::release;
use crate::error::{Error, Result, check};
use crate::{Context, Device, DevicePtr};

/// How an allocation of others leaves the process.
#[derive(Debug)]
pub enum Export {
    /// From `cuMemAlloc` or `cudaMalloc`: by a handle of CUDA's IPC, which other processes open.
    Ipc(IpcHandle),
    /// From `cuMemCreate`: by a file descriptor.
    Fd(OwnedFd),
}

/// A handle of CUDA's IPC.
pub type IpcHandle = [u8; 64];

/// An allocation of others.
#[derive(Debug)]
pub struct ForeignAllocation {
    /// Where it begins.
    pub base: DevicePtr,
    /// Its size in bytes.
    pub bytes: usize,
    /// How it leaves the process.
    pub exported: Export,
}

/// Why memory of others does not leave its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExported {
    /// It is managed: its pages move between host and device.
    Managed,
    /// It is of a pool of streams (`cudaMallocAsync`), or mapped from elsewhere.
    Pool,
    /// `cuMemCreate` was not asked for a file descriptor.
    NoHandle,
    /// It is made of several allocations of `cuMemCreate`.
    Several,
}

impl ForeignAllocation {
    /// Looks for the allocation that holds `bytes` bytes from `start` on, and exports it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the bytes are not within one allocation, [`Error::Call`] otherwise; the inner one says why the memory does not
    /// leave its process.
    pub fn export(context: &Context, start: DevicePtr, bytes: usize) -> Result<Result<Self, NotExported>> {
        let (base, size) = allocation_at(context, start)?;
        let whole = start.as_u64() - base + bytes as u64 <= size as u64;
        let (mut managed, mut legacy, mut pool) = (0u32, 0u32, ptr::null_mut::<c_void>());
        let mut asked = [
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        ];
        let mut answers =
            [(&raw mut managed).cast::<c_void>(), (&raw mut legacy).cast(), (&raw mut pool).cast()];
        // SAFETY: each answer has room for its attribute: two of at most 32 bits, and a pointer.
        let result = unsafe {
            sys::cuPointerGetAttributes(3, asked.as_mut_ptr(), answers.as_mut_ptr(), start.as_u64())
        };
        check(result, "cuPointerGetAttributes", || format!("asking what {start} is"))?;
        let found = |exported| Ok(Ok(Self { base: DevicePtr::new(base), bytes: size, exported }));
        // The first two are booleans, of one byte.
        match (managed & 0xff, legacy & 0xff) {
            (0, 0) if !pool.is_null() => return Ok(Err(NotExported::Pool)),
            // `cuMemCreate`, of which the driver says nothing else.
            (0, 0) => {
                let Some(first) = PhysicalMemory::at(DevicePtr::new(base), size) else {
                    return Ok(Err(NotExported::Pool));
                };
                // Mappings that stand side by side may be one range to the driver.
                let last = PhysicalMemory::at(DevicePtr::new(base + size as u64 - 1), size);
                return match last {
                    Some(last) if whole && last.as_raw() == first.as_raw() => match first.has_fd()? {
                        true => found(Export::Fd(first.export_fd()?)),
                        false => Ok(Err(NotExported::NoHandle)),
                    },
                    _ => Ok(Err(NotExported::Several)),
                };
            }
            (0, _) if whole => {}
            (0, _) => {
                return Err(Error::misuse(format!(
                    "{bytes} bytes from {start} on are not within the allocation of {size} bytes that begins at {base:#x}"
                )));
            }
            _ => return Ok(Err(NotExported::Managed)),
        }
        let mut handle = sys::CUipcMemHandle_st { reserved: [0; 64] };
        // SAFETY: a valid out-pointer, and the beginning of an allocation.
        let result = unsafe { sys::cuIpcGetMemHandle(&mut handle, base) };
        check(result, "cuIpcGetMemHandle", || format!("exporting {size} bytes at {base:#x}"))?;
        found(Export::Ipc(handle.reserved.map(|byte| byte as u8)))
    }
}

/// An allocation of another process of this host, mapped here.
#[derive(Debug)]
pub struct IpcMemory {
    base: DevicePtr,
    context: Context,
}

impl IpcMemory {
    /// Maps it for the context's device (`cuIpcOpenMemHandle`).
    ///
    /// # Errors
    /// [`Error::Call`] if it is of this process, is gone, or is on a device that this one cannot reach.
    ///
    /// # Safety
    /// The other process does not free the allocation while this lives.
    pub unsafe fn open(context: &Context, handle: &IpcHandle) -> Result<Self> {
        context.bind()?;
        let handle = sys::CUipcMemHandle_st { reserved: handle.map(|byte| byte as _) };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut base = 0;
        // SAFETY: a valid out-pointer; for the allocation see the contract.
        let result = unsafe { sys::cuIpcOpenMemHandle_v2(&mut base, handle, flags) };
        let what = || format!("mapping memory of another process on {}", context.device());
        check(result, "cuIpcOpenMemHandle", what)?;
        Ok(Self { base: DevicePtr::new(base), context: context.clone() })
    }

    /// Where the allocation begins.
    pub fn ptr(&self) -> DevicePtr {
        self.base
    }
}

impl Drop for IpcMemory {
    fn drop(&mut self) {
        let base = self.base.as_u64();
        // SAFETY: opened once here, closed once; the driver counts how often one is open.
        release(Some(&self.context), || unsafe { sys::cuIpcCloseMemHandle(base) });
    }
}

/// Lets `context`'s device reach what `device` has allocated in this process by `cuMemAlloc` (`cuCtxEnablePeerAccess`).
///
/// # Errors
/// [`Error::Call`] if it cannot.
pub fn reach(context: &Context, device: &Device) -> Result<()> {
    if device.ordinal() == context.device().ordinal() {
        return Ok(());
    }
    let theirs = Context::new(device)?;
    context.bind()?;
    // SAFETY: both contexts are alive; a peer's primary context that goes takes the right with it.
    let result = unsafe { sys::cuCtxEnablePeerAccess(theirs.as_raw(), 0) };
    if result == sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
        return Ok(());
    }
    let what = || format!("letting {} reach the memory of {device}", context.device());
    check(result, "cuCtxEnablePeerAccess", what)
}
