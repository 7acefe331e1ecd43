//! One object for all peers: who they are, how each is reached, and memory that they share.
//!
//! A [`MultiPeerTransport`] discovers how ranks reach each other, prefers memory that can be stored to (NVLink, shared memory of the
//! host) and has RDMA to every peer where there is an adapter. It registers buffers and exchanges keys and mappings; windows stand on
//! it. Kernels run on whatever transport it was made of: that one carries abort words and deadlines.
//!
//! Source for what there is: torchcomms' `MultiPeerTransport`.

mod error;
mod ibgda;
mod mapped;
mod memory;
mod registry;
mod topology;

pub use crate::host::Table;
pub use error::PeersError;
pub use ibgda::IbgdaAdapter;
pub use mapped::MappedPeers;
pub use memory::Sharable;
pub use registry::{Allocation, MemoryKeys, Registrar, Registration};
pub(crate) use topology::native_atomics;
pub use topology::{NO_ATOMICS, PeersConfig, Topology};

use crate::host::{Error, Machine, Result, Transport};
use fusewire_device::window::{DevicePeers, LinkKind, PeerSlot};
use fusewire_world::World;
use registry::Cache;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use topology::Facts;

/// An adapter that reaches every peer.
///
/// # Safety
/// Endpoints are of queues that live as long as this value, where the kernels of its machine reach them.
pub unsafe trait Adapter: Registrar {
    /// What people call it.
    fn name(&self) -> String;
    /// Connects to these peers, which connect to this rank. Collective.
    ///
    /// # Errors
    /// If a connection cannot be made.
    fn connect(&self, world: &World, peers: &[usize]) -> Result<()>;
    /// Address, for kernels, of a table of the peers' endpoints in the order of [`Adapter::connect`].
    fn endpoints(&self) -> u64;
    /// Makes a region reachable by the peers' adapters, and theirs by this one. Collective.
    ///
    /// # Errors
    /// If one cannot be reached.
    fn share(&self, keys: MemoryKeys) -> Result<()>;
    /// Waits until nothing that this rank's kernels posted is under way any more.
    ///
    /// # Errors
    /// If something still is.
    fn quiesce(&self) -> Result<()>;
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Fresh,
    Exchanged,
    Closed,
}

/// All peers of a rank.
pub struct MultiPeerTransport {
    inner: Arc<Inner>,
}

/// What windows hold.
pub(crate) struct Inner {
    world: World,
    machine: Machine,
    topology: Topology,
    adapter: Option<(Arc<dyn Adapter>, Arc<Cache>)>,
    table: OnceLock<Table<PeerSlot>>,
    stage: Mutex<Stage>,
}

/// Registered memory of a peer: where, how much, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Address, as the peer registered it.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Key.
    pub key: u32,
}

impl MultiPeerTransport {
    /// Finds out how ranks reach each other; kernels will run on `transport`. Collective, with equal configurations.
    ///
    /// # Errors
    /// [`PeersError::Unreachable`] on every rank if two cannot reach each other; [`PeersError::Configuration`]; ranks that do not come.
    pub fn new(transport: &impl Transport, config: &PeersConfig) -> Result<Self> {
        Self::with_adapter(transport, config, None)
    }

    /// As [`MultiPeerTransport::new`], with an adapter of this rank.
    ///
    /// # Errors
    /// As for [`MultiPeerTransport::new`].
    pub fn with_adapter(
        transport: &impl Transport,
        config: &PeersConfig,
        adapter: Option<Arc<dyn Adapter>>,
    ) -> Result<Self> {
        let link = transport.link();
        let (world, machine) = (link.world(), link.machine());
        world.agree(
            "peers",
            &[
                ("mapped memory", config.mapped.to_string()),
                ("adapters", config.rdma.to_string()),
                ("native atomics", config.atomics.to_string()),
                ("domains", format!("{:?}", config.domains)),
            ],
        )?;
        let domains = config.domain_of(world.size())?;
        let adapter = adapter.filter(|_| config.rdma);
        let own = Facts::find(world, machine, config, adapter.as_ref().map(|a| a.name()));
        let facts = world.all_gather_as(&own)?;
        let topology = Topology::classify(world.rank(), &facts, &domains)?;
        let adapter = adapter.filter(|_| topology.has_rdma()).map(|adapter| {
            let registrar: Arc<dyn Registrar> = adapter.clone();
            (adapter, Cache::new(registrar))
        });
        let inner = Inner {
            world: world.clone(),
            machine: machine.clone(),
            topology,
            adapter,
            table: OnceLock::new(),
            stage: Mutex::new(Stage::Fresh),
        };
        Ok(MultiPeerTransport { inner: Arc::new(inner) })
    }

