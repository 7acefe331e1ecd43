//! The adapter: what transports ask of one, by commands.

use crate::choose;
use crate::driver::{Bytes, Driver, Handle, Libraries};
use crate::error::{from_cuda, from_verbs, misuse, no_adapter};
use crate::parts::{Doorbell, Made, Parts};
use crate::path::Port;
use crate::place::{Arena, Offsets, PAGE, Place};
use crate::prm::{self, Capabilities, Command, Path, Ring, State, layout::answer};
use crate::settings::{Queues, Settings, mtu_code};
use fusewire_driver::memory::DmaBuf;
use fusewire_driver::{Context, DevicePtr};
use fusewire_nic::{
    Address, Kind, Memory, Nic, QueuePair, QueueRequest, QueueSource, Region, Remote, Result, Share,
};
use fusewire_verbs::{Adapter, Filter};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Fewest entries of the queue of a queue pair that nobody posts to: what its page holds.
const RESPONDER: u32 = 64;

/// A ConnectX adapter, opened for one rank. It has never met one: see the [crate].
pub struct Mlx5 {
    inner: Mutex<Inner>,
    port: Port,
    settings: Settings,
    capabilities: Capabilities,
    domain: u32,
    event_queue: u32,
    doorbell: Doorbell,
    context: Option<Context>,
    driver: Box<dyn Driver>,
}

#[derive(Default)]
struct Inner {
    queues: BTreeMap<u32, Made>,
    regions: BTreeMap<u32, (Region, Handle)>,
    arena: Option<Arena>,
}

