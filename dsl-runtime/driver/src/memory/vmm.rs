//! Physical memory, addresses, and mapping the one at the other.
//!
//! The pieces release in this order: a [`Mapping`] unmaps (`cuMemUnmap`), then the addresses are freed
//! (`cuMemAddressFree`) and the physical memory is let go (`cuMemRelease`). It comes about by itself: a mapping
//! holds the reservation and the physical memory, and these live until nobody holds them. Physical memory that
//! was exported lives on in the other processes until they let go of it too.
//!
//! Unmapping does not wait for kernels: that none uses the addresses any more, on any device, is part of the
//! contract of having launched it.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys;

use super::round_up;
use crate::context::release;
use crate::error::{Error, Result, check, check_alloc};
use crate::{Device, DeviceAttribute, DevicePtr, Driver};

/// The handle type of memory that leaves the process as a file descriptor.
const POSIX_FD: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// What sizes and addresses of physical memory of a device must be multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// The least that works, in bytes.
    pub minimum: usize,
    /// What performs best, in bytes.
    pub recommended: usize,
}

impl Granularity {
    /// Asks the driver (`cuMemGetAllocationGranularity`).
    ///
    /// # Errors
    /// [`Error::Unsupported`] without virtual memory management, [`Error::Call`] otherwise.
    pub fn query(device: &Device, exportable: bool) -> Result<Self> {
        use sys::CUmemAllocationGranularity_flags_enum::*;
        let properties = properties(device, exportable)?;
        let ask = |option| {
            let mut bytes = 0;
            // SAFETY: `bytes` is a valid out-pointer and the properties live through the call.
            let result = unsafe { sys::cuMemGetAllocationGranularity(&mut bytes, &properties, option) };
            check(result, "cuMemGetAllocationGranularity", || {
                format!("asking {device} for its granularity")
            })?;
            Ok::<_, Error>(bytes)
        };
        Ok(Self {
            minimum: ask(CU_MEM_ALLOC_GRANULARITY_MINIMUM)?,
            recommended: ask(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)?,
        })
    }

    /// `bytes` rounded up to a multiple of the recommended granularity.
    ///
    /// # Errors
    /// [`Error::Misuse`] if that is 0 or more than a `usize` holds.
    pub fn round_up(&self, bytes: usize) -> Result<usize> {
        round_up(bytes, self.recommended)
            .filter(|&rounded| rounded > 0)
            .ok_or_else(|| Error::misuse(format!("{bytes} bytes cannot be allocated")))
    }
}

/// Physical memory of a device, made here or imported. It has no address; clones share it.
#[derive(Clone, Debug)]
pub struct PhysicalMemory {
    inner: Arc<Physical>,
}

#[derive(Debug)]
struct Physical {
    raw: sys::CUmemGenericAllocationHandle,
    bytes: usize,
    exportable: bool,
}

impl PhysicalMemory {
    /// Allocates `bytes` bytes on a device (`cuMemCreate`); `exportable` ones can leave the process as a file
    /// descriptor. The content is undefined.
    ///
    /// # Errors
    /// [`Error::Misuse`] unless `bytes` is a positive multiple of [`Granularity::minimum`],
    /// [`Error::Unsupported`] if the device cannot do it, [`Error::OutOfMemory`] or [`Error::Call`].
    pub fn create(device: &Device, bytes: usize, exportable: bool) -> Result<Self> {
        let properties = properties(device, exportable)?;
        let minimum = Granularity::query(device, exportable)?.minimum;
        if bytes == 0 || !bytes.is_multiple_of(minimum) {
            return Err(Error::misuse(format!(
                "physical memory of {device} comes in multiples of {minimum} bytes, not {bytes}"
            )));
        }
        let mut raw = 0;
        // SAFETY: `raw` is a valid out-pointer, the properties live through the call and zero is the only flag.
        let result = unsafe { sys::cuMemCreate(&mut raw, bytes, &properties, 0) };
        check_alloc(result, "cuMemCreate", bytes, || format!("allocating physical memory on {device}"))?;
        Ok(Self { inner: Arc::new(Physical { raw, bytes, exportable }) })
    }

