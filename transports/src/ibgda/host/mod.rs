//! Host half: a region of registered memory and queue pairs to every rank, over an adapter.

mod memory;
mod options;
mod queues;

pub use options::IbgdaOptions;

use super::{IbgdaOps, IbgdaPeer, LocalBuffer, RemoteBuffer, region_bytes};
use crate::host::{Board, Error, Link, Machine, Region, Result, Transport, Words, machine};
use fusewire_device::mapped::Layout;
use fusewire_driver::Context;
use fusewire_nic::emulated::Behaviour;
use fusewire_nic::{Address, Emulated, Nic, Remote, Share};
use fusewire_world::World;
use memory::{Reachable, Registered};
use queues::Queues;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long `renew` waits for what is in flight, beyond the adapter's own retries.
const DRAIN: Duration = Duration::from_secs(10);

/// How long a rank that reports a fault waits for its peers to have been told.
const TELLING: Duration = Duration::from_millis(500);

/// GPU-initiated InfiniBand: kernels post work queue entries to an adapter. Ranks are threads or processes.
pub struct Ibgda {
    link: Arc<Link>,
    ops: IbgdaOps,
    peers: Vec<IbgdaPeer>,
    nic: Arc<dyn Nic>,
}

/// What every rank tells every rank.
#[derive(Clone, Serialize, Deserialize)]
struct Card {
    /// Addresses of its queue pairs, by peer.
    queues: Vec<Vec<Address>>,
    region: Remote,
    files: Files,
    error: Option<String>,
}

/// Which files come with it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Files {
    port: bool,
    region: bool,
}

/// What one rank has before it knows of the others.
struct Own {
    queues: Queues,
    memory: Registered,
    share: Share,
    port: Option<OwnedFd>,
}

impl Ibgda {
    /// Makes the transport on CPU threads, over an emulated adapter of this rank's own. Collective: all ranks call it, with equal
    /// options.
    ///
    /// # Errors
    /// As for [`Ibgda::rendezvous_with`].
    pub fn emulated(world: &World, options: impl Into<IbgdaOptions>) -> Result<Ibgda> {
        let behaviour = Behaviour { seed: world.rank() as u64, ..Behaviour::default() };
        let nic: Arc<dyn Nic> = Arc::new(Emulated::new(behaviour)?);
        Self::rendezvous_with(world, nic, None, options)
    }

    /// Makes the transport on a GPU, over an emulated adapter of this rank's own: queues and region are in page-locked host memory,
    /// and a CPU thread moves the bytes. Collective: all ranks call it, with equal options.
    ///
    /// # Errors
    /// As for [`Ibgda::rendezvous_with`].
    pub fn emulated_on(world: &World, context: &Context, options: impl Into<IbgdaOptions>) -> Result<Ibgda> {
        let behaviour = Behaviour { seed: world.rank() as u64, ..Behaviour::default() };
        let nic: Arc<dyn Nic> = Arc::new(Emulated::new(behaviour)?);
        Self::rendezvous_with(world, nic, Some(context), options)
    }

    /// Makes the transport over an adapter of the caller's choice, for kernels on a GPU or on CPU threads. Collective: all ranks call
    /// it, with equal options and adapters of one kind.
    ///
    /// # Errors
    /// [`Error::Misuse`] for options that cannot be and ranks that cannot take part (the error names the first and says why);
    /// [`Error::World`] when options differ over ranks or a rank is missing.
    pub fn rendezvous_with(
        world: &World,
        nic: Arc<dyn Nic>,
        context: Option<&Context>,
        options: impl Into<IbgdaOptions>,
    ) -> Result<Ibgda> {
        Self::named("Ibgda", world, nic, context, options.into())
    }

