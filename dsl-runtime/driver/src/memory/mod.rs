//! Memory that kernels reach: of the device, of the host, and shared between devices and processes.
//!
//! Everything here owns what it names and holds what it depends on, so values may be dropped in any order.
//! What no type can hold is the device's side: a kernel, copy or graph that still uses the memory. That it has
//! ended before the owner is dropped is part of the contract of the `unsafe` function that queued it.
//!
//! Managed memory and multicast objects are left out on purpose.

mod align;
mod device;
mod dmabuf;
mod foreign;
mod pinned;
mod registered;
mod shared;
mod vmm;

pub use align::round_up;
pub use device::DeviceMemory;
pub use dmabuf::DmaBuf;
pub use foreign::{Export, ForeignAllocation, IpcHandle, IpcMemory, NotExported, reach};
pub use pinned::PinnedMemory;
pub use registered::{RegisteredMemory, release_dropped};
pub use shared::SharedMemory;
pub use vmm::{Access, Granularity, Mapping, PhysicalMemory, Reservation};

use bytemuck::Pod;
use cudarc::driver::sys;

use crate::error::{Error, Result, check};
use crate::{Context, DevicePtr, copy};

/// Where the allocation that holds an address begins, and its size in bytes; whoever made it.
fn allocation_at(context: &Context, address: DevicePtr) -> Result<(u64, usize)> {
    context.bind()?;
    let (mut base, mut size) = (0, 0);
    // SAFETY: both are valid out-pointers; the driver refuses an address that it does not know.
    let result = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut size, address.as_u64()) };
    let what = || format!("looking for the allocation at {:#x}", address.as_u64());
    check(result, "cuMemGetAddressRange", what)?;
    Ok((base, size))
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::DeviceMemory {}
    impl Sealed for super::SharedMemory {}
}

/// An owned stretch of device memory that the host reads and writes by checked, synchronous copies.
///
/// The copies are ordered with the legacy default stream and not with a [`crate::Stream`]: wait for that one
/// first. Bytes that a kernel or a peer writes meanwhile come out old, new or mixed.
pub trait DeviceRegion: sealed::Sealed {
    /// The context whose kernels use the memory.
    fn context(&self) -> &Context;

    /// Where it begins.
    fn ptr(&self) -> DevicePtr;

    /// Its size in bytes.
    fn bytes(&self) -> usize;

    /// The address of `bytes` bytes at `offset`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if they do not lie within the memory.
    fn at(&self, offset: usize, bytes: usize) -> Result<DevicePtr> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes() => Ok(self.ptr().offset(offset)),
            _ => {
                let size = self.bytes();
                Err(Error::misuse(format!("{bytes} bytes at offset {offset} do not lie within {size} bytes")))
            }
        }
    }

    /// Copies `source` to `offset` bytes from the beginning and waits until it is there (`cuMemcpyHtoD`).
    ///
    /// # Errors
    /// [`Error::Misuse`] if it does not fit, [`Error::Capture`] on a thread that is capturing, or
    /// [`Error::Call`].
    fn write<T: Pod>(&self, offset: usize, source: &[T]) -> Result<()> {
        let target = self.at(offset, size_of_val(source))?;
        // SAFETY: the target lies within this live allocation. A kernel that races with the copy sees bytes
        // it must not rely on, which its launch contract forbids.
        unsafe { copy::h2d(self.context(), target, source) }
    }

    /// Copies from `offset` bytes from the beginning into `target` (`cuMemcpyDtoH`).
    ///
    /// # Errors
    /// As [`DeviceRegion::write`].
    fn read<T: Pod>(&self, offset: usize, target: &mut [T]) -> Result<()> {
        let source = self.at(offset, size_of_val(target))?;
        // SAFETY: the source lies within this live allocation, and any bytes make a valid `T`.
        unsafe { copy::d2h(self.context(), target, source) }
    }

    /// Sets every byte to `value` and waits until it is done (`cuMemsetD8`).
    ///
    /// # Errors
    /// [`Error::Capture`] on a thread that is capturing, or [`Error::Call`].
    fn fill(&self, value: u8) -> Result<()> {
        self.fill_at(0, self.bytes(), value)
    }

    /// Sets `bytes` bytes at `offset` to `value` and waits until it is done (`cuMemsetD8`).
    ///
    /// # Errors
    /// As [`DeviceRegion::write`].
    fn fill_at(&self, offset: usize, bytes: usize, value: u8) -> Result<()> {
        let target = self.at(offset, bytes)?;
        // SAFETY: the target lies within this live allocation; for races see `write`.
        unsafe { copy::memset_u8(self.context(), target, value, bytes) }
    }
}