    /// A file descriptor for this memory, to be passed to another process over a Unix socket
    /// (`cuMemExportToShareableHandle`). It keeps the memory alive, and is closed on `exec`.
    ///
    /// # Errors
    /// [`Error::Misuse`] unless it was made exportable here, [`Error::Call`] otherwise.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        if !self.inner.exportable {
            return Err(Error::misuse("only physical memory that was created exportable can be exported"));
        }
        let mut raw: c_int = -1;
        // SAFETY: for this handle type the driver writes one int; the memory is alive; zero is the only flag.
        let result =
            unsafe { sys::cuMemExportToShareableHandle((&raw mut raw).cast(), self.inner.raw, POSIX_FD, 0) };
        let what = || format!("exporting {} bytes of physical memory", self.bytes());
        check(result, "cuMemExportToShareableHandle", what)?;
        if raw < 0 {
            return Err(Error::misuse("the driver exported no file descriptor"));
        }
        // SAFETY: the driver has just opened this descriptor for the caller, who owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| Error::misuse(format!("the exported descriptor is not usable: {error}")))?;
        Ok(fd)
    }

    /// Memory that another process, or this one, exported (`cuMemImportFromShareableHandle`). The descriptor is
    /// not consumed and may be closed afterwards.
    ///
    /// `bytes` is the size it was created with; the driver refuses to map more than there is.
    ///
    /// # Errors
    /// What [`Driver::load`] says, [`Error::Misuse`] for 0 bytes, [`Error::Call`] if the descriptor is not such
    /// memory.
    pub fn import_fd(fd: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        Driver::load()?;
        if bytes == 0 {
            return Err(Error::misuse("imported memory must have at least 1 byte"));
        }
        let number = fd.as_raw_fd();
        let handle: *mut c_void = std::ptr::without_provenance_mut(number as usize);
        let mut raw = 0;
        // SAFETY: `raw` is a valid out-pointer; for this handle type the descriptor itself, which is open as
        // long as it is borrowed, travels in the place of the pointer.
        let result = unsafe { sys::cuMemImportFromShareableHandle(&mut raw, handle, POSIX_FD) };
        let what = || format!("importing {bytes} bytes of physical memory from descriptor {number}");
        check(result, "cuMemImportFromShareableHandle", what)?;
        Ok(Self { inner: Arc::new(Physical { raw, bytes, exportable: false }) })
    }

    /// What is mapped at an address, of `bytes` bytes, whoever made it (`cuMemRetainAllocationHandle`); `None` if nothing is.
    pub(super) fn at(address: DevicePtr, bytes: usize) -> Option<Self> {
        let mut raw = 0;
        let at = std::ptr::without_provenance_mut(address.as_u64() as usize);
        // SAFETY: a valid out-pointer; the driver refuses an address where nothing is mapped.
        let result = unsafe { sys::cuMemRetainAllocationHandle(&mut raw, at) };
        let found = || Self { inner: Arc::new(Physical { raw, bytes, exportable: true }) };
        (result == sys::CUresult::CUDA_SUCCESS).then(found)
    }

    /// Whether it was made to leave the process as a file descriptor.
    pub(super) fn has_fd(&self) -> Result<bool> {
        let mut properties = std::mem::MaybeUninit::<sys::CUmemAllocationProp>::zeroed();
        // SAFETY: a valid out-pointer, and a handle that is alive.
        let result =
            unsafe { sys::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), self.inner.raw) };
        check(result, "cuMemGetAllocationPropertiesFromHandle", || "asking how memory was made".to_owned())?;
        // SAFETY: within what the driver has filled. The other fields may have values that newer drivers know.
        let types = unsafe { (&raw const (*properties.as_ptr()).requestedHandleTypes).read() };
        Ok(types.0 & POSIX_FD.0 != 0)
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> sys::CUmemGenericAllocationHandle {
        self.inner.raw
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: the last holder is going, so no mapping is left; this is the one release of the handle.
        release(None, || unsafe { sys::cuMemRelease(self.raw) });
    }
}

/// A range of addresses with nothing behind it. Clones share it.
#[derive(Clone, Debug)]
pub struct Reservation {
    inner: Arc<Range>,
}

#[derive(Debug)]
struct Range {
    ptr: DevicePtr,
    bytes: usize,
}

impl Reservation {
    /// Reserves `bytes` addresses that begin at a multiple of `alignment`, a power of two, or 0 for the
    /// driver's choice (`cuMemAddressReserve`).
    ///
    /// # Errors
    /// What [`Driver::load`] says, [`Error::OutOfMemory`], or [`Error::Call`] if `bytes` is not a multiple of
    /// the page size.
    pub fn new(bytes: usize, alignment: usize) -> Result<Self> {
        Driver::load()?;
        let mut address = 0;
        // SAFETY: `address` is a valid out-pointer; no fixed address is asked for; zero is the only flag.
        let result = unsafe { sys::cuMemAddressReserve(&mut address, bytes, alignment, 0, 0) };
        check_alloc(result, "cuMemAddressReserve", bytes, || "reserving addresses".to_owned())?;
        Ok(Self { inner: Arc::new(Range { ptr: DevicePtr::new(address), bytes }) })
    }

