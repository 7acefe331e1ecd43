//! Windows: signals, barriers, counters and registered data over a [`MultiPeerTransport`].
//!
//! ```
//! use fusewire::prelude::*;
//!
//! /// Puts `message` into the next rank's buffer and waits for the previous rank's.
//! #[comm_kernel(transports(Shm))]
//! fn pass_on<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, message: &[u32]) -> Flow {
//!     let window = kernel.window(&window);
//!     // SAFETY: the next rank reads its buffer after the kernel alone.
//!     unsafe { window.put_signal(&Block, kernel.next(1), 0, message, 0, 1)? };
//!     window.wait_next_from(&Block, kernel.previous(1), 0, 1)
//! }
//!
//! fn rank(world: World) -> fusewire::Result<Vec<u32>> {
//!     let shm = Shm::rendezvous(&world, 1 << 20)?;
//!     let peers = MultiPeerTransport::new(&shm, &PeersConfig::default())?;
//!     peers.exchange()?;
//!     let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
//!     let inbox = device.shared_buffer::<u32>(4)?;
//!     let window = HostWindow::new(&peers, WindowConfig::default(), Some(&inbox))?;
//!     window.exchange()?;
//!     let message = device.buffer_from(&[world.rank() as u32; 4])?;
//!     pass_on::on(&shm)?.launch(&stream, 1, pass_on::Launch { window: &window, message: message.view() })?;
//!     inbox.read(&stream)
//! }
//!
//! fn main() -> fusewire::Result<()> {
//!     for (rank, got) in World::threads(3, rank)?.into_iter().enumerate() {
//!         assert_eq!(got?, [((rank + 2) % 3) as u32; 4]);
//!     }
//!     Ok(())
//! }
//! ```

mod build;
mod handle;

pub use handle::HostLinks;

use crate::buffer::Memory;
use crate::machine::on_stream;
use crate::parked::{drop_apart, drop_later};
use crate::{Buffer, Device, Error, PeersError, Result, Stream};
use build::Exchanged;
use fusewire_device::element::Element;
use fusewire_device::window::{LocalMemory, WindowLayout};
use fusewire_transports::MultiPeerTransport;
use fusewire_transports::host::Machine;
use fusewire_transports::peers::{PeersRef, Registration, Table, Topology};
use fusewire_world::Teardown;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most signals, barriers or counters of a window.
const MOST: u32 = 4096;

/// What a window has; equal on all ranks. 0 leaves a part out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Signals from each peer.
    pub signals: u32,
    /// Counters of operations to each peer.
    pub counters: u32,
    /// Barriers.
    pub barriers: u32,
}

impl Default for WindowConfig {
    /// 8 signals, 8 counters, 8 barriers.
    fn default() -> Self {
        WindowConfig { signals: 8, counters: 8, barriers: 8 }
    }
}

impl WindowConfig {
    /// Sets the signals from each peer.
    #[must_use]
    pub fn signals(mut self, signals: u32) -> Self {
        self.signals = signals;
        self
    }

    /// Sets the counters of operations to each peer.
    #[must_use]
    pub fn counters(mut self, counters: u32) -> Self {
        self.counters = counters;
        self
    }

    /// Sets the barriers.
    #[must_use]
    pub fn barriers(mut self, barriers: u32) -> Self {
        self.barriers = barriers;
        self
    }
}

/// The host half of a window: owns its memory. Dropping it waits for nothing; where peers are reached by adapters it waits for this rank's
/// kernels that use it, and until every rank has dropped it or is gone.
///
/// A launch takes `&HostWindow` where a kernel has a [`DeviceWindow`](fusewire_device::window::DeviceWindow). Graphs keep what they use.
pub struct HostWindow {
    memory: Arc<Kept>,
}

/// What launches hold: the last that goes lets go of the window.
pub(crate) struct Kept(Arc<WindowMemory>);

impl Deref for Kept {
    type Target = WindowMemory;

