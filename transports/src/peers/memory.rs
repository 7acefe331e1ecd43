//! Memory that peers map.

use super::Allocation;
use crate::host::{Error, Foreign, Machine, Mapping, Result};
use fusewire_driver::memory::{DeviceRegion, SharedMemory};
use std::os::fd::{AsFd, OwnedFd};

/// Memory that the ranks of a host can map: of the host, or of a GPU.
#[derive(Debug)]
pub enum Sharable {
    /// Of the host.
    Host(Mapping),
    /// Of a GPU.
    Cuda(SharedMemory),
    /// Somebody else's.
    Foreign(Foreign),
}

impl Sharable {
    /// New memory, zeroed, at least one byte.
    ///
    /// # Errors
    /// If there is none, or it cannot be shared.
    pub fn create(machine: &Machine, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1);
        Ok(match machine {
            Machine::Host => Sharable::Host(Mapping::create(bytes)?),
            Machine::Cuda(context) => Sharable::Cuda(SharedMemory::create(context, bytes)?),
        })
    }

    /// Memory that another rank created and passed on.
    pub(super) fn import(machine: &Machine, fd: OwnedFd, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1);
        Ok(match machine {
            Machine::Host => Sharable::Host(Mapping::map(fd, bytes)?),
            Machine::Cuda(context) => Sharable::Cuda(SharedMemory::import(context, fd.as_fd(), bytes)?),
        })
    }

    /// A descriptor by which another rank maps it.
    pub(super) fn export(&self) -> Result<OwnedFd> {
        match self {
            Sharable::Host(mapping) => mapping
                .fd()
                .try_clone_to_owned()
                .map_err(|source| Error::System { what: "sharing memory".into(), source }),
            Sharable::Cuda(memory) => Ok(memory.export_fd()?),
            Sharable::Foreign(_) => {
                Err(Error::Misuse { what: "memory of others has no descriptor here".into() })
            }
        }
    }

    /// Address of the first byte, as kernels of this rank see it.
    pub fn address(&self) -> u64 {
        match self {
            Sharable::Host(mapping) => mapping.address(),
            Sharable::Cuda(memory) => memory.ptr().as_u64(),
            Sharable::Foreign(memory) => memory.address(),
        }
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Sharable::Host(mapping) => mapping.bytes(),
            Sharable::Cuda(memory) => memory.bytes(),
            Sharable::Foreign(memory) => memory.bytes(),
        }
    }

    /// The whole of it, to be registered.
    pub fn allocation(&self) -> Allocation<'_> {
        let file = match self {
            Sharable::Host(mapping) => Some(mapping.fd()),
            Sharable::Cuda(_) | Sharable::Foreign(_) => None,
        };
        Allocation { base: self.address(), bytes: self.bytes() as u64, file }
    }

    /// Zeroes it. No kernel may be using it.
    ///
    /// # Errors
    /// If the GPU refuses; of memory of others.
    pub fn clear(&self) -> Result<()> {
        match self {
            // SAFETY: this rank's live mapping of so many bytes; for races see the contract above: bytes that a kernel would read are
            // its own to lose.
            Sharable::Host(mapping) => unsafe {
                (mapping.address() as *mut u8).write_bytes(0, mapping.bytes());
            },
            Sharable::Cuda(memory) => memory.fill(0)?,
            Sharable::Foreign(_) => {
                return Err(Error::Misuse { what: "memory of others is filled by a buffer of it".into() });
            }
        }
        Ok(())
    }
}
