//! A rank's end of a transport: what launches, graphs and the transport itself share.

mod end;
mod symmetric;

use super::abort::Aborts;
use super::alike::Kernels;
use super::record::DeviceRecord;
use super::warning::{self, Waits};
use super::{Board, Domains, Error, Fault, Launched, Options, Result, Symmetric};
use fusewire_device::mapped::{Layout, Mapped, MappedParts};
use fusewire_device::wait::{AbortRecord, Control, abort_code, kind, read_abort_code};
use fusewire_world::{Teardown, World};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Where kernels on a transport run.
#[derive(Clone)]
pub enum Machine {
    /// CPU threads, a block each.
    Host,
    /// A GPU.
    Cuda(fusewire_driver::Context),
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Host => f.write_str("host"),
            Machine::Cuda(c) => write!(f, "{}", c.device()),
        }
    }
}

/// A queue of kernels, as far as a link must know it.
pub trait Queue: std::any::Any + Send + Sync {
    /// Waits until all that is queued is done, without looking for faults.
    ///
    /// # Errors
    /// If the device failed.
    fn wait_idle(&self) -> Result<()>;
}

/// Something whose kernels may have been aborted: asked after a stream has been waited for.
pub trait Health: Send + Sync {
    /// The fault, if there is one.
    ///
    /// # Errors
    /// The fault.
    fn check(&self) -> Result<()>;
}

/// Symmetric memory as one rank sees it. Implemented by each transport's host half.
///
/// # Safety
/// Addresses are of memory that this value owns and that is as the link's layout says; `clear` zeroes the control words and nothing else.
pub unsafe trait Region: Send + Sync {
    /// The abort word of this rank.
    ///
    /// # Errors
    /// If it cannot be read: the context is lost, say.
    fn abort_word(&self) -> Result<u64>;
    /// Sets this rank's abort word if it is zero, while kernels run.
    ///
    /// # Errors
    /// If it cannot be written.
    fn raise_abort(&self, code: u64) -> Result<()>;
    /// Waits until nothing that this rank's kernels started is under way to a peer any more.
    ///
    /// # Errors
    /// If something still is.
    fn quiesce(&self) -> Result<()> {
        Ok(())
    }
    /// Waits a moment for what kernels told the peers when they ended, where that takes its own way.
    fn pass_on(&self) {}
    /// Zeroes control words, lines and state of this rank's region, and the kernels' record if the region has it.
    ///
    /// # Errors
    /// If it cannot be written.
    ///
    /// # Safety
    /// No kernel runs on the region, on this rank or, towards it, on a peer.
    unsafe fn clear(&self) -> Result<()>;
    /// The record that kernels fill, if the region has it and it is complete.
    fn record(&self) -> Option<AbortRecord> {
        None
    }
    /// Address of that record as kernels see it. `None` where the link is to see to it: on the board, or in host memory that a GPU reaches.
    fn record_address(&self) -> Option<u64> {
        None
    }
    /// Address of this rank's region as its kernels see it.
    fn own_address(&self) -> u64;
    /// Address, for kernels, of the table of all ranks' regions.
    fn table_address(&self) -> u64;
    /// Whether what peers have mapped of this region stays theirs when this rank lets go of it: memory of the system or the driver, which
    /// is there until the last has unmapped it. Else peers, or adapters of theirs, may reach what is no longer there.
    fn outlives_rank(&self) -> bool {
        false
    }
    /// Whether the table goes on with the ids of all ranks' processes, whose memory they can read.
    fn reads_processes(&self) -> bool {
        false
    }
    /// Allocates so many zeroed bytes on every rank and maps them all; `None` where peers' memory cannot be stored to. Collective.
    ///
    /// # Errors
    /// If there is no memory, or a rank does not come.
    fn symmetric(&self, _world: &World, _bytes: usize) -> Result<Option<Symmetric>> {
        Ok(None)
    }
    /// Whether kernels store to whatever memory of a peer is mapped: then memory of others can be symmetric.
    fn reaches_mapped(&self) -> bool {
        false
    }
}

/// The right to launch on a link.
pub struct Launching<'l> {
    _turn: MutexGuard<'l, u64>,
}

/// A rank's end of a transport.
pub struct Link {
    name: &'static str,
    world: World,
    options: Options,
    layout: Layout,
    machine: Machine,
    pub(super) board: Board,

    /// What ranks do not let go of before all are done with it.
    region: ManuallyDrop<Box<dyn Region>>,
    /// What kernels on a GPU leave of a fault, where the region has no place for it.
    record: ManuallyDrop<Option<DeviceRecord>>,
    teardown: Mutex<Option<Teardown>>,
    closed: AtomicBool,
    /// Every rank has closed it, or is gone.
    ended: AtomicBool,
    pub(super) kernels: Kernels,
    allocations: AtomicU32,
    id: u64,
    /// Not kept by the link: a stream keeps the links of what is queued on it.
    last_use: Mutex<Option<(Weak<dyn Queue>, u64)>>,
    /// Counts the turns that were given.
    launching: Mutex<u64>,
    joined: Mutex<Vec<Joined>>,
    /// Ranks between whose GPUs nothing carries lines whole.
    parted: OnceLock<(usize, usize)>,
    domains: OnceLock<Domains>,
    pub(super) aborts: Aborts,
    pub(super) waits: Waits,
    /// The fault, from when it was first read on: launches go on meanwhile.
    told: Mutex<Option<Fault>>,
}

