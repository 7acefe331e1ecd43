//! Host half: memory, registrations, queue pairs, the proxy.

use super::HostIbOps;
use super::memory::Memory;
use super::proxy::{Engine, Peer, Place, Proxy};
use crate::host::{Board, Error, Link, Options, Region, Result, Transport, machine};
use crate::rdma::{Access, Adapter, Fabric, Pair, PairOptions};
use fusewire_device::wait::AbortRecord;
use fusewire_driver::Context;
use fusewire_world::World;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How a [`HostIb`] is made, beside its geometry.
#[derive(Clone, Debug)]
pub struct HostIbOptions {
    /// Which adapter.
    pub fabric: Fabric,
    /// The GPU whose kernels use the transport; without one they are CPU threads.
    pub context: Option<Context>,
    /// Commands that kernels may be ahead of the proxy; a power of two from 16 to 65536.
    pub commands: u32,
}

impl Default for HostIbOptions {
    /// A real adapter, CPU threads, 1024 commands.
    fn default() -> Self {
        HostIbOptions { fabric: Fabric::Verbs, context: None, commands: 1024 }
    }
}

impl HostIbOptions {
    /// Chooses the adapter.
    #[must_use]
    pub fn fabric(mut self, fabric: Fabric) -> Self {
        self.fabric = fabric;
        self
    }

    /// Kernels run on this GPU.
    #[must_use]
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// Sets the length of the command ring.
    #[must_use]
    pub fn commands(mut self, commands: u32) -> Self {
        self.commands = commands;
        self
    }
}

/// Requests under way to one peer.
const DEPTH: u32 = 256;

/// How long peers may take to be told of a fault, before this rank reports it all the same.
const TELLING: Duration = Duration::from_secs(1);

/// How long what is under way may take to end before a transport begins anew.
const DRAIN: Duration = Duration::from_secs(3);

/// InfiniBand (or RoCE) by way of a proxy thread: kernels on a GPU or on CPU threads write commands, the proxy posts verbs. Ranks are
/// anywhere.
#[derive(Debug)]
pub struct HostIb {
    link: Arc<Link>,
    ops: HostIbOps,
}

/// What a rank tells the others.
#[derive(Clone, Serialize, Deserialize)]
struct Card {
    error: Option<String>,
    start: u64,
    rkey: u32,
    endpoints: Vec<Vec<u8>>,
}

impl HostIb {
    /// Makes the transport for kernels on CPU threads, over a real adapter. Collective: all ranks call it, with equal options.
    ///
    /// # Errors
    /// As for [`HostIb::rendezvous_with`].
    pub fn rendezvous(world: &World, options: impl Into<Options>) -> Result<HostIb> {
        Self::rendezvous_with(world, options, &HostIbOptions::default())
    }

    /// Makes the transport. Collective. `options.ll128_channels` does not count: lines need memory that kernels can store to.
    ///
    /// # Errors
    /// [`Error::Rdma`] where there is no adapter, which the error says with what to do, and [`Error::Misuse`] with the reason on the
    /// other ranks; [`Error::Misuse`] for options that cannot be; [`Error::World`] when options differ over ranks or a rank is
    /// missing; [`Error::Cuda`] when the driver refuses.
    pub fn rendezvous_with(
        world: &World,
        options: impl Into<Options>,
        how: &HostIbOptions,
    ) -> Result<HostIb> {
        Self::meet(world, options.into(), how, |place| place)
    }

    /// Makes the transport; until it is renewed, peers' memory is where `seen` says.
    pub(super) fn meet(
        world: &World,
        options: Options,
        how: &HostIbOptions,
        seen: fn(Place) -> Place,
    ) -> Result<HostIb> {
        let options = options.ll128_channels(0).ll_channels(0);
        let layout = options.layout(world.size())?;
        if !how.commands.is_power_of_two() || !(16..=65536).contains(&how.commands) {
            let what = format!("{} commands; a ring has a power of two from 16 to 65536", how.commands);
            return Err(Error::Misuse { what });
        }
        crate::host::agree(world, "host_ib rendezvous", &layout)?;
        let (rank, deadline) = (world.rank(), options.deadline);
        let machine = machine(world, how.context.as_ref())?;
        // Every rank learns of every rank's adapter, or of why it has none: nobody is left waiting.
        let open = || -> Result<(Arc<Memory>, Arc<dyn Adapter>, Engine)> {
            let adapter = how.fabric.open(world.local_rank())?;
            let memory = Arc::new(Memory::new(&machine, layout, how.commands)?);
            let (region, local) = (&memory.region, &memory.local);
            let bytes = Memory::region_bytes(&layout) as usize;
            // SAFETY: the pages live as long as `memory`, which the engine holds beside the registrations and drops after them;
            // accesses are ordered by the protocol of channels and signals.
            let registrations = unsafe {
                (
                    adapter.register(region.host(), bytes, Access::ALL)?,
                    adapter.register(local.host(), local.bytes(), Access::LOCAL)?,
                )
            };
            let (region, local) = registrations;
            let engine = Engine::new(Arc::clone(&memory), region, local, rank, deadline);
            Ok((memory, adapter, engine))
        };
        let opened = open();
        let error = opened.as_ref().err().map(ToString::to_string);
        let errors: Vec<Option<String>> = world.all_gather_as(&error)?;
        let (memory, adapter, mut engine) = opened?;
        if let Some((rank, why)) = errors.iter().enumerate().find_map(|(r, e)| Some((r, e.as_ref()?))) {
            return Err(Error::Misuse { what: format!("rank {rank} cannot use `HostIb`: {why}") });
        }
        let mut peers = connect(world, &*adapter, engine.region())?;
        peers.iter_mut().flatten().for_each(|peer| peer.region = seen(peer.region));
        engine.connect(peers);
        let page = Board::page()?;
        let fds = world.exchange_fds(&[page.fd()])?;
        let pages = fds.into_iter().map(|fds| fds.into_iter().next()).collect();
        let board = Board::new(rank, page, pages)?;
        let proxy = Proxy::start(engine)
            .map_err(|source| Error::System { what: "starting the proxy's thread".into(), source })?;
        let ops = memory.ops(rank as u32, deadline.as_nanos().min(u128::from(u64::MAX)) as u64);
        let region = HostIbRegion { proxy, memory, adapter, world: world.clone() };
        let link = Link::new("HostIb", world, options, layout, machine, board, Box::new(region))?;
        world.barrier()?;
        Ok(HostIb { link, ops })
    }
}

