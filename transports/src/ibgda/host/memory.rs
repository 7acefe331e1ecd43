//! Memory that kernels, the CPU and an emulated adapter all reach.

use crate::host::{Machine, Mapping, Result};
use fusewire_driver::memory::RegisteredMemory;
use fusewire_nic::{Block, Nic, QueueSource, Region};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// A shared mapping; page-locked where kernels run on a GPU.
#[derive(Debug)]
pub(super) struct Reachable {
    registered: Option<RegisteredMemory>,
    mapping: Arc<Mapping>,
}

impl Reachable {
    pub fn new(machine: &Machine, bytes: u64) -> Result<Self> {
        let mapping = Arc::new(Mapping::create((bytes as usize).next_multiple_of(4096))?);
        let registered = match machine {
            Machine::Host => None,
            Machine::Cuda(context) => {
                let host = mapping.host();
                let owner = Arc::clone(&mapping);
                // SAFETY: the mapping lives as long as its owner, and is registered here only.
                Some(unsafe { RegisteredMemory::owned(context, host, mapping.bytes(), owner)? })
            }
        };
        Ok(Reachable { registered, mapping })
    }

    /// Address for kernels.
    pub fn addr(&self) -> u64 {
        self.registered.as_ref().map_or(self.mapping.address(), |r| r.device_ptr().as_u64())
    }

    /// Address for the CPU.
    pub fn host(&self) -> NonNull<u8> {
        self.mapping.host()
    }

    pub fn bytes(&self) -> u64 {
        self.mapping.bytes() as u64
    }

    /// As an adapter registers it.
    pub fn memory(&self) -> fusewire_nic::Memory<'_> {
        fusewire_nic::Memory {
            addr: self.addr(),
            bytes: self.bytes(),
            host: Some(self.host()),
            file: Some((self.mapping.fd(), 0)),
            dmabuf: None,
        }
    }
}

/// Such memory, registered with an adapter: taken back before it goes.
#[derive(Debug)]
pub(super) struct Registered {
    nic: Arc<dyn Nic>,
    pub region: Region,
    pub memory: Reachable,
}

impl Registered {
    pub fn new(nic: &Arc<dyn Nic>, memory: Reachable) -> Result<Self> {
        // SAFETY: the memory lives until `Drop` has taken the region back.
        let region = unsafe { nic.register(&memory.memory())? };
        Ok(Registered { nic: Arc::clone(nic), region, memory })
    }

    /// Named by addresses from 0 on.
    pub fn zero_based(nic: &Arc<dyn Nic>, memory: Reachable) -> Result<Self> {
        // SAFETY: the memory lives until `Drop` has taken the region back.
        let region = unsafe { nic.register_zero_based(&memory.memory())? };
        Ok(Registered { nic: Arc::clone(nic), region, memory })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A region whose key was taken back already is no reason to complain.
        let _ = self.nic.deregister(&self.region);
    }
}

/// Queues, cut from one stretch of memory.
#[derive(Debug)]
pub(super) struct QueueMemory {
    memory: Reachable,
    used: Mutex<u64>,
}

impl QueueMemory {
    pub fn new(machine: &Machine, bytes: u64) -> Result<Self> {
        Ok(QueueMemory { memory: Reachable::new(machine, bytes)?, used: Mutex::new(0) })
    }
}

// SAFETY: zeroed memory of its own, each part given once.
unsafe impl QueueSource for QueueMemory {
    fn take(&self, bytes: u64) -> fusewire_nic::Result<Block> {
        let mut used = self.used.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (start, bytes) = (*used, bytes.next_multiple_of(4096));
        if bytes > self.memory.bytes() - start {
            return Err(fusewire_nic::Error::Misuse {
                what: format!("{bytes} bytes for a queue, but {} are left", self.memory.bytes() - start),
            });
        }
        *used += bytes;
        // SAFETY: within the mapping.
        let host = unsafe { self.memory.host().add(start as usize) };
        Ok(Block { addr: self.memory.addr() + start, host: Some(host), bytes })
    }
}
