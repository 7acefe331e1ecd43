//! Device memory that other devices and processes map.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::vmm::{Access, Granularity, Mapping, PhysicalMemory, Reservation};
use super::{DeviceRegion, round_up};
use crate::error::{Error, Result};
use crate::{Context, Device, DevicePtr};

/// Device memory at an address that kernels of one context's device use, wherever the memory itself is: on
/// that device, or on a peer that is reached through NVLink or PCIe.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Mapping,
    bytes: usize,
    context: Context,
}

impl SharedMemory {
    /// Allocates at least `bytes` bytes on the context's device, all zero, and maps them for it
    /// (`cuMemCreate`, `cuMemAddressReserve`, `cuMemMap`, `cuMemSetAccess`).
    ///
    /// # Errors
    /// [`Error::Misuse`] for 0 bytes, [`Error::Unsupported`], [`Error::OutOfMemory`], [`Error::Capture`] on a
    /// thread that is capturing, or [`Error::Call`].
    pub fn create(context: &Context, bytes: usize) -> Result<Self> {
        context.bind()?;
        let granularity = Granularity::query(context.device(), true)?;
        let physical = PhysicalMemory::create(context.device(), granularity.round_up(bytes)?, true)?;
        let memory = Self::map(context, &physical, bytes)?;
        memory.fill(0)?;
        Ok(memory)
    }

    /// Maps memory that [`SharedMemory::create`] made, here or in another process, for the context's device.
    /// `bytes` is what was asked for there. The descriptor may be closed afterwards.
    ///
    /// The content is left as it is.
    ///
    /// # Errors
    /// [`Error::Misuse`] for 0 bytes, [`Error::Call`] if the descriptor is no such memory, is smaller, or is on
    /// a device that this one cannot reach.
    pub fn import(context: &Context, fd: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        context.bind()?;
        let granularity = Granularity::query(context.device(), true)?;
        let physical = PhysicalMemory::import_fd(fd, granularity.round_up(bytes)?)?;
        Self::map(context, &physical, bytes)
    }

    /// Maps the same memory at another address for another context of this process.
    ///
    /// # Errors
    /// [`Error::Call`] if that device cannot reach this memory.
    pub fn map_for(&self, context: &Context) -> Result<Self> {
        context.bind()?;
        Self::map(context, self.mapping.physical(), self.bytes)
    }

    fn map(context: &Context, physical: &PhysicalMemory, bytes: usize) -> Result<Self> {
        let size = physical.bytes();
        if round_up(bytes, size) != Some(size) {
            return Err(Error::misuse(format!("{bytes} bytes do not lie within {size} bytes of memory")));
        }
        let reservation = Reservation::new(size, 0)?;
        let mapping = Mapping::new(&reservation, 0, physical, &[context.device()])?;
        Ok(Self { mapping, bytes, context: context.clone() })
    }

    /// Lets another device of this process use the same addresses (`cuMemSetAccess`).
    ///
    /// # Errors
    /// [`Error::Call`] if that device cannot reach this memory.
    pub fn grant(&self, device: &Device) -> Result<()> {
        self.mapping.set_access(&[device], Access::ReadWrite)
    }

    /// A file descriptor with which another process can map the memory. It keeps the memory alive.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this was itself imported, [`Error::Call`] otherwise.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        self.mapping.physical().export_fd()
    }

    /// The bytes that are mapped: those asked for, rounded up to the granularity.
    pub fn mapped_bytes(&self) -> usize {
        self.mapping.bytes()
    }
}

impl DeviceRegion for SharedMemory {
    fn context(&self) -> &Context {
        &self.context
    }

    fn ptr(&self) -> DevicePtr {
        self.mapping.ptr()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