/// Another transport whose memory this one's kernels use as well, and the table by which they do.
struct Joined {
    link: Arc<Link>,
    _table: Arc<dyn std::any::Any + Send + Sync>,
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Link {
    /// This rank's end of a transport whose regions are made and mapped. Collective: ranks make their links in the same order.
    ///
    /// # Errors
    /// If the world is closed.
    pub fn new(
        name: &'static str,
        world: &World,
        options: Options,
        layout: Layout,
        machine: Machine,
        board: Board,
        region: Box<dyn Region>,
    ) -> Result<Arc<Self>> {
        let record = match &machine {
            Machine::Cuda(context) if region.record_address().is_none() => Some(DeviceRecord::new(context)?),
            _ => None,
        };
        let teardown = world.name_teardown()?;
        let link = Arc::new(Link {
            name,
            world: world.clone(),
            options,
            layout,
            machine,
            board,
            region: ManuallyDrop::new(region),
            record: ManuallyDrop::new(record),
            aborts: Aborts::new(teardown.topic()),
            waits: Waits::default(),
            teardown: Mutex::new(Some(teardown)),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            kernels: Kernels::default(),
            allocations: AtomicU32::new(0),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            last_use: Mutex::new(None),
            launching: Mutex::default(),
            joined: Mutex::default(),
            parted: OnceLock::new(),
            domains: OnceLock::new(),
            told: Mutex::default(),
        });
        // A rank that dies is known here before a deadline: kernels that wait for it are stopped at once.
        let weak = Arc::downgrade(&link);
        world.on_lost(move |rank, _why| {
            if let Some(link) = weak.upgrade() {
                let _ = link.region.raise_abort(abort_code(rank as u32, kind::LOST));
            }
        });
        link.listen();
        if let Some(warn) = link.options.warn {
            warning::watch(&link, warn)
                .map_err(|source| Error::System { what: "starting the thread that warns".into(), source })?;
        }
        Ok(link)
    }

    /// The transport's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Differs between the links of a process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The world it was made in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// What the rendezvous was asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The layout of every rank's region.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where kernels run.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// This rank's region.
    pub fn region(&self) -> &dyn Region {
        &**self.region
    }

    /// The device half of a transport whose peers' regions are mapped here.
    ///
    /// # Safety
    /// As for [`Transport::ops`](super::Transport::ops).
    pub(crate) unsafe fn mapped(&self) -> Mapped {
        let parts = MappedParts {
            layout: self.layout,
            rank: self.world.rank() as u32,
            processes: u32::from(self.region.reads_processes()),
            own: self.region.own_address(),
            bases: self.region.table_address(),
        };
        // SAFETY: the region owns what the addresses are of; the rest is the caller's contract.
        unsafe { Mapped::new(parts) }
    }

    /// Notes that LL128 is left out since the path between these two ranks' GPUs does not carry its lines whole.
    pub(crate) fn has_no_ll128(&self, pair: (usize, usize)) {
        let _ = self.parted.set(pair);
    }

    /// The ranks because of whom there are no lines, if that is why.
    pub fn parted(&self) -> Option<(usize, usize)> {
        self.parted.get().copied()
    }

    /// Notes how the ranks are in domains.
    pub(crate) fn has_domains(&self, domains: Domains) {
        let _ = self.domains.set(domains);
    }

    /// How the ranks are in domains.
    pub fn domains(&self) -> &Domains {
        const NONE: &Domains = &Domains::None;
        self.domains.get().unwrap_or(NONE)
    }

    /// Control words for a launch.
    pub fn control(&self, deadline: Option<Duration>) -> Control {
        let own = || self.record.as_ref().map_or_else(|| self.board.own_record(), DeviceRecord::address);
        let record = self.region.record_address().unwrap_or_else(own);
        let deadline = deadline.unwrap_or(self.options.deadline);
        Control {
            abort: self.region.own_address() + self.layout.abort(),
            record,
            deadline_ns: deadline.as_nanos().min(u128::from(u64::MAX)) as u64,
        }
    }

    /// The guards of every transfer: so many channels, in chunks of so many stream bytes.
    ///
    /// # Errors
    /// [`Error::Misuse`] with the accepted range.
    pub fn check_transfer(&self, channels: u32, chunk: u64) -> Result<()> {
        let misuse = |what| Err(Error::Misuse { what });
        let (most, quarter) = (self.layout.channels, self.layout.window / 4);
        if channels == 0 {
            return misuse(format!("0 channels to each peer; a launch uses 1 to {most}"));
        }
        if channels > most {
            return misuse(format!(
                "{channels} channels to each peer, but the transport has {most}: give the rendezvous `Options::channels({channels})` or more"
            ));
        }
        if chunk == 0 || !chunk.is_multiple_of(128) || chunk > quarter {
            return misuse(format!(
                "chunks of {chunk} bytes; a chunk is a multiple of 128 up to a quarter of a channel's staging, {quarter}"
            ));
        }
        Ok(())
    }

    /// Kernels on this transport use `link` as well: it lives as long as this one, and is renewed with it.
    pub(crate) fn join(&self, link: Arc<Link>, table: Arc<dyn std::any::Any + Send + Sync>) {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).push(Joined { link, _table: table });
    }