impl Mlx5 {
    /// Opens the adapter that is nearest to the GPU of `context`, or the first, among those that the settings let through and whose
    /// port is active. With a context, kernels of that GPU ring its doorbell; without, threads of the CPU do.
    ///
    /// # Errors
    /// [`fusewire_nic::Error::NoAdapter`] without rdma-core, without an mlx5 adapter, without DevX or without an active port, and
    /// what to do; [`fusewire_nic::Error::Misuse`] for settings that cannot be.
    pub fn open(settings: Settings, context: Option<&Context>) -> Result<Mlx5> {
        let gpu = context.and_then(|c| choose::place_of(c.device().pci_bus_id()));
        let order = choose::order(&choose::candidates()?, &settings.filter, gpu.as_deref())?;
        let mut first = None;
        for (name, number) in order {
            let only = Filter::parse(&format!("={name}:{number}")).map_err(from_verbs)?;
            match Adapter::open(&only, 0) {
                Ok(adapter) => {
                    let port = port(&adapter)?;
                    let driver = Libraries::open(&port.adapter, port.number)?;
                    return Mlx5::over(Box::new(driver), port, settings, context);
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.map_or_else(|| no_adapter("none has a port"), from_verbs))
    }

    pub(crate) fn over(
        driver: Box<dyn Driver>,
        mut port: Port,
        settings: Settings,
        context: Option<&Context>,
    ) -> Result<Mlx5> {
        settings.check(port.ethernet)?;
        port.mtu = mtu_code(settings.mtu).map_or(port.mtu, |most| port.mtu.min(most));
        if settings.queues == Queues::Gpu && context.is_none() {
            return Err(misuse(
                "queues in GPU memory are for kernels on a GPU: open the adapter with its context",
            ));
        }
        let answer = driver.general(&prm::query_capabilities()?)?;
        let capabilities = Capabilities::read(&answer).ok_or_else(|| short("QUERY_HCA_CAP"))?;
        for (has, what) in [
            (capabilities.connections, "reliable connections"),
            (capabilities.atomics, "atomics"),
            (
                capabilities.waits,
                "entries that wait for a completion queue (cross channel), which counters need",
            ),
        ] {
            if !has {
                return Err(no_adapter(format!(
                    "{} has no {what}; choose another with FUSEWIRE_IB_HCA",
                    port.adapter
                )));
            }
        }
        let (domain, event_queue) = (driver.domain()?, driver.event_queue()?);
        let doorbell = Doorbell::open(driver.as_ref(), &port.adapter, context)?;
        let arena = context.filter(|_| settings.queues == Queues::Gpu).map(Arena::new);
        Ok(Mlx5 {
            inner: Mutex::new(Inner { arena, ..Inner::default() }),
            port,
            settings,
            capabilities,
            domain,
            event_queue,
            doorbell,
            context: context.cloned(),
            driver,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, queue: &QueuePair, act: impl FnOnce(&mut Made) -> Result<T>) -> Result<T> {
        match self.inner().queues.get_mut(&queue.number) {
            Some(made) if made.queue == *queue => act(made),
            _ => Err(misuse(format!("{} has no queue pair {:#x}", self.port.adapter, queue.number))),
        }
    }

    fn make(
        &self,
        request: &QueueRequest,
        entries: u32,
        parts: &mut Parts,
        memory: &dyn QueueSource,
    ) -> Result<Made> {
        let offsets = Offsets::new(entries);
        let (place, base, pinned) = {
            let mut inner = self.inner();
            match &mut inner.arena {
                Some(arena) => {
                    let (chunk, at) = arena.take(offsets.bytes)?;
                    let from = chunk.dmabuf.offset() + at as u64;
                    let bytes = Bytes::DmaBuf(chunk.dmabuf.as_fd(), from, offsets.bytes);
                    parts.chunk = Some(Arc::clone(&chunk));
                    // SAFETY: `parts` hold the chunk until they have taken the registration back.
                    let pinned = unsafe { self.driver.pin(bytes) }?;
                    let base = chunk.ptr().as_u64() + at as u64;
                    (Place::Gpu(chunk, at), base, pinned)
                }
                None => {
                    let block = memory.take(offsets.bytes)?;
                    let Some(host) = block.host else {
                        return Err(misuse(
                            "queues offered in GPU memory: take Queues::Gpu, or offer host memory",
                        ));
                    };
                    // SAFETY: the memory outlives this adapter's queue pairs (`QueueSource`).
                    let pinned = unsafe { self.driver.pin(Bytes::Host(host, offsets.bytes)) }?;
                    (Place::Host(host), block.addr, pinned)
                }
            }
        };
        let umem = pinned.1;
        parts.memory = Some(pinned.0);
        place.clear(&offsets, entries)?;
        let at = |ring, record| Ring { umem, ring, record, log: entries.ilog2(), page: self.doorbell.number };
        let command = prm::create_cq(&at(offsets.cq, offsets.cq_record), self.event_queue)?;
        let cq_number = self.create(&command, &mut parts.completions)?;
        let ring = at(offsets.sq, offsets.record);
        let number =
            self.create(&prm::create_qp(request.kind, &ring, self.domain, cq_number)?, &mut parts.pair)?;
        let first_packet = fusewire_verbs::first_packet(&self.port.adapter).map_err(from_verbs)?;
        let queue = QueuePair {
            kind: request.kind,
            number,
            cq_number,
            depth: request.depth,
            sq: base + offsets.sq,
            sq_record: base + offsets.sq_record,
            doorbell: self.doorbell.address,
            cq: base + offsets.cq,
            cq_record: base + offsets.cq_record,
        };
        Ok(Made {
            queue,
            parts: std::mem::take(parts),
            place,
            offsets,
            entries,
            first_packet,
            peer: None,
            way: None,
        })
    }

    fn create(&self, command: &Command, into: &mut Option<Handle>) -> Result<u32> {
        let (handle, answer) = self.driver.create(command)?;
        *into = Some(handle);
        answer::NUMBER.get(&answer).map(|n| n as u32).ok_or_else(|| short(command.name))
    }

    fn modify(&self, made: &Made, command: &Command) -> Result<()> {
        let pair = made.parts.pair.as_ref().ok_or_else(|| misuse("a queue pair that was ended"))?;
        self.driver.modify(pair, command).map(drop)
    }

    /// From reset to ready.
    fn ready(&self, made: &Made, way: &Path) -> Result<()> {
        let (number, (own, theirs)) = (made.queue.number, self.port.log_reads);
        self.modify(made, &prm::rst2init(number, self.port.number)?)?;
        self.modify(made, &prm::init2rtr(number, way, theirs, &self.settings)?)?;
        self.modify(made, &prm::rtr2rts(number, made.first_packet, own, &self.settings)?)
    }

    fn state(&self, made: &Made) -> Result<State> {
        let command = prm::query_qp(made.queue.number)?;
        let pair = made.parts.pair.as_ref().ok_or_else(|| misuse("a queue pair that was ended"))?;
        State::read(&self.driver.query(pair, &command)?).ok_or_else(|| short(command.name))
    }

    fn register_at(&self, memory: &Memory<'_>, address: u64) -> Result<Region> {
        if memory.bytes == 0 {
            return Err(misuse("a region must have at least 1 byte"));
        }
        let exported;
        let bytes = match (memory.dmabuf, memory.host, &self.context) {
            (Some((fd, offset)), ..) => Bytes::DmaBuf(fd, offset, memory.bytes),
            (None, Some(host), _) => Bytes::Host(host, memory.bytes),
            (None, None, Some(context)) => {
                let start = DevicePtr::new(memory.addr);
                exported = DmaBuf::export(context, start, memory.bytes as usize).map_err(from_cuda)?;
                Bytes::DmaBuf(exported.as_fd(), exported.offset(), memory.bytes)
            }
            (None, None, None) => {
                return Err(misuse(
                    "memory without an address for the CPU or a dma-buf cannot be registered: open the adapter with the GPU's context",
                ));
            }
        };
        let start = match bytes {
            Bytes::Host(host, _) => host.as_ptr() as u64,
            Bytes::DmaBuf(_, offset, _) => offset,
        };
        if !(start ^ address).is_multiple_of(PAGE) {
            return Err(misuse(format!(
                "memory at {start:#x} cannot be named by addresses from {address:#x} on: both must agree within a page"
            )));
        }
        // SAFETY: the caller's contract.
        let made = unsafe { self.driver.register(bytes, address) }?;
        let region = Region { addr: address, bytes: memory.bytes, lkey: made.lkey, rkey: made.rkey };
        self.inner().regions.insert(made.rkey, (region, made.handle));
        Ok(region)
    }

    fn no_region(&self, region: &Region) -> fusewire_nic::Error {
        misuse(format!("{} has no region with key {:#x}", self.port.adapter, region.rkey))
    }
}

fn short(command: &str) -> fusewire_nic::Error {
    misuse(format!("{command} gave a short answer"))
}

/// The port of an open adapter.
fn port(adapter: &Adapter) -> Result<Port> {
    let (port, limits, name) = (adapter.port(), adapter.limits(), adapter.name());
    let file =
        format!("/sys/class/infiniband/{name}/ports/{}/gid_attrs/types/{}", port.number, port.gid_index);
    if port.ethernet && !std::fs::read_to_string(file).unwrap_or_default().contains("v2") {
        return Err(misuse(format!(
            "GID {} of port {} of {name} is not of RoCE v2: choose one that is with FUSEWIRE_IB_GID_INDEX",
            port.gid_index, port.number
        )));
    }
    let log = |reads: u8| u32::from(reads.max(1)).ilog2();
    Ok(Port {
        adapter: name.to_owned(),
        number: port.number,
        lid: port.lid,
        gid: port.gid,
        index: port.gid_index,
        ethernet: port.ethernet,
        mtu: limits.mtu,
        log_reads: (log(limits.reads.0), log(limits.reads.1)),
    })
}

// SAFETY: queues and regions are as the adapter's commands made them.
unsafe impl Nic for Mlx5 {
    fn name(&self) -> String {
        let link = if self.port.ethernet { "RoCE v2" } else { "InfiniBand" };
        format!("{} port {} ({link})", self.port.adapter, self.port.number)
    }

    unsafe fn register(&self, memory: &Memory<'_>) -> Result<Region> {
        self.register_at(memory, memory.addr)
    }

    unsafe fn register_zero_based(&self, memory: &Memory<'_>) -> Result<Region> {
        self.register_at(memory, 0)
    }

    fn deregister(&self, region: &Region) -> Result<()> {
        let mut inner = self.inner();
        match inner.regions.get(&region.rkey) {
            Some((known, _)) if known == region => {}
            _ => return Err(self.no_region(region)),
        }
        match inner.regions.remove(&region.rkey) {
            Some((_, handle)) => self.driver.deregister(handle),
            None => Err(self.no_region(region)),
        }
    }

    fn share(&self, region: &Region) -> Result<Share> {
        match self.inner().regions.get(&region.rkey) {
            Some((known, _)) if known == region => {}
            _ => return Err(self.no_region(region)),
        }
        let remote = Remote {
            addr: region.addr,
            bytes: region.bytes,
            rkey: region.rkey,
            process: std::process::id(),
            host: 0,
            offset: 0,
        };
        Ok(Share { remote, file: None })
    }

    fn create_queue(&self, request: &QueueRequest, memory: &dyn QueueSource) -> Result<QueuePair> {
        let depth = request.depth;
        let log = self.capabilities.log_queue.min(self.capabilities.log_completions).min(15);
        if !depth.is_power_of_two() || depth < 2 || depth > 1 << log {
            return Err(misuse(format!(
                "a queue of {depth} entries; on {} a depth is a power of two from 2 to {}",
                self.port.adapter,
                1u32 << log
            )));
        }
        let entries =
            if request.kind == Kind::Responder { depth.max(RESPONDER.min(1 << log)) } else { depth };
        let mut parts = Parts::default();
        match self.make(request, entries, &mut parts, memory) {
            Ok(made) => {
                let queue = made.queue;
                self.inner().queues.insert(queue.number, made);
                Ok(queue)
            }
            Err(error) => {
                parts.end(self.driver.as_ref());
                Err(error)
            }
        }
    }

    fn address(&self, queue: &QueuePair) -> Result<Address> {
        self.with(queue, |made| Ok(self.port.address(made.queue.number, made.first_packet)))
    }

    fn port(&self) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn admit_port(&self, _peer: usize, _port: Option<OwnedFd>) -> Result<()> {
        Ok(())
    }

    fn admit(&self, _peer: usize, _share: Share) -> Result<()> {
        Ok(())
    }

    fn connect(&self, queue: &QueuePair, peer: Option<usize>, remote: &Address) -> Result<()> {
        self.with(queue, |made| {
            if made.queue.kind != Kind::Main && peer.is_some() {
                return Err(misuse("companions and responders are connected to their own adapter"));
            }
            let mac = |gid| self.driver.mac(gid, self.port.index, self.settings.hop_limit);
            let way = self.port.way(made.queue.number, remote, mac)?;
            if made.way.take().is_some() {
                self.modify(made, &prm::to_reset(made.queue.number)?)?;
            }
            self.ready(made, &way)?;
            (made.peer, made.way) = (peer, Some(way));
            Ok(())
        })
    }

    fn reset(&self, queue: &QueuePair) -> Result<()> {
        self.with(queue, |made| {
            let Some(way) = made.way else {
                return Err(misuse("a queue pair is to be connected before it is reset"));
            };
            if !made.fresh()? {
                return Err(misuse(format!(
                    "queue pair {:#x} of {} was used, and the counters of its completion queue start over only with a new one: make the \
                     transport anew",
                    made.queue.number, self.port.adapter
                )));
            }
            self.modify(made, &prm::to_reset(made.queue.number)?)?;
            self.ready(made, &way)
        })
    }

    fn destroy(&self, queue: &QueuePair) {
        let made = self.inner().queues.remove(&queue.number);
        if let Some(mut made) = made {
            made.parts.end(self.driver.as_ref());
        }
    }

    fn drain(&self, queue: &QueuePair, patience: Duration) -> Result<()> {
        let start = Instant::now();
        while !self.with(queue, |made| made.idle())? {
            if start.elapsed() > patience {
                let state = match self.with(queue, |made| self.state(made)) {
                    Ok(state) => format!("its state is {state:?}"),
                    Err(error) => format!("and its state cannot be had: {error}"),
                };
                return Err(misuse(format!(
                    "queue pair {:#x} of {} still had entries in flight after {patience:?}; {state}",
                    queue.number, self.port.adapter
                )));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn lost(&self, peer: usize) {
        for made in self.inner().queues.values().filter(|m| m.way.is_some() && m.peer == Some(peer)) {
            // The retries end it as well, only later.
            let _ = prm::to_error(made.queue.number).and_then(|command| self.modify(made, &command));
        }
    }
}

impl Drop for Mlx5 {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, mut made) in std::mem::take(&mut inner.queues) {
            made.parts.end(self.driver.as_ref());
        }
        for (_, (_, handle)) in std::mem::take(&mut inner.regions) {
            let _ = self.driver.deregister(handle);
        }
        self.doorbell.close(self.driver.as_ref());
    }
}

impl fmt::Debug for Mlx5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} queue pairs", self.name(), self.inner().queues.len())
    }
}