    /// Connects what needs connecting and makes what kernels see. Collective, once.
    ///
    /// # Errors
    /// [`PeersError::AlreadyExchanged`], [`PeersError::Closed`]; an adapter that cannot connect; ranks that do not come.
    pub fn exchange(&self) -> Result<()> {
        let inner = &self.inner;
        let mut stage = inner.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::Fresh => {}
            Stage::Exchanged => return Err(PeersError::AlreadyExchanged { what: "the transport" }.into()),
            Stage::Closed => return Err(PeersError::Closed { what: "`exchange`" }.into()),
        }
        let connected = match &inner.adapter {
            Some((adapter, _)) => adapter.connect(&inner.world, &inner.topology.rdma_peers()),
            None => Ok(()),
        };
        let table = connected.and_then(|()| Table::new(&inner.machine, slots(&inner.topology)));
        // Nobody goes on alone.
        let said = inner.world.all_gather_as(&table.as_ref().err().map(ToString::to_string))?;
        let table = table?;
        if let Some((rank, why)) = said.into_iter().enumerate().find_map(|(r, e)| Some((r, e?))) {
            return Err(Error::Misuse { what: format!("rank {rank} could not exchange: {why}") });
        }
        let _ = inner.table.set(table);
        *stage = Stage::Exchanged;
        Ok(())
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.inner.world.rank()
    }

    /// Ranks.
    pub fn world_size(&self) -> usize {
        self.inner.world.size()
    }

    /// How ranks are reached.
    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    /// How `rank` is reached when either way would do.
    ///
    /// # Errors
    /// [`PeersError::NoSuchRank`].
    pub fn link_kind(&self, rank: usize) -> Result<LinkKind, PeersError> {
        let world = self.world_size();
        self.inner.topology.kind(rank).ok_or(PeersError::NoSuchRank { rank, world })
    }

    /// Whether the memory of `rank` can be stored to.
    ///
    /// # Errors
    /// [`PeersError::NoSuchRank`].
    pub fn is_mapped(&self, rank: usize) -> Result<bool, PeersError> {
        Ok(self.link_kind(rank)? == LinkKind::Mapped)
    }

    /// Whether an adapter reaches `rank`: so too where its memory can be stored to.
    ///
    /// # Errors
    /// [`PeersError::NoSuchRank`].
    pub fn is_rdma(&self, rank: usize) -> Result<bool, PeersError> {
        Ok(self.link_kind(rank)? != LinkKind::Own && self.has_rdma())
    }

    /// Whether there are adapters.
    pub fn has_rdma(&self) -> bool {
        self.inner.topology.has_rdma()
    }

    /// The peers as kernels see them.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`], [`PeersError::Closed`].
    pub fn device_handle(&self) -> Result<DevicePeers<'_>> {
        let (ranks, reached, table) = self.device_parts()?;
        // SAFETY: the table has a slot for each rank, and lives unchanged as long as `self.inner`, hence as the borrow.
        Ok(unsafe { DevicePeers::new(ranks, reached, table) })
    }

    /// What [`DevicePeers::new`] takes.
    #[doc(hidden)]
    pub fn device_parts(&self) -> Result<([u32; 2], [u32; 2], u64)> {
        self.inner.ready("the device handle of a `MultiPeerTransport`")?;
        let (topology, table) = (&self.inner.topology, self.inner.table.get());
        let reached = [topology.mapped_peers(), topology.rdma_peers()].map(|peers| peers.len() as u32);
        let ranks = [self.rank() as u32, self.world_size() as u32];
        Ok((ranks, reached, table.map_or(0, Table::address)))
    }

    /// Registers `bytes` at `start`, which lie in `allocation`. Without an adapter there is nothing to do, and the registration has no
    /// keys. Not collective.
    ///
    /// # Errors
    /// [`PeersError::Foreign`] if they do not lie there; [`PeersError::Closed`]; an adapter that refuses.
    ///
    /// # Safety
    /// The allocation stays valid until the registration is dropped, on this rank and on peers that put there.
    pub unsafe fn register(
        &self,
        allocation: Allocation<'_>,
        start: u64,
        bytes: u64,
    ) -> Result<Registration> {
        // SAFETY: the caller's contract.
        unsafe { self.inner.register(allocation, start, bytes) }
    }

    /// Allocations that are registered with the adapter now.
    pub fn registered(&self) -> usize {
        self.inner.adapter.as_ref().map_or(0, |(_, cache)| cache.len())
    }

    /// Exchanges the keys of a registration: what peers put to. By rank; `None` for a rank without an adapter. Collective.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`], [`PeersError::Closed`]; ranks that do not come.
    pub fn exchange_registration(&self, own: &Registration) -> Result<Vec<Option<RemoteRegion>>> {
        self.inner.exchange_registration(own)
    }

    /// Maps the peers' memory: the address of each rank's, this rank's own included; `None` where it cannot be stored to. Collective.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`], [`PeersError::Closed`]; memory that cannot be mapped; ranks that do not come.
    pub fn exchange_mapped(&self, own: &Arc<Sharable>) -> Result<MappedPeers> {
        self.inner.exchange_mapped(own)
    }

    /// Closes the transport on every rank: no further exchange. What was exchanged stays until it is dropped. Collective.
    ///
    /// # Errors
    /// [`PeersError::Closed`]; ranks that do not come.
    pub fn close(&self) -> Result<()> {
        let mut stage = self.inner.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Closed {
            return Err(PeersError::Closed { what: "`close`" }.into());
        }
        *stage = Stage::Closed;
        Ok(self.inner.world.barrier()?)
    }

    /// What windows hold.
    pub fn shared(&self) -> PeersRef {
        PeersRef(Arc::clone(&self.inner))
    }
}

