//! An adapter in software.
//!
//! It reads doorbells, records and entries where kernels write them, as hardware would, and executes them as a reliable connection
//! does: in order within a queue pair, in any order across, each atomic operation once whatever is sent again. What it loses,
//! delays and interleaves follows from a seed ([`Behaviour`]); [`Emulated`] takes links down, takes keys back and holds requests off
//! while it runs; [`Counts`] is what it did.
//!
//! | module | what is there |
//! |---|---|
//! | [`mod@decode`] | entries, byte by byte |
//! | `queue` | a queue pair: doorbell, completions, error and flush |
//! | `engine` | steps: taking up, sending, executing at the peer, acknowledging |
//! | `port` | what adapters show each other, in shared memory |
//!
//! # What it assumes
//! Where the facts at hand do not settle how mlx5 behaves, this adapter takes the stricter reading: an entry that waits for a completion
//! fails if that completion is an error; a doorbell ahead of its record is refused.

pub mod decode;
mod engine;
mod options;
mod port;
mod queue;

pub use options::{Behaviour, Counts, FETCH, PCIE_PAYLOAD, PCIE_READ};
pub use queue::syndrome;

use crate::nic::{
    Address, Error, Kind, Memory, Nic, QueuePair, QueueRequest, QueueSource, Region, Remote, Result, Share,
};
use engine::Engine;
use options::Rng;
use port::{Peer, Port, REGIONS};
use queue::{Link, Pair, Places, State};
use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An adapter in software, for one rank.
pub struct Emulated {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    engine: Mutex<Engine>,
    regions: Mutex<Vec<Option<Held>>>,
    start: Instant,
    stop: AtomicBool,
}

/// What is known of an own region.
struct Held {
    region: Region,
    generation: u8,
    host: u64,
    file: Option<(OwnedFd, u64)>,
}

/// First number of a queue pair: 0 and 1 are special on every adapter.
const FIRST: u32 = 0x40;
/// Numbers of completion queues, apart from those of queue pairs so that a mix-up shows.
const FIRST_CQ: u32 = 0x1000;

impl Emulated {
    /// An adapter that works on a thread of its own.
    ///
    /// # Errors
    /// [`Error::System`] if there is no memory or thread for it.
    pub fn new(behaviour: Behaviour) -> Result<Self> {
        let mut adapter = Self::stepped(behaviour)?;
        let shared = Arc::clone(&adapter.shared);
        let thread = std::thread::Builder::new().name("emulated adapter".into());
        let handle =
            thread.spawn(move || shared.work()).map_err(Error::system("starting an emulated adapter"))?;
        adapter.thread = Some(handle);
        Ok(adapter)
    }

    /// An adapter that works only when [`Emulated::step`] is called.
    ///
    /// # Errors
    /// As for [`Emulated::new`].
    pub fn stepped(behaviour: Behaviour) -> Result<Self> {
        let engine = Engine {
            behaviour,
            rng: Rng(behaviour.seed),
            counts: Counts::default(),
            pairs: Vec::new(),
            own: Peer::new(Port::create()?),
            peers: HashMap::new(),
            queues: HashMap::new(),
        };
        let shared = Shared {
            engine: Mutex::new(engine),
            regions: Mutex::default(),
            start: Instant::now(),
            stop: AtomicBool::new(false),
        };
        Ok(Emulated { shared: Arc::new(shared), thread: None })
    }

    /// One step of some queue pair at time `now`, in nanoseconds of any clock. Whether there was anything to do.
    pub fn step(&self, now: u64) -> bool {
        self.shared.engine().step(now)
    }

    /// When the next queue pair that waits for a time after `now` goes on.
    pub fn next_wake(&self, now: u64) -> Option<u64> {
        self.shared.engine().next_wake(now)
    }

    /// Behaves otherwise from now on. A new seed starts a new series of choices.
    pub fn behave(&self, behaviour: Behaviour) {
        let mut engine = self.shared.engine();
        if engine.behaviour.seed != behaviour.seed {
            engine.rng = Rng(behaviour.seed);
        }
        engine.behaviour = behaviour;
        engine.pairs.iter_mut().for_each(|pair| pair.room = behaviour.completion_room);
    }

    /// Puts a queue pair that was just made or reset to where it stands after `first` entries: whoever posts begins there too.
    ///
    /// # Errors
    /// If there is no such queue pair.
    pub fn begin_at(&self, queue: &QueuePair, first: u64) -> Result<()> {
        self.pair(queue, |pair| {
            pair.begin_at(first);
            Ok(())
        })
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.shared.engine().counts
    }

    /// Takes the link down, or up again.
    pub fn set_link(&self, up: bool) {
        self.shared.engine().own.port.page().link.store(u32::from(up), Ordering::Release);
    }

    /// Answers again after a peer declared this rank dead.
    pub fn revive(&self) {
        self.shared.engine().own.port.page().alive.store(1, Ordering::Release);
    }

