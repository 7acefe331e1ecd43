//! How windows and peers become arguments of a launch.

use super::{HostWindow, WindowMemory};
use crate::kernel::{Binder, Handle};
use crate::{PeersError, Result};
use fusewire_device::window::{AllMapped, DevicePeers, DeviceWindow, LinkKind, Links, NoRdma, WindowParts};
use fusewire_transports::MultiPeerTransport;
use fusewire_transports::mixed::{AllRdma, Mixed, QueuePairs};
use fusewire_transports::peers::{Table, Topology};
use std::sync::{Arc, PoisonError};

/// Links as the host makes them.
///
/// # Safety
/// The adapter that is made reaches the endpoints at that address, and nothing else.
pub unsafe trait HostLinks: Links {
    /// What crosses for the adapter, whose endpoints are at this address (0 without).
    fn adapter(endpoints: u64) -> Self::Adapter;
}

// SAFETY: no adapter.
unsafe impl HostLinks for AllMapped {
    fn adapter(_: u64) -> NoRdma {
        NoRdma
    }
}

// SAFETY: the table that it is given.
unsafe impl HostLinks for AllRdma {
    fn adapter(peers: u64) -> QueuePairs {
        QueuePairs { peers }
    }
}

// SAFETY: the table that it is given.
unsafe impl HostLinks for Mixed {
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
    /// What crosses to kernels whose peers' links are `L`: numbers and addresses. Launches make a [`DeviceWindow`] of it themselves.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`]; [`PeersError::NotMapped`] or [`PeersError::Configuration`] if a peer's link is not among `L`'s.
    pub fn device_window<L: HostLinks>(&self) -> Result<WindowParts<L>> {
        self.memory.device()
    }
}

impl WindowMemory {
    fn device<L: HostLinks>(&self) -> Result<WindowParts<L>> {
        let exchanged = self.exchanged("the device half of a `HostWindow`")?;
        admitted::<L>(self.peers.topology())?;
        let rank = self.peers.world().rank();
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let (sources, sources_len) =
            sources.tables.last().map_or((0, 0), |(t, len)| (Table::address(t), *len));
        Ok(WindowParts {
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

// SAFETY: the binder holds the window's memory and claims all that kernels reach through it.
unsafe impl<L: HostLinks> Handle for DeviceWindow<'static, L> {
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
        // SAFETY: made from live memory, which the binder holds; `device` has compared the links.
        Ok(unsafe { DeviceWindow::new(memory.device()?) })
    }
}

// SAFETY: the binder holds what the table belongs to.
unsafe impl Handle for DevicePeers<'static> {
    type Owner<'a> = &'a MultiPeerTransport;

    fn bind(peers: &MultiPeerTransport, name: &'static str, binder: &mut Binder) -> Result<Self> {
        let ([rank, world], reached, table) = peers.device_parts()?;
        let held = peers.shared();
        binder.hold(name, &held, Arc::new(held.clone()))?;
        // SAFETY: the table is of what is held.
        Ok(unsafe { DevicePeers::new([rank, world], reached, table) })
    }
}