    /// For whoever launches, from before its stream is put behind the last one until the kernel is queued: launches on a transport must not
    /// overlap. Of several links the one with the lowest [`Link::id`] goes first.
    pub fn launching(&self) -> Launching<'_> {
        let mut turn = self.launching.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = turn.wrapping_add(1);
        Launching { _turn: turn }
    }

    /// This link and those that its kernels use as well, in the order in which they are to be taken: see [`Link::launching`].
    pub fn with_joined(self: &Arc<Self>) -> Vec<Arc<Link>> {
        let mut all = vec![Arc::clone(self)];
        let mut next = 0;
        while let Some(link) = all.get(next).cloned() {
            let joined = link.joined.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(joined.iter().map(|joined| Arc::clone(&joined.link)));
            next += 1;
        }
        all.sort_by_key(|link| link.id);
        all
    }

    /// The stream that the last launch went to, and the stream's number of it. `None` if there was none, or nothing of the stream is left.
    pub fn last_use(&self) -> Option<(Arc<dyn Queue>, u64)> {
        let last = self.last_use.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().and_then(|(stream, number)| Some((stream.upgrade()?, *number)))
    }

    /// Whether the last launch went to the stream at that address.
    pub fn was_last(&self, stream: *const ()) -> bool {
        let last = self.last_use.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().is_some_and(|(last, _)| std::ptr::addr_eq(last.as_ptr(), stream))
    }

    /// Notes the stream that a launch was queued on, and its number there.
    pub fn set_last_use(&self, stream: Weak<dyn Queue>, number: u64) {
        *self.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Some((stream, number));
    }

    /// Whether a kernel was aborted since the last [`super::Transport::renew`], or that cannot be known.
    pub fn is_aborted(&self) -> bool {
        self.region.abort_word().map_or(true, |word| word != 0)
    }

    /// See [`super::Transport::check`].
    ///
    /// # Errors
    /// The fault, or a lost rank.
    pub fn check(&self) -> Result<()> {
        let Some((rank, why)) = read_abort_code(self.region.abort_word()?) else { return Ok(()) };
        let (rank, me) = (rank as usize, self.world.rank());
        self.region.pass_on();
        if let Some(record) = self.region.record().or_else(|| self.record.as_ref()?.read()) {
            self.board.post(&record);
        }
        match why {
            kind::LOST => return Err(Error::Lost { rank }),
            kind::ABORT => return Err(Box::new(self.aborts.fault(self.name, me, rank)).into()),
            _ => {}
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = &*told {
            return Err(Box::new(fault.clone()).into());
        }
        // A peer's host posts its record when it waits for its own stream; a rank's own record is there already.
        let record = self.board.read(rank, Duration::from_secs(if rank == me { 1 } else { 2 }));
        let mut fault = match record {
            Some(record) => Fault::read(self.name, me, &record),
            None => Fault {
                transport: self.name,
                reader: me,
                rank,
                operation: None,
                at: None,
                launched: None,
                staging: None,
            },
        };
        fault.staging = fault.no_room().then_some(self.layout.window);
        if let Some(peer) = fault.missed() {
            let both = self.board.launched(rank).zip(self.board.launched(peer));
            fault.launched = both.map(|(own, theirs)| Box::new([own, theirs]));
        }
        *told = fault.operation.is_some().then(|| fault.clone());
        Err(Box::new(fault).into())
    }

    /// What `rank` launched last; `None` for ranks of other hosts.
    pub(super) fn launched(&self, rank: usize) -> Option<Launched> {
        self.board.launched(rank)
    }

    /// Refuses launches on a transport that was closed.
    ///
    /// # Errors
    /// [`Error::Misuse`].
    pub fn not_closed(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::Misuse {
                what: format!("a launch on {self:?}, which was closed: close it behind the last launch"),
            }),
            false => Ok(()),
        }
    }

    fn turns(&self) -> MutexGuard<'_, u64> {
        self.launching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Health for Link {
    fn check(&self) -> Result<()> {
        Link::check(self)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = (self.world.rank(), self.world.size());
        write!(f, "{} on {:?}, rank {rank} of {size}", self.name, self.machine)
    }
}