/// A part in a [`MultiPeerTransport`], which may outlive it: what windows hold.
#[derive(Clone)]
pub struct PeersRef(Arc<Inner>);

impl PeersRef {
    /// The world.
    pub fn world(&self) -> &World {
        &self.0.world
    }

    /// Where kernels run.
    pub fn machine(&self) -> &Machine {
        &self.0.machine
    }

    /// How ranks are reached.
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// Address of the adapter's endpoints; 0 without.
    pub fn endpoints(&self) -> u64 {
        self.0.adapter.as_ref().map_or(0, |(adapter, _)| adapter.endpoints())
    }

    /// That the transport is exchanged and not closed.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`], [`PeersError::Closed`], naming `what`.
    pub fn ready(&self, what: &'static str) -> Result<()> {
        self.0.ready(what)
    }

    /// Waits until nothing that this rank's kernels posted to an adapter is under way any more.
    ///
    /// # Errors
    /// If something still is.
    pub fn quiesce(&self) -> Result<()> {
        self.0.adapter.as_ref().map_or(Ok(()), |(adapter, _)| adapter.quiesce())
    }

    /// See [`MultiPeerTransport::register`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn register(
        &self,
        allocation: Allocation<'_>,
        start: u64,
        bytes: u64,
    ) -> Result<Registration> {
        // SAFETY: the caller's contract.
        unsafe { self.0.register(allocation, start, bytes) }
    }

    /// See [`MultiPeerTransport::exchange_registration`].
    ///
    /// # Errors
    /// As there.
    pub fn exchange_registration(&self, own: &Registration) -> Result<Vec<Option<RemoteRegion>>> {
        self.0.exchange_registration(own)
    }

    /// See [`MultiPeerTransport::exchange_mapped`].
    ///
    /// # Errors
    /// As there.
    pub fn exchange_mapped(&self, own: &Arc<Sharable>) -> Result<MappedPeers> {
        self.0.exchange_mapped(own)
    }
}

impl Inner {
    fn ready(&self, what: &'static str) -> Result<()> {
        match *self.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            Stage::Fresh => Err(PeersError::NotExchanged { what }.into()),
            Stage::Exchanged => Ok(()),
            Stage::Closed => Err(PeersError::Closed { what }.into()),
        }
    }

    /// # Safety
    /// As for [`MultiPeerTransport::register`].
    unsafe fn register(&self, allocation: Allocation<'_>, start: u64, bytes: u64) -> Result<Registration> {
        if *self.stage.lock().unwrap_or_else(PoisonError::into_inner) == Stage::Closed {
            return Err(PeersError::Closed { what: "`register`" }.into());
        }
        match &self.adapter {
            // SAFETY: the caller's contract.
            Some((_, cache)) => unsafe { cache.register(allocation, start, bytes) },
            None => Ok(Registration::unneeded(start, bytes)),
        }
    }

    fn exchange_registration(&self, own: &Registration) -> Result<Vec<Option<RemoteRegion>>> {
        self.ready("`exchange_registration`")?;
        if let (Some((adapter, _)), Some(keys)) = (&self.adapter, own.keys()) {
            adapter.share(keys)?;
        }
        let own = own.keys().map(|keys| (own.address(), own.bytes(), keys.remote));
        let all: Vec<Option<(u64, u64, u32)>> = self.world.all_gather_as(&own)?;
        let region = |(address, bytes, key)| RemoteRegion { address, bytes, key };
        Ok(all.into_iter().map(|one| one.map(region)).collect())
    }
}

/// The table that kernels read.
fn slots(topology: &Topology) -> Vec<PeerSlot> {
    let number = |list: &[usize], rank: usize| {
        list.iter().position(|r| *r == rank).map_or(PeerSlot::NONE, |index| index as u32)
    };
    let nth = |list: &[usize], index: usize| list.get(index).map_or(PeerSlot::NONE, |rank| *rank as u32);
    let (mapped, rdma) = (topology.mapped_peers(), topology.rdma_peers());
    let slot = |(rank, kind): (usize, &LinkKind)| PeerSlot {
        kind: *kind as u32,
        mapped: number(&mapped, rank),
        rdma: number(&rdma, rank),
        mapped_rank: nth(&mapped, rank),
        rdma_rank: nth(&rdma, rank),
    };
    topology.kinds.iter().enumerate().map(slot).collect()
}

impl fmt::Debug for MultiPeerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = (self.rank(), self.world_size());
        let (mapped, rdma) = (self.topology().mapped_peers(), self.topology().rdma_peers());
        write!(f, "rank {rank} of {size}: memory of {mapped:?}, adapter to {rdma:?}")
    }
}