    /// Answers the next `requests` requests of peers with "not ready".
    pub fn hold_off(&self, requests: u32) {
        self.shared.engine().own.port.page().not_ready.store(requests, Ordering::Release);
    }

    /// Takes a region's key back behind its owner's back: requests that name it fail.
    ///
    /// # Errors
    /// If there is no such region.
    pub fn revoke(&self, region: &Region) -> Result<()> {
        self.deregister(region)
    }

    fn pair<T>(&self, queue: &QueuePair, act: impl FnOnce(&mut Pair) -> Result<T>) -> Result<T> {
        let mut engine = self.shared.engine();
        let which = queue.number.wrapping_sub(FIRST) as usize;
        match engine.pairs.get_mut(which) {
            Some(pair) => act(pair),
            None => Err(Error::misuse(format!("this adapter has no queue pair {:#x}", queue.number))),
        }
    }

    fn hold(&self, memory: &Memory<'_>, addr: u64) -> Result<Region> {
        let Some(host) = memory.host else {
            return Err(Error::misuse(
                "an emulated adapter moves bytes by the CPU, and this memory has no address for it: use pinned host memory",
            ));
        };
        let mut regions = lock(&self.shared.regions);
        let slot = match regions.iter().position(|r| r.as_ref().is_none_or(|h| h.region.rkey == 0)) {
            Some(slot) => slot,
            None if regions.len() < REGIONS => {
                regions.push(None);
                regions.len() - 1
            }
            None => {
                return Err(Error::misuse(format!(
                    "{REGIONS} regions are registered, which is all there is room for"
                )));
            }
        };
        // Never 0: a key is not, and a slot's next key is not its last.
        let generation = regions[slot].as_ref().map_or(1, |h| h.generation.wrapping_add(1).max(1));
        let key = (slot as u32) << 8 | u32::from(generation);
        let file = match memory.file {
            Some((fd, offset)) => {
                Some((fd.try_clone_to_owned().map_err(Error::system("keeping a region's file"))?, offset))
            }
            None => None,
        };
        let region = Region { addr, bytes: memory.bytes, lkey: key, rkey: key };
        let host = host.as_ptr() as u64;
        regions[slot] = Some(Held { region, generation, host, file });
        let mut engine = self.shared.engine();
        let remote =
            Remote { addr, bytes: memory.bytes, rkey: key, process: std::process::id(), host, offset: 0 };
        engine.own.admit(Share { remote, file: None })?;
        engine.own.port.publish(key);
        Ok(region)
    }
}

