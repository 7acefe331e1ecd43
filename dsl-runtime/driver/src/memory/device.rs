//! Plain device memory.

use super::vmm::{Granularity, Mapping, PhysicalMemory, Reservation};
use super::{DeviceRegion, round_up};
use crate::error::{Error, Result};
use crate::{Context, DevicePtr};

/// Device memory, given back on drop. Its content is undefined at first.
///
/// It is mapped page by page (`cuMemCreate`, `cuMemMap`), which takes whole pages of the device's, 2 MiB as a rule. Neither
/// making nor dropping it waits for kernels: `cuMemFree` would wait for all that run on the device, and keep other threads from
/// launching meanwhile.
#[derive(Debug)]
pub struct DeviceMemory {
    mapping: Mapping,
    bytes: usize,
    context: Context,
}

impl DeviceMemory {
    /// Allocates `bytes` bytes, aligned to a page.
    ///
    /// # Errors
    /// [`Error::Misuse`] for 0 bytes, [`Error::Unsupported`] where memory cannot be mapped, [`Error::OutOfMemory`] or [`Error::Call`].
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::misuse("device memory must have at least 1 byte"));
        }
        context.bind()?;
        let device = context.device();
        // So that it can become symmetric.
        let exportable = device.supports_posix_fd();
        let page = Granularity::query(device, exportable)?.minimum;
        let size = round_up(bytes, page)
            .ok_or_else(|| Error::misuse(format!("{bytes} bytes cannot be allocated")))?;
        let physical = PhysicalMemory::create(device, size, exportable)?;
        let mapping = Mapping::new(&Reservation::new(size, 0)?, 0, &physical, &[device])?;
        Ok(Self { mapping, bytes, context: context.clone() })
    }
}

impl DeviceRegion for DeviceMemory {
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
