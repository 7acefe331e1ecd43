//! How windows and peers become arguments of a launch.

use super::{HostWindow, WindowMemory};
use crate::kernel::{Binder, Handle};
use crate::{PeersError, Result};
use fusewire_device::window::{AllMapped, DevicePeers, DeviceWindow, LinkKind, Links, NoRdma};
use fusewire_transports::MultiPeerTransport;
use fusewire_transports::mixed::{AllRdma, Mixed, QueuePairs};
use fusewire_transports::peers::{Table, Topology};
use std::sync::{Arc, PoisonError};

/// Links as the host makes them. Sealed by [`Links`] being unsafe to implement; there is one for each of its types.
pub trait HostLinks: Links {
    /// What crosses for the adapter, whose endpoints are at this address (0 without).
    fn adapter(endpoints: u64) -> Self::Adapter;
}

impl HostLinks for AllMapped {
    fn adapter(_: u64) -> NoRdma {
        NoRdma
    }
}

impl HostLinks for AllRdma {
    fn adapter(peers: u64) -> QueuePairs {
        QueuePairs { peers }
    }
}

impl HostLinks for Mixed {
    fn adapter(peers: u64) -> QueuePairs {
        QueuePairs { peers }
    }
}

/// That every peer's link is of a kind that the window's type admits.
fn admitted<L: Links>(topology: &Topology) -> Result<(), PeersError> {
    if let (false, Some(peer)) = (L::MAPPED, topology.mapped_peers().first()) {
        let what = format!(
            "rank {peer} is reached by mapped memory, but the kernel takes `DeviceWindow<AllRdma>`: take `DeviceWindow<Mixed>`, or turn mapped memory off"
        );
        return Err(PeersError::Configuration { what });
    }
    let far = |rank: &usize| topology.kind(*rank) == Some(LinkKind::Rdma);
    match topology.rdma_peers().into_iter().find(far) {
        Some(peer) if !L::RDMA => Err(PeersError::NotMapped { peer }),
        _ => Ok(()),
    }
}

impl HostWindow {
    /// The window as it crosses to kernels whose peers' links are `L`; launches make it themselves.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`]; [`PeersError::NotMapped`] or [`PeersError::Configuration`] if a peer's link is not among `L`'s.
    pub fn device_window<L: HostLinks>(&self) -> Result<DeviceWindow<L>> {
        self.memory.device()
    }
}

impl WindowMemory {
    fn device<L: HostLinks>(&self) -> Result<DeviceWindow<L>> {
        let exchanged = self.exchanged("the device half of a `HostWindow`")?;
        admitted::<L>(self.peers.topology())?;
        let rank = self.peers.world().rank();
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let (sources, sources_len) =
            sources.tables.last().map_or((0, 0), |(t, len)| (Table::address(t), *len));
        Ok(DeviceWindow {
            layout: self.layout,
            rank: rank as u32,
            data_key: exchanged.data_key,
            peers: exchanged.peers.address(),
            epochs: self.epochs.address(),
            data: self.data.as_ref().map_or(0, |(m, _)| m.address()),
            data_bytes: exchanged.data_bytes[rank],
            sources,
            sources_len,
            adapter: L::adapter(self.peers.endpoints()),
        })
    }
}

impl<L: HostLinks> Handle for DeviceWindow<L> {
    type Owner<'a> = &'a HostWindow;

    fn bind(window: &HostWindow, name: &'static str, binder: &mut Binder) -> Result<Self> {
        let memory = &window.memory;
        binder.hold(name, &memory.peers, Arc::clone(memory) as _)?;
        binder.use_memory(&memory.inbox);
        if let Some((data, _)) = &memory.data {
            binder.use_memory(data);
        }
        let sources = memory.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.memory.iter().for_each(|(_, memory)| binder.use_memory(memory));
        drop(sources);
        memory.device()
    }
}

impl Handle for DevicePeers {
    type Owner<'a> = &'a MultiPeerTransport;

    fn bind(peers: &MultiPeerTransport, name: &'static str, binder: &mut Binder) -> Result<Self> {
        let handle = peers.device_handle()?;
        let held = peers.shared();
        binder.hold(name, &held, Arc::new(held.clone()))?;
        Ok(handle)
    }
}