impl Shared {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        lock(&self.engine)
    }

    fn work(&self) {
        let mut quiet = 0u32;
        while !self.stop.load(Ordering::Acquire) {
            let now = self.start.elapsed().as_nanos() as u64;
            let mut engine = self.engine();
            // Some steps for each look at the clock.
            let busy = (0..64).take_while(|_| engine.step(now)).count() > 0;
            drop(engine);
            quiet = if busy { 0 } else { quiet.saturating_add(1) };
            match quiet {
                0 => {}
                1..=16 => std::hint::spin_loop(),
                17..=200 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

// SAFETY: entries are compared with the registered memory, which is held while they run.
unsafe impl Nic for Emulated {
    fn name(&self) -> String {
        "emulated adapter".into()
    }

    unsafe fn register(&self, memory: &Memory<'_>) -> Result<Region> {
        self.hold(memory, memory.addr)
    }

    unsafe fn register_zero_based(&self, memory: &Memory<'_>) -> Result<Region> {
        self.hold(memory, 0)
    }

    fn deregister(&self, region: &Region) -> Result<()> {
        let slot = port::slot_of(region.rkey);
        let mut regions = lock(&self.shared.regions);
        match regions.get_mut(slot) {
            Some(Some(held)) if held.region == *region => {
                held.region.rkey = 0;
                held.file = None;
                // Under the engine's lock: no step of this adapter is half way through the region.
                self.shared.engine().own.port.revoke(slot);
                Ok(())
            }
            _ => Err(Error::misuse(format!("this adapter has no region with key {:#x}", region.rkey))),
        }
    }

    fn share(&self, region: &Region) -> Result<Share> {
        let regions = lock(&self.shared.regions);
        let Some(Some(held)) = regions
            .get(port::slot_of(region.rkey))
            .filter(|h| h.as_ref().is_some_and(|h| h.region == *region))
        else {
            return Err(Error::misuse(format!("this adapter has no region with key {:#x}", region.rkey)));
        };
        let (file, offset) = match &held.file {
            Some((fd, offset)) => {
                (Some(fd.try_clone().map_err(Error::system("passing on a region's file"))?), *offset)
            }
            None => (None, 0),
        };
        let process = std::process::id();
        let remote = Remote {
            addr: region.addr,
            bytes: region.bytes,
            rkey: region.rkey,
            process,
            host: held.host,
            offset,
        };
        Ok(Share { remote, file })
    }

    fn create_queue(&self, request: &QueueRequest, memory: &dyn QueueSource) -> Result<QueuePair> {
        let depth = request.depth;
        if !depth.is_power_of_two() || !(2..=32_768).contains(&depth) {
            return Err(Error::misuse(format!(
                "a queue of {depth} entries; a depth is a power of two from 2 to 32,768"
            )));
        }
        // Records and doorbell on lines of their own, then the queues.
        let bytes = 4096 + 2 * 64 * u64::from(depth);
        let block = memory.take(bytes)?;
        let Some(host) = block.host else {
            return Err(Error::misuse("an emulated adapter needs queues in memory that the CPU reaches"));
        };
        let mut engine = self.shared.engine();
        let index = engine.pairs.len() as u32;
        let queue = QueuePair {
            kind: request.kind,
            number: FIRST + index,
            cq_number: FIRST_CQ + index,
            depth,
            sq_record: block.addr,
            cq_record: block.addr + 128,
            doorbell: block.addr + 256,
            sq: block.addr + 4096,
            cq: block.addr + 4096 + 64 * u64::from(depth),
        };
        let at = |addr: u64| -> NonNull<u8> {
            // SAFETY: within the block, whose CPU address `host` is.
            unsafe { host.add((addr - block.addr) as usize) }
        };
        let places = Places {
            sq: at(queue.sq).as_ptr(),
            sq_record: at(queue.sq_record).as_ptr().cast(),
            doorbell: at(queue.doorbell).as_ptr().cast(),
            cq: at(queue.cq).as_ptr(),
            cq_record: at(queue.cq_record).as_ptr().cast(),
        };
        let mut pair = Pair::new(queue, places);
        pair.room = engine.behaviour.completion_room;
        pair.reset();
        engine.queues.insert(queue.cq_number, index as usize);
        engine.pairs.push(pair);
        Ok(queue)
    }

    fn address(&self, queue: &QueuePair) -> Result<Address> {
        let mtu = self.shared.engine().behaviour.mtu;
        self.pair(queue, |pair| {
            Ok(Address { number: pair.queue.number, gid: [0; 16], lid: 0, first_packet: 0, mtu })
        })
    }

    fn port(&self) -> Result<Option<OwnedFd>> {
        Ok(Some(self.shared.engine().own.port.fd()?))
    }

    fn admit_port(&self, peer: usize, port: Option<OwnedFd>) -> Result<()> {
        let Some(fd) = port else {
            return Err(Error::misuse(format!(
                "rank {peer} passed no port: all ranks must use emulated adapters"
            )));
        };
        self.shared.engine().peers.insert(peer, Peer::new(Port::map(fd)?));
        Ok(())
    }

    fn admit(&self, peer: usize, share: Share) -> Result<()> {
        match self.shared.engine().peers.get_mut(&peer) {
            Some(known) => known.admit(share),
            None => Err(Error::misuse(format!("rank {peer}'s port is to be admitted before its regions"))),
        }
    }

    fn connect(&self, queue: &QueuePair, peer: Option<usize>, remote: &Address) -> Result<()> {
        if let Some(peer) = peer
            && !self.shared.engine().peers.contains_key(&peer)
        {
            return Err(Error::misuse(format!(
                "rank {peer}'s port is to be admitted before connecting to it"
            )));
        }
        let mtu = self.shared.engine().behaviour.mtu.min(remote.mtu).max(1);
        self.pair(queue, |pair| {
            if queue.kind == Kind::Companion && peer.is_some() {
                return Err(Error::misuse("a companion is connected to its own adapter"));
            }
            pair.link = peer.map_or(Link::Own, Link::Peer);
            pair.mtu = mtu;
            pair.state = State::Ready;
            Ok(())
        })
    }

    fn reset(&self, queue: &QueuePair) -> Result<()> {
        self.pair(queue, |pair| {
            if pair.state == State::Unconnected {
                return Err(Error::misuse("a queue pair is to be connected before it is reset"));
            }
            pair.reset();
            Ok(())
        })
    }

    fn destroy(&self, queue: &QueuePair) {
        let _ = self.pair(queue, |pair| {
            pair.state = State::Unconnected;
            Ok(())
        });
    }

    fn drain(&self, queue: &QueuePair, patience: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            if self.pair(queue, |pair| Ok(pair.idle()))? {
                return Ok(());
            }
            if start.elapsed() > patience {
                return Err(Error::misuse(format!(
                    "queue pair {:#x} still had entries in flight after {patience:?}",
                    queue.number
                )));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn lost(&self, peer: usize) {
        if let Some(peer) = self.shared.engine().peers.get(&peer) {
            peer.port.page().alive.store(0, Ordering::Release);
        }
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.engine().own.port.page().alive.store(0, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Emulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "emulated adapter with {} queue pairs", self.shared.engine().pairs.len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