    /// As [`Ibgda::rendezvous_with`], by another name in faults.
    pub(crate) fn named(
        name: &'static str,
        world: &World,
        nic: Arc<dyn Nic>,
        context: Option<&Context>,
        mut options: IbgdaOptions,
    ) -> Result<Ibgda> {
        options.check()?;
        (options.transport.ll128_channels, options.transport.ll_channels) = (0, 0);
        let layout = options.transport.layout(world.size())?;
        crate::host::agree(world, "ibgda rendezvous", &layout)?;
        world.agree(
            "ibgda rendezvous",
            &[
                ("queue pairs", options.queue_pairs.to_string()),
                ("entries of a queue", options.depth.to_string()),
            ],
        )?;
        let machine = machine(world, context)?;
        // Every rank learns of every rank's queues, or of why it has none: nobody is left waiting.
        let own = Own::new(world, &nic, &machine, &layout, &options);
        let cards: Vec<Card> = world.all_gather_as(&Own::card(&own))?;
        let own = own?;
        if let Some((rank, why)) = cards.iter().enumerate().find_map(|(r, c)| Some((r, c.error.as_ref()?))) {
            return Err(Error::Misuse { what: format!("rank {rank} cannot take part: {why}") });
        }
        let page = Board::page()?;
        let mut passed: Vec<BorrowedFd<'_>> = vec![page.fd()];
        passed.extend(own.port.as_ref().map(AsFd::as_fd));
        passed.extend(own.share.file.as_ref().map(AsFd::as_fd));
        let files = world.exchange_fds(&passed)?;
        drop(passed);
        let (me, mut pages) = (world.rank(), Vec::with_capacity(files.len()));
        let connect = || -> Result<()> {
            for (rank, (theirs, card)) in files.into_iter().zip(&cards).enumerate() {
                let mut theirs = theirs.into_iter();
                pages.push(theirs.next());
                if rank == me {
                    continue;
                }
                let mut next = |there: bool| if there { theirs.next() } else { None };
                nic.admit_port(rank, next(card.files.port))?;
                nic.admit(rank, Share { remote: card.region, file: next(card.files.region) })?;
            }
            let theirs: Vec<Vec<Address>> =
                cards.iter().map(|c| c.queues.get(me).cloned().unwrap_or_default()).collect();
            own.queues.connect(me, &theirs)
        };
        let connected = connect();
        let verdicts: Vec<Option<String>> =
            world.all_gather_as(&connected.as_ref().err().map(ToString::to_string))?;
        connected?;
        if let Some((rank, why)) = verdicts.into_iter().enumerate().find_map(|(r, v)| Some((r, v?))) {
            return Err(Error::Misuse { what: format!("rank {rank} could not connect: {why}") });
        }
        let regions: Vec<RemoteBuffer> =
            cards.iter().map(|c| RemoteBuffer::new(c.region.addr, c.region.rkey)).collect();
        let (table, peers, peers_at) = own.queues.tables(&machine, &regions)?;
        let ops = IbgdaOps {
            layout,
            own: LocalBuffer::new(own.memory.region.addr, own.memory.region.lkey),
            peers: peers_at,
            rank: me as u32,
            reserved: 0,
        };
        let weak = Arc::downgrade(&nic);
        world.on_lost(move |rank, _why| {
            if let Some(nic) = weak.upgrade() {
                nic.lost(rank);
            }
        });
        let region = IbgdaRegion { queues: own.queues, table, memory: own.memory, layout };
        let board = Board::new(me, page, pages)?;
        let link = Link::new(name, world, options.transport, layout, machine, board, Box::new(region))?;
        world.barrier()?;
        Ok(Ibgda { link, ops, peers, nic })
    }

    /// The adapter.
    pub fn nic(&self) -> &Arc<dyn Nic> {
        &self.nic
    }

    /// A rank as kernels see it: its queue pairs. This rank's own lead back to itself.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no such rank.
    pub fn peer(&self, rank: usize) -> Result<IbgdaPeer> {
        let ranks = self.peers.len();
        self.peers
            .get(rank)
            .copied()
            .ok_or_else(|| Error::Misuse { what: format!("rank {rank} of {ranks}: ranks count from 0") })
    }

    /// Zeroed memory that kernels, the CPU and the adapter reach, registered for this rank and its peers.
    ///
    /// # Errors
    /// If the system or the adapter refuses.
    pub fn allocate(&self, bytes: usize) -> Result<Memory> {
        if bytes == 0 {
            return Err(Error::Misuse { what: "registered memory must have at least 1 byte".into() });
        }
        let memory = Registered::new(&self.nic, Reachable::new(self.link.machine(), bytes as u64)?)?;
        Ok(Memory { memory, _link: Arc::clone(&self.link) })
    }

    /// Tells every rank of one region of each, and gives theirs: by rank, this rank's own included. Collective.
    ///
    /// # Errors
    /// If a rank is missing, or has memory that an adapter here cannot reach.
    pub fn exchange(&self, region: &fusewire_nic::Region) -> Result<Vec<RemoteBuffer>> {
        let world = self.link.world();
        let share = self.nic.share(region);
        let told = match &share {
            Ok(share) => Ok((share.remote, share.file.is_some())),
            Err(error) => Err(error.to_string()),
        };
        let all: Vec<std::result::Result<(Remote, bool), String>> = world.all_gather_as(&told)?;
        let share = share?;
        let mut remotes = Vec::with_capacity(all.len());
        for (rank, told) in all.into_iter().enumerate() {
            remotes.push(told.map_err(|why| Error::Misuse {
                what: format!("rank {rank} has no region to exchange: {why}"),
            })?);
        }
        let passed: Vec<BorrowedFd<'_>> = share.file.iter().map(AsFd::as_fd).collect();
        let files = world.exchange_fds(&passed)?;
        for (rank, ((remote, there), theirs)) in remotes.iter().zip(files).enumerate() {
            if rank != world.rank() {
                let file = theirs.into_iter().next().filter(|_| *there);
                self.nic.admit(rank, Share { remote: *remote, file })?;
            }
        }
        world.barrier()?;
        Ok(remotes.iter().map(|(remote, _)| RemoteBuffer::new(remote.addr, remote.rkey)).collect())
    }
}

