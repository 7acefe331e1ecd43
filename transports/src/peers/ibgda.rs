//! The adapter of an [`Ibgda`] transport, for windows.

use super::{Adapter, Allocation, MemoryKeys, Registrar, Table};
use crate::host::{Error, Link, Machine, Result, Transport};
use crate::ibgda::{Ibgda, IbgdaPeer};
use fusewire_nic::{Memory, Region};
use fusewire_world::World;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Reaches peers by the queue pairs of an [`Ibgda`] transport.
///
/// An emulated adapter moves bytes by the CPU, so it registers memory of the host alone.
pub struct IbgdaAdapter {
    ibgda: Arc<Ibgda>,
    regions: Mutex<HashMap<u32, Region>>,
    table: OnceLock<Table<IbgdaPeer>>,
}

impl IbgdaAdapter {
    /// Over this transport, whose world is that of the peers.
    pub fn new(ibgda: &Arc<Ibgda>) -> Arc<Self> {
        Arc::new(IbgdaAdapter { ibgda: Arc::clone(ibgda), regions: Mutex::default(), table: OnceLock::new() })
    }

    fn link(&self) -> &Link {
        self.ibgda.link()
    }

    fn regions(&self) -> MutexGuard<'_, HashMap<u32, Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the adapter's own keys.
unsafe impl Registrar for IbgdaAdapter {
    unsafe fn register(&self, allocation: Allocation<'_>) -> Result<MemoryKeys> {
        let on_host = matches!(self.link().machine(), Machine::Host);
        let memory = Memory {
            addr: allocation.base,
            bytes: allocation.bytes,
            host: if on_host { NonNull::new(allocation.base as *mut u8) } else { None },
            file: allocation.file.map(|file| (file, 0)),
            dmabuf: None,
        };
        // SAFETY: the caller's contract.
        let region = unsafe { self.ibgda.nic().register(&memory)? };
        self.regions().insert(region.rkey, region);
        Ok(MemoryKeys { local: region.lkey, remote: region.rkey })
    }

    fn deregister(&self, keys: MemoryKeys) {
        if let Some(region) = self.regions().remove(&keys.remote) {
            // A region that the adapter has lost already is no reason to complain.
            let _ = self.ibgda.nic().deregister(&region);
        }
    }
}

// SAFETY: endpoints of queues that the value owns.
unsafe impl Adapter for IbgdaAdapter {
    fn name(&self) -> String {
        self.ibgda.nic().name()
    }

    fn connect(&self, world: &World, peers: &[usize]) -> Result<()> {
        let own = self.link().world();
        if (own.rank(), own.size()) != (world.rank(), world.size()) {
            let what = format!(
                "the adapter is of rank {} of {}, the peers of rank {} of {}",
                own.rank(),
                own.size(),
                world.rank(),
                world.size()
            );
            return Err(Error::Misuse { what });
        }
        let table = peers.iter().map(|rank| self.ibgda.peer(*rank)).collect::<Result<Vec<IbgdaPeer>>>()?;
        let _ = self.table.set(Table::new(self.link().machine(), table)?);
        Ok(())
    }

    fn endpoints(&self) -> u64 {
        self.table.get().map_or(0, Table::address)
    }

    fn share(&self, keys: MemoryKeys) -> Result<()> {
        let region = self.regions().get(&keys.remote).copied();
        let region = region.ok_or_else(|| Error::Misuse { what: "a registration that is gone".into() })?;
        self.ibgda.exchange(&region).map(drop)
    }

    fn quiesce(&self) -> Result<()> {
        self.link().region().quiesce()
    }
}