    fn deref(&self) -> &WindowMemory {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let memory = Arc::clone(&self.0);
        let foreign = memory.exchanged.get().is_some_and(Exchanged::has_foreign);
        match (memory.peers.topology().has_rdma(), memory.peers.machine()) {
            // The operation that held it last is not to wait for its own stream, nor the stream for peers.
            (true, _) if on_stream() => drop_apart(TearsDown(memory)),
            (true, _) => drop(TearsDown(memory)),
            // Its owner may free it when it goes: behind this rank's kernels, and behind the last rank that has it mapped.
            (false, Machine::Cuda(_)) if foreign => {
                drop_later(memory.inbox.uses().users(), Box::new(EndsApart(Some(memory))));
            }
            // Operations hold what they use.
            (false, Machine::Host) if foreign => drop_apart(TearsDown(memory)),
            (false, Machine::Host) => {}
            (false, Machine::Cuda(_)) => drop_later(memory.inbox.uses().users(), Box::new(memory)),
        }
    }
}

/// A window's memory, and what was exchanged about it.
pub(crate) struct WindowMemory {
    // What refers to memory goes before the memory.
    exchanged: OnceLock<Exchanged>,
    /// How all ranks name the window's end, once it was exchanged: before, no peer has its memory.
    teardown: Mutex<Option<Teardown>>,
    sources: Mutex<Sources>,
    peers: PeersRef,
    layout: WindowLayout,
    /// Where peers store signals and barriers; also hands the window from stream to stream.
    inbox: Arc<Memory>,
    /// Where adapters write them: nothing that a processor writes is in this allocation.
    adapter_inbox: Option<Arc<Memory>>,
    epochs: Arc<Memory>,
    /// Memory and bytes.
    data: Option<(Arc<Memory>, u64)>,
}

/// Registered memory that is not the window's own data.
#[derive(Default)]
struct Sources {
    memory: Vec<(Registration, Arc<Memory>)>,
    /// The newest last; captured launches may use the older ones.
    tables: Vec<(Table<LocalMemory>, u64)>,
}