/// Connects a queue pair to every peer. Collective; every rank fails if one does.
fn connect(world: &World, adapter: &dyn Adapter, own: Place) -> Result<Vec<Option<Peer>>> {
    let (me, size) = (world.rank(), world.size());
    let options = PairOptions { send_depth: DEPTH, receive_depth: 1, ..PairOptions::default() };
    let mut pairs: Vec<Option<Box<dyn Pair>>> = Vec::with_capacity(size);
    let mut error = None;
    for rank in 0..size {
        let wanted = rank != me && error.is_none();
        pairs.push(if wanted { adapter.pair(&options).map_err(|e| error = Some(e)).ok() } else { None });
    }
    let endpoints = pairs.iter().map(|p| p.as_ref().map_or(Vec::new(), |p| p.endpoint())).collect();
    let card =
        Card { error: error.as_ref().map(ToString::to_string), start: own.start, rkey: own.rkey, endpoints };
    let cards: Vec<Card> = world.all_gather_as(&card)?;
    let told = cards.iter().enumerate().find_map(|(r, c)| Some((r, c.error.clone()?)));
    if error.is_none() && told.is_none() {
        for (pair, card) in pairs.iter_mut().zip(&cards) {
            let endpoint = card.endpoints.get(me).map(Vec::as_slice).unwrap_or_default();
            if let Some(Err(why)) = pair.as_mut().map(|pair| pair.connect(endpoint)) {
                error.get_or_insert(why);
            }
        }
    }
    let verdicts: Vec<Option<String>> = world.all_gather_as(&error.as_ref().map(ToString::to_string))?;
    if let Some(error) = error {
        return Err(error.into());
    }
    let told = told.or_else(|| verdicts.into_iter().enumerate().find_map(|(r, e)| Some((r, e?))));
    if let Some((rank, why)) = told {
        return Err(Error::Misuse { what: format!("rank {rank} cannot connect: {why}") });
    }
    let peer = |(pair, card): (Option<Box<dyn Pair>>, Card)| {
        Some(Peer { pair: pair?, region: Place { start: card.start, rkey: card.rkey } })
    };
    Ok(pairs.into_iter().zip(cards).map(peer).collect())
}

// SAFETY: region and rings belong to the link.
unsafe impl Transport for HostIb {
    type Ops = HostIbOps;
    const NAME: &'static str = "HostIb";

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    unsafe fn ops(&self) -> HostIbOps {
        self.ops
    }
}

struct HostIbRegion {
    // Stopped before the memory goes.
    proxy: Proxy,
    memory: Arc<Memory>,
    adapter: Arc<dyn Adapter>,
    world: World,
}

// SAFETY: memory and rings that the value owns, of the layout that `rendezvous` agreed.
unsafe impl Region for HostIbRegion {
    /// Whoever is asked after this rank has reported a fault reports it too: the peers have been told when this returns.
    fn abort_word(&self) -> Result<u64> {
        self.proxy.engine().settle_faults(TELLING);
        self.memory.words.abort()
    }

    fn raise_abort(&self, code: u64) -> Result<()> {
        self.memory.words.claim(code).map(drop)
    }

    /// Lets what is under way end, on all ranks, before anything is cleared; connects anew where a queue pair was broken.
    unsafe fn clear(&self) -> Result<()> {
        let mut engine = self.proxy.engine();
        let sound = engine.drain(DRAIN);
        let all: Vec<bool> = self.world.all_gather_as(&sound)?;
        if all.contains(&false) {
            engine.connect(Vec::new());
            let peers = connect(&self.world, &*self.adapter, engine.region())?;
            engine.connect(peers);
        }
        engine.reset()
    }

    fn record(&self) -> Option<AbortRecord> {
        self.memory.filled_record()
    }

    fn record_address(&self) -> Option<u64> {
        Some(self.memory.record_for_kernels())
    }

    fn own_address(&self) -> u64 {
        self.memory.words.kernel()
    }

    /// Kernels reach no peer's region.
    fn table_address(&self) -> u64 {
        0
    }
}