impl Own {
    fn new(
        world: &World,
        nic: &Arc<dyn Nic>,
        machine: &Machine,
        layout: &Layout,
        options: &IbgdaOptions,
    ) -> Result<Own> {
        let queues = Queues::new(nic, machine, world.size(), options)?;
        let memory = Registered::new(nic, Reachable::new(machine, region_bytes(layout))?)?;
        let (share, port) = (nic.share(&memory.region)?, nic.port()?);
        Ok(Own { queues, memory, share, port })
    }

    fn card(own: &Result<Own>) -> Card {
        let none = Remote { addr: 0, bytes: 0, rkey: 0, process: 0, host: 0, offset: 0 };
        let mut card = Card {
            queues: Vec::new(),
            region: none,
            files: Files { port: false, region: false },
            error: None,
        };
        match own.as_ref().map(|own| (own, own.queues.addresses())) {
            Ok((own, Ok(queues))) => {
                card.queues = queues;
                card.region = own.share.remote;
                card.files = Files { port: own.port.is_some(), region: own.share.file.is_some() };
            }
            Ok((_, Err(error))) => card.error = Some(error.to_string()),
            Err(error) => card.error = Some(error.to_string()),
        }
        card
    }
}

// SAFETY: region and queues belong to the link.
unsafe impl Transport for Ibgda {
    type Ops = IbgdaOps;
    const NAME: &'static str = "Ibgda";

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    unsafe fn ops(&self) -> IbgdaOps {
        self.ops
    }
}

impl std::fmt::Debug for Ibgda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} over {}", self.link, self.nic.name())
    }
}

/// Registered memory of this rank. Taken back from the adapter when dropped: before that, every rank is to be done with it.
#[derive(Debug)]
pub struct Memory {
    memory: Registered,
    /// The memory of the transport's queues outlives this.
    _link: Arc<Link>,
}

impl Memory {
    /// The region, to be exchanged.
    pub fn region(&self) -> &fusewire_nic::Region {
        &self.memory.region
    }

    /// The memory for kernels of this rank, in entries and by address.
    pub fn local(&self) -> LocalBuffer {
        LocalBuffer::new(self.memory.region.addr, self.memory.region.lkey)
    }

    /// Address for the CPU.
    pub fn host(&self) -> *mut u8 {
        self.memory.memory.host().as_ptr()
    }

    /// Bytes, rounded up to a page.
    pub fn bytes(&self) -> usize {
        self.memory.memory.bytes() as usize
    }
}

/// What a link holds: in the order in which it goes.
struct IbgdaRegion {
    queues: Queues,
    table: Words,
    memory: Registered,
    layout: Layout,
}

impl IbgdaRegion {
    fn abort(&self) -> &AtomicU64 {
        // SAFETY: the first word of this rank's live region, aligned, accessed by atomics alone.
        unsafe { AtomicU64::from_ptr(self.memory.memory.host().as_ptr().cast()) }
    }
}

// SAFETY: memory and queues that the value owns, of the layout that `rendezvous` agreed.
unsafe impl Region for IbgdaRegion {
    fn abort_word(&self) -> Result<u64> {
        Ok(self.abort().load(Ordering::Acquire))
    }

    fn raise_abort(&self, code: u64) -> Result<()> {
        let _ = self.abort().compare_exchange(0, code, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    fn quiesce(&self) -> Result<()> {
        self.queues.drain(DRAIN)
    }

    fn pass_on(&self) {
        let _ = self.queues.drain(TELLING);
    }

    unsafe fn clear(&self) -> Result<()> {
        // SAFETY: this rank's live region; `renew` holds all ranks between two barriers with no kernel running and nothing in flight.
        unsafe { self.memory.memory.host().write_bytes(0, self.layout.control_bytes() as usize) };
        self.queues.reset()
    }

    fn own_address(&self) -> u64 {
        self.memory.memory.addr()
    }

    fn table_address(&self) -> u64 {
        self.table.addr()
    }
}