impl HostWindow {
    /// Makes this rank's part, over a transport that was exchanged. `buffer` is what peers put to: from
    /// [`Device::shared_buffer`], of any length on each rank; all ranks have one or none has. Where no peer is reached by an adapter it may be any
    /// buffer that [`Buffer::into_symmetric`] takes, also of memory of others.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`], [`PeersError::Closed`], [`PeersError::Foreign`] for a buffer that peers cannot reach,
    /// [`PeersError::Configuration`]; too little memory.
    pub fn new<'b, T: Element>(
        peers: &MultiPeerTransport,
        config: WindowConfig,
        buffer: impl Into<Option<&'b Buffer<T>>>,
    ) -> Result<Self> {
        let peers = peers.shared();
        peers.ready("a window over a `MultiPeerTransport`")?;
        let WindowConfig { signals, counters, barriers } = config;
        for (what, count) in [("signals", signals), ("counters", counters), ("barriers", barriers)] {
            if count > MOST {
                let what = format!("{count} {what}; a window has at most {MOST}");
                return Err(PeersError::Configuration { what }.into());
            }
        }
        let data = buffer.into().map(|b| (Arc::clone(b.memory()), (b.len() * T::SIZE) as u64));
        if let Some((memory, _)) = &data {
            check_data(&peers, memory)?;
        }
        let device = Device(peers.machine().clone());
        let layout = WindowLayout { world: peers.world().size() as u32, signals, barriers, counters };
        let inbox = || Ok::<_, Error>(Arc::new(Memory::shared(&device, layout.inbox_bytes() as usize)?));
        let memory = WindowMemory {
            inbox: inbox()?,
            adapter_inbox: peers.topology().has_rdma().then(inbox).transpose()?,
            epochs: Arc::new(Memory::shared(&device, layout.epoch_bytes() as usize)?),
            data,
            layout,
            exchanged: OnceLock::new(),
            teardown: Mutex::default(),
            sources: Mutex::default(),
            peers,
        };
        Ok(HostWindow { memory: Arc::new(Kept(Arc::new(memory))) })
    }

    /// As [`HostWindow::new`] without data: signals, counters and barriers alone.
    ///
    /// # Errors
    /// As for [`HostWindow::new`].
    pub fn without_data(peers: &MultiPeerTransport, config: WindowConfig) -> Result<Self> {
        Self::new(peers, config, None::<&Buffer<u8>>)
    }

    /// Maps the peers' inboxes and data, and exchanges keys. Collective, once; with equal configurations.
    ///
    /// # Errors
    /// [`PeersError::AlreadyExchanged`]; [`Error::Peer`] naming what differs; [`Error::NotExportable`] for data of others, on all ranks; memory that cannot
    /// be mapped or registered.
    pub fn exchange(&self) -> Result<()> {
        let memory = &self.memory;
        if memory.exchanged.get().is_some() {
            return Err(PeersError::AlreadyExchanged { what: "the window" }.into());
        }
        let built = memory.build();
        // Nobody goes on alone.
        let world = memory.peers.world();
        let said = world.all_gather_as(&built.as_ref().err().map(ToString::to_string));
        let refused =
            |said: &Vec<Option<String>>| said.iter().enumerate().find_map(|(r, why)| Some((r, why.clone()?)));
        if let Some((rank, why)) = said.as_ref().ok().and_then(refused) {
            // Nor does memory go that a peer has mapped.
            let own = built.map(drop);
            world.barrier()?;
            own?;
            return Err(Error::misuse(format!("rank {rank} could not exchange the window: {why}")));
        }
        if said.is_err() && self.memory.data.is_some() {
            // Peers may have it mapped.
            std::mem::forget(Arc::clone(&memory.0));
        }
        // This rank's own error first: where a rank is missing, nothing is said either.
        let built = built?;
        said?;
        let name = world.name_teardown()?;
        let name = if built.has_foreign() { name.apart() } else { name };
        *memory.teardown.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        memory
            .exchanged
            .set(built)
            .map_err(|_| Error::from(PeersError::AlreadyExchanged { what: "the window" }))
    }

    /// Lets kernels put from `buffer` over an adapter, beside the window's own data; where there is none, nothing is needed. Launches
    /// from now on know it. Not collective.
    ///
    /// # Errors
    /// [`PeersError::Foreign`] for a buffer of another device; an adapter that refuses.
    pub fn register<T: Element>(&self, buffer: &Buffer<T>) -> Result<()> {
        self.memory.register(buffer.memory(), (buffer.len() * T::SIZE) as u64)
    }

    /// Takes [`HostWindow::register`] back, for launches from now on; waits for those that run.
    ///
    /// # Errors
    /// [`PeersError::NotRegistered`]; [`Error::Misuse`] while a stream that used the window is capturing.
    pub fn deregister<T: Element>(&self, buffer: &Buffer<T>) -> Result<()> {
        self.memory.deregister(buffer.memory())
    }

    /// Queues setting all signals of this rank, and what was taken of them, to 0 on `stream`: capturable, nothing waits. Signals that
    /// are on their way meanwhile are lost or left over: ranks that reset meet before and after. Replays do not need it.
    ///
    /// # Errors
    /// [`Error::Misuse`] on a stream of another device.
    pub fn reset_signals(&self, stream: &Stream) -> Result<()> {
        let WindowMemory { layout, inbox, adapter_inbox, epochs, .. } = &**self.memory;
        let bytes = layout.barriers_of(0) as usize;
        for memory in [Some(inbox), adapter_inbox.as_ref()].into_iter().flatten() {
            memory.fill(stream, 0, 0, bytes)?;
        }
        let (from, to) = (layout.taken(0, 0) as usize, layout.grid_gate(0) as usize);
        epochs.fill(stream, from, 0, to - from)
    }

    /// Starts the window anew after a fault: everything but the data is zero again. Collective, with no kernel running on any rank.
    ///
    /// # Errors
    /// If a rank is lost or does not come; [`Error::Misuse`] while a stream that used the window is capturing.
    pub fn renew(&self) -> Result<()> {
        let WindowMemory { peers, inbox, adapter_inbox, epochs, .. } = &**self.memory;
        inbox.wait_idle()?;
        peers.quiesce()?;
        peers.world().barrier()?;
        for memory in [Some(inbox), adapter_inbox.as_ref(), Some(epochs)].into_iter().flatten() {
            if let Some(memory) = memory.sharable() {
                memory.clear()?;
            }
        }
        peers.world().barrier()?;
        Ok(())
    }

    /// How ranks are reached.
    pub fn topology(&self) -> &Topology {
        self.memory.peers.topology()
    }

    /// What the window has.
    pub fn config(&self) -> WindowConfig {
        let WindowLayout { signals, barriers, counters, .. } = self.memory.layout;
        WindowConfig { signals, counters, barriers }
    }

    /// Bytes of data of `rank`; 0 without.
    ///
    /// # Errors
    /// [`PeersError::NotExchanged`], [`PeersError::NoSuchRank`].
    pub fn data_bytes(&self, rank: usize) -> Result<u64> {
        let exchanged = self.memory.exchanged("the size of a peer's data in a `HostWindow`")?;
        let world = self.memory.layout.world as usize;
        Ok(*exchanged.data_bytes.get(rank).ok_or(PeersError::NoSuchRank { rank, world })?)
    }
}