    /// Where the range begins.
    pub fn ptr(&self) -> DevicePtr {
        self.inner.ptr
    }

    /// The number of addresses.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the last holder is going, so nothing is mapped there; address and size are the reserved ones.
        release(None, || unsafe { sys::cuMemAddressFree(self.ptr.as_u64(), self.bytes) });
    }
}

/// What a device may do with a mapping (`CUmemAccess_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: takes back what was granted.
    None,
    /// Load.
    Read,
    /// Load and store.
    ReadWrite,
}

/// Physical memory at an address. It holds both, and unmaps on drop.
#[derive(Debug)]
pub struct Mapping {
    ptr: DevicePtr,
    physical: PhysicalMemory,
    reservation: Reservation,
}

impl Mapping {
    /// Maps all of `physical` at `offset` bytes into `reservation` and lets `devices` load and store there
    /// (`cuMemMap`, `cuMemSetAccess`).
    ///
    /// # Errors
    /// [`Error::Misuse`] if it does not fit; [`Error::Call`] if the offset is not a multiple of the
    /// granularity, something is mapped there already, or a device cannot reach the memory.
    pub fn new(
        reservation: &Reservation,
        offset: usize,
        physical: &PhysicalMemory,
        devices: &[&Device],
    ) -> Result<Self> {
        let bytes = physical.bytes();
        if offset.checked_add(bytes).is_none_or(|end| end > reservation.bytes()) {
            return Err(Error::misuse(format!(
                "{bytes} bytes at offset {offset} do not fit a reservation of {} bytes",
                reservation.bytes()
            )));
        }
        let ptr = reservation.ptr().offset(offset);
        // SAFETY: the range lies within a live reservation and the physical memory is alive; the offset into
        // the physical memory and the flags must be zero.
        let result = unsafe { sys::cuMemMap(ptr.as_u64(), bytes, 0, physical.as_raw(), 0) };
        check(result, "cuMemMap", || format!("mapping {bytes} bytes at {ptr}"))?;
        let mapping = Self { ptr, physical: physical.clone(), reservation: reservation.clone() };
        mapping.set_access(devices, Access::ReadWrite)?;
        Ok(mapping)
    }

    /// Changes what these devices may do; others keep what they have (`cuMemSetAccess`).
    ///
    /// # Errors
    /// [`Error::Call`] if a device cannot reach the memory.
    pub fn set_access(&self, devices: &[&Device], access: Access) -> Result<()> {
        use sys::CUmemAccess_flags_enum::*;
        if devices.is_empty() {
            return Ok(());
        }
        let flags = match access {
            Access::None => CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Access::Read => CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let grants: Vec<_> =
            devices.iter().map(|device| sys::CUmemAccessDesc { location: location(device), flags }).collect();
        // SAFETY: the range is exactly one live mapping and the descriptors live through the call.
        let result =
            unsafe { sys::cuMemSetAccess(self.ptr.as_u64(), self.bytes(), grants.as_ptr(), grants.len()) };
        check(result, "cuMemSetAccess", || {
            let names: Vec<_> = devices.iter().map(|device| device.ordinal()).collect();
            format!("setting the access of devices {names:?} to {} bytes at {}", self.bytes(), self.ptr)
        })
    }

    /// Where the memory is.
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.physical.bytes()
    }

    /// The physical memory.
    pub fn physical(&self) -> &PhysicalMemory {
        &self.physical
    }

    /// The addresses it lies in.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly one live mapping; physical memory and reservation are let go after it.
        release(None, || unsafe { sys::cuMemUnmap(self.ptr.as_u64(), self.bytes()) });
    }
}

fn location(device: &Device) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device.as_raw() }
}

/// Pinned memory on a device; reachable for network adapters too where the device allows it.
fn properties(device: &Device, exportable: bool) -> Result<sys::CUmemAllocationProp> {
    let unsupported = |what: &str| Error::unsupported(format!("{what} on {device}"));
    if !device.supports_vmm() {
        return Err(unsupported("virtual memory management"));
    }
    if exportable && !device.supports_posix_fd() {
        return Err(unsupported("exporting memory as a file descriptor"));
    }
    let rdma = device.attribute(DeviceAttribute::GpuDirectRdmaWithVmmSupported)? != 0;
    let handle = if exportable { POSIX_FD } else { sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE };
    Ok(sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: rdma.into(),
            usage: 0,
            reserved: [0; 4],
        },
    })
}