/// That peers can be given this memory.
fn check_data(peers: &PeersRef, memory: &Arc<Memory>) -> Result<()> {
    let foreign = |what: &str| Err(PeersError::Foreign { what: what.into() }.into());
    if Device(peers.machine().clone()).check_same(memory.machine(), "the window's buffer").is_err() {
        return foreign("the window's buffer is on another device than the transport");
    }
    match memory.sharable() {
        None if memory.address() == 0 => foreign("the window's buffer has no elements"),
        None if peers.topology().has_rdma() => foreign(
            "the window's buffer is memory that adapters of peers do not reach: make it by `Device::shared_buffer`",
        ),
        _ => Ok(()),
    }
}

impl WindowMemory {
    fn exchanged(&self, what: &'static str) -> Result<&Exchanged> {
        self.exchanged.get().ok_or_else(|| PeersError::NotExchanged { what }.into())
    }

    fn register(&self, memory: &Arc<Memory>, bytes: u64) -> Result<()> {
        let device = Device(self.peers.machine().clone());
        if device.check_same(memory.machine(), "").is_err() {
            let what = "a buffer to register is on another device than the transport".into();
            return Err(PeersError::Foreign { what }.into());
        }
        // An empty buffer has no address; there is nothing to register.
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the memory is held beside its registration, and goes after it.
        let registration = unsafe { self.peers.register(memory.allocation(bytes), memory.address(), bytes)? };
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.memory.push((registration, Arc::clone(memory)));
        sources.table(&self.peers)
    }

    fn deregister(&self, memory: &Arc<Memory>) -> Result<()> {
        self.inbox.wait_idle()?;
        self.peers.quiesce()?;
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = sources.memory.iter().position(|(_, m)| Arc::ptr_eq(m, memory)) else {
            return Err(PeersError::NotRegistered { address: memory.address() }.into());
        };
        drop(sources.memory.remove(place));
        sources.table(&self.peers)
    }
}

impl Sources {
    /// Makes the table anew.
    fn table(&mut self, peers: &PeersRef) -> Result<()> {
        let entries = self.memory.iter().filter_map(|(registration, _)| {
            let (address, bytes, keys) = (registration.address(), registration.bytes(), registration.keys()?);
            Some(LocalMemory { address, bytes, key: keys.local, reserved: 0 })
        });
        let entries: Vec<LocalMemory> = entries.collect();
        let len = entries.len() as u64;
        self.tables.push((Table::new(peers.machine(), entries)?, len));
        Ok(())
    }
}

/// The end of a window that adapters reach, or whose data belongs to others: first this rank's kernels end, then every rank's. Nobody deregisters or frees
/// before.
struct TearsDown(Arc<WindowMemory>);

/// The same on a thread of its own, as soon as this is dropped.
struct EndsApart(Option<Arc<WindowMemory>>);

impl Drop for EndsApart {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            drop_apart(TearsDown(memory));
        }
    }
}

impl Drop for TearsDown {
    fn drop(&mut self) {
        let (memory, exchanged) = (&self.0, self.0.exchanged.get());
        // If that is refused, they may be running: the memory stays.
        if memory.inbox.wait_idle().is_err_and(|error| error.is_misuse()) {
            std::mem::forget(Arc::clone(memory));
            // So does that of the peers, who wait for this rank.
            if exchanged.is_some_and(Exchanged::has_foreign) {
                return;
            }
        }
        let quiet = memory.peers.quiesce();
        exchanged.inspect(|exchanged| exchanged.unmap_foreign());
        let name = memory.teardown.lock().unwrap_or_else(PoisonError::into_inner).take();
        let done = name.is_none_or(|name| memory.peers.world().teardown(name));
        if !done || quiet.is_err() {
            // Peers may still write, or an adapter read.
            std::mem::forget(Arc::clone(memory));
        }
    }
}

impl fmt::Debug for HostWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.memory.peers.world();
        write!(f, "Window of rank {} of {}, {:?}", world.rank(), world.size(), self.config())
    }
}
