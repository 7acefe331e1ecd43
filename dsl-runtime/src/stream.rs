//! Streams: work in order, on the host as on a GPU.

use crate::aside::Aside;
use crate::capture::{Captured, Recording};
use crate::foreign::{self, Foreign};
use crate::machine::{Op, Waited, Worker};
use crate::order::Marks;
use crate::parked::{settle, with_room};
use crate::pending::Pending;
use crate::uses::Capture;
use crate::{Device, Error, Event, Graph, Result};
use fusewire_driver as cuda;
use fusewire_transports::host::{Collective, Link, Machine, Waiting};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

/// A queue of copies, launches and graphs that run in order. Dropping the last handle does not wait: queued work still runs, and keeps what it
/// uses alive. A later read of its results waits for it, and returns its faults. Work that is still queued when the process ends is lost.
#[derive(Clone)]
pub struct Stream(pub(crate) Arc<Handle>);

/// What the users' handles of a stream share. Memory and links used on the stream hold only its queue.
pub(crate) struct Handle(Arc<Queue>);

pub(crate) struct Queue {
    device: Device,
    pub(crate) kind: Kind,
    /// If somebody else made it.
    pub(crate) foreign: Option<Foreign>,
    pub(crate) links: Mutex<Vec<Due>>,
    pub(crate) capture: Mutex<Option<Captured>>,
    /// Whether a capture is under way: most launches need to know only that.
    pub(crate) capturing: AtomicBool,
    /// Read-locked while work is queued, so that no capture begins or ends; write-locked to begin or end one.
    mode: RwLock<()>,
    pub(crate) marks: Marks,
    /// Another stream is waited for since the last kernel.
    behind: AtomicBool,
    /// Uses of memory that were queued: the number of the last.
    used: AtomicU64,
    /// The last of them that was waited for.
    past: AtomicU64,
    /// A wait for it was given up: only an explicit wait waits for it now.
    given_up: AtomicBool,
    /// No handle is left.
    pub(crate) retired: AtomicBool,
    /// Others have its CUDA handle, and may capture it.
    pub(crate) lent: AtomicBool,
    /// Graphs that may still run, each with the number of a later use. Destroying a running graph keeps other graphs of the GPU
    /// from starting until it has ended.
    graphs: Mutex<Vec<(u64, Arc<cuda::GraphExec>)>>,
    pub(crate) pending: Pending,
}

/// A link whose kernels were queued since the last synchronisation, or whose fault is still to be reported.
#[derive(Clone)]
pub(crate) struct Due {
    pub(crate) link: Arc<Link>,
    /// The first use of memory that a fault can have spoilt.
    pub(crate) first: u64,
    /// Whoever waits for the stream behind this use has waited for the kernels.
    last: u64,
}

/// With this many graphs, the host polls whether the stream is idle, if nobody waits for it.
const MANY_GRAPHS: usize = 16;

pub(crate) enum Kind {
    Host(Worker),
    Cuda(cuda::Stream),
}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let kind = match &device.0 {
            Machine::Host => Kind::Host(
                Worker::new()
                    .map_err(|source| Error::System { what: "starting a stream's thread".into(), source })?,
            ),
            Machine::Cuda(context) => {
                with_room(Error::is_misuse, || queues_are_left(context))?;
                Kind::Cuda(cuda::Stream::new(context)?)
            }
        };
        let stream = Self::over(device, kind, None);
        if let (Machine::Cuda(context), Kind::Cuda(raw)) = (&device.0, &stream.0.kind) {
            foreign::register(context, raw.as_raw().cast(), &stream.0);
        }
        Ok(stream)
    }

    pub(crate) fn over(device: &Device, kind: Kind, foreign: Option<Foreign>) -> Self {
        let queue = Queue {
            device: device.clone(),
            kind,
            foreign,
            links: Mutex::default(),
            capture: Mutex::default(),
            capturing: AtomicBool::new(false),
            mode: RwLock::default(),
            marks: Marks::default(),
            behind: AtomicBool::new(false),
            used: AtomicU64::new(0),
            past: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            lent: AtomicBool::new(false),
            graphs: Mutex::default(),
            pending: Pending::default(),
        };
        Stream(Arc::new(Handle(Arc::new(queue))))
    }

    /// Where the stream's work runs.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits for everything queued so far.
    ///
    /// # Errors
    /// [`Error::Fault`] if a kernel was aborted, [`Error::Lost`] if a rank died, [`Error::Device`] if the GPU failed;
    /// [`Error::Misuse`] while the stream is capturing.
    pub fn synchronize(&self) -> Result<()> {
        self.queue().notice()?;
        self.not_capturing("synchronize")?;
        self.0.wait()?;
        self.check_links()
    }

    /// As [`Stream::synchronize`], but gives up after `limit`, with the work still queued. After that only this function and
    /// [`Stream::synchronize`] wait for the stream, until one of them succeeds. Dropping the stream or a transport does not wait, so the
    /// process can exit, and other uses of its buffers are refused. Its resources are freed when its work ends.
    ///
    /// # Errors
    /// As for [`Stream::synchronize`], and [`Error::Misuse`] when `limit` has passed.
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        self.queue().notice()?;
        self.not_capturing("synchronize")?;
        let used = self.0.used.load(Ordering::Acquire);
        let _waiting = self.0.waiting();
        match &self.0.kind {
            Kind::Host(worker) => match worker.wait(Some(limit)) {
                Waited::Done => {}
                Waited::Late => {
                    self.0.given_up.store(true, Ordering::Release);
                    return Err(Error::misuse(format!(
                        "the stream was still busy after {limit:?}; nothing was cancelled"
                    )));
                }
                Waited::Gone => return Err(gone().into()),
            },
            Kind::Cuda(stream) => {
                let waited = stream.synchronize_deadline(limit);
                if matches!(waited, Err(cuda::Error::Timeout { .. })) {
                    self.0.given_up.store(true, Ordering::Release);
                }
                waited?;
            }
        }
        self.0.over(used);
        self.check_links()
    }

    /// Marks this point of the stream's work.
    ///
    /// # Errors
    /// [`Error::Misuse`] while capturing.
    pub fn record(&self) -> Result<Event> {
        let _mode = self.queue().mode()?;
        self.not_capturing("Stream::record")?;
        Event::record(self)
    }

    /// Records what `body` queues as a graph instead of running it.
    ///
    /// # Errors
    /// Those of `body`; the stream is usable again in any case, even after a panic of `body`.
    pub fn capture(&self, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let recording = Recording::begin(self.queue())?;
        body()?;
        let (graph, captured) = recording.end()?;
        let graph = Graph::new(self.device(), graph, captured)?;
        graph.upload(self)?;
        Ok(graph)
    }

    /// Whether the stream is recording a graph.
    pub fn is_capturing(&self) -> bool {
        self.0.is_capturing()
    }

    fn check_links(&self) -> Result<()> {
        let verdict = self.verdict().0;
        settle();
        verdict
    }

    /// The first fault of what was waited for, and the links that were asked: the last end of a link waits for peers.
    pub(crate) fn verdict(&self) -> (Result<()>, Vec<Due>) {
        let mut asked = lock(&self.0.links).clone();
        let (mut first, mut told) = (Ok(()), Vec::new());
        for Due { link, last, .. } in &asked {
            // In this order: a kernel that ends between the two is asked about again.
            let past = self.0.is_past(*last);
            let verdict = link.check();
            if verdict.is_err() || past {
                told.push((link.id(), *last));
            }
            first = first.and(verdict);
        }
        first = self.0.recorded().iter().fold(first, |first, link| first.and(link.check()));
        // What another thread has queued meanwhile is still to be reported.
        let done = |due: &mut Due| told.contains(&(due.link.id(), due.last));
        asked.extend(lock(&self.0.links).extract_if(.., done));
        (first.map_err(Error::from), asked)
    }

    pub(crate) fn not_capturing(&self, what: &str) -> Result<()> {
        self.0.not_capturing(what)
    }

    /// For what is used on the stream, to wait for it later.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0.0
    }

    /// Queues a host operation, or records it.
    pub(crate) fn push(&self, op: Op) {
        if self.is_capturing()
            && let Some(captured) = &mut *lock(&self.0.capture)
        {
            captured.ops.push(op);
        } else if let Kind::Host(worker) = &self.0.kind {
            worker.push(op);
        }
    }

    /// Runs `keep` on the capture, if there is one.
    pub(crate) fn captured(&self, keep: impl FnOnce(&mut Captured)) {
        if self.is_capturing()
            && let Some(captured) = &mut *lock(&self.0.capture)
        {
            keep(captured);
            self.0.hand_over(captured);
        }
    }

    /// The capture has such a launch, which its replays make.
    pub(crate) fn records(&self, link: &Arc<Link>, launch: &Collective) {
        if let Some(captured) = &mut *lock(&self.0.capture) {
            captured.records(link, launch);
        }
    }

    /// Whether others capture a stream of ours by its CUDA handle, which only they see replayed.
    pub(crate) fn is_recorded_unseen(&self) -> Result<bool> {
        match &self.0.kind {
            Kind::Cuda(stream) if self.0.lent.load(Ordering::Acquire) => Ok(stream.recording()?.is_some()),
            _ => Ok(false),
        }
    }

    /// The second stream of the capture, or `own` where none is under way.
    pub(crate) fn aside(
        &self,
        own: &Mutex<Option<Arc<Aside>>>,
        context: &cuda::Context,
    ) -> Result<Arc<Aside>> {
        match &mut *lock(&self.0.capture) {
            Some(captured) => Aside::at(&mut captured.aside, context),
            None => Aside::at(&mut lock(own), context),
        }
    }
}

impl Queue {
    /// Waits without looking for faults; not for a stream that somebody has given up.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.not_given_up()?;
        Ok(self.wait()?)
    }

    /// Waits, also for a stream that somebody has given up.
    fn wait(&self) -> fusewire_transports::host::Result<()> {
        // Numbered once they were queued: those up to here are before what is waited for.
        let used = self.used.load(Ordering::Acquire);
        let _waiting = self.waiting();
        match &self.kind {
            Kind::Host(worker) if worker.wait(None) != Waited::Done => return Err(gone()),
            Kind::Host(_) => {}
            Kind::Cuda(_) if self.is_retired() => self.wait_mark()?,
            Kind::Cuda(stream) => stream.synchronize()?,
        }
        self.over(used);
        Ok(())
    }

    /// This thread waits for the kernels of these links: see `Options::warn`.
    fn waiting(&self) -> Vec<Waiting> {
        lock(&self.links).iter().filter_map(|due| Waiting::on(&due.link)).collect()
    }

    /// The stream was waited for, behind these uses.
    fn over(&self, used: u64) {
        self.given_up.store(false, Ordering::Release);
        self.passed(used);
    }

    /// These uses are over.
    pub(crate) fn passed(&self, used: u64) {
        self.past.fetch_max(used, Ordering::AcqRel);
        let over: Vec<_> = lock(&self.graphs).extract_if(.., |(number, _)| *number <= used).collect();
        drop(over);
    }

    /// Waiting for another stream has been queued.
    pub(crate) fn set_behind(&self) {
        self.behind.store(true, Ordering::Release);
    }

    /// Whether a wait for another stream was queued since the last call. If two threads launch, only the first is told: its kernel runs
    /// after the wait, and the other's kernel after that.
    pub(crate) fn take_behind(&self) -> bool {
        self.behind.swap(false, Ordering::AcqRel)
    }

    /// Keeps a graph that is about to be launched until it has run.
    pub(crate) fn keep(&self, graph: &Arc<cuda::GraphExec>) {
        let number = self.used.load(Ordering::Acquire) + 1;
        let mut graphs = lock(&self.graphs);
        if graphs.len() >= MANY_GRAPHS && self.is_idle() {
            graphs.clear();
        }
        match graphs.iter_mut().find(|(_, kept)| Arc::ptr_eq(kept, graph)) {
            Some((last, _)) => *last = number,
            None => graphs.push((number, Arc::clone(graph))),
        }
    }

    /// Whether it is busy, and somebody stopped waiting for that to end.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
            && match &self.kind {
                Kind::Host(worker) => !worker.is_idle(),
                Kind::Cuda(_) => !self.is_idle(),
            }
    }

    /// The number of the last use of memory that has been queued.
    pub(crate) fn last_use(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Refuses to wait for a stream that somebody has given up.
    pub(crate) fn not_given_up(&self) -> fusewire_transports::host::Result<()> {
        match self.is_given_up() {
            true => Err(fusewire_transports::host::Error::Misuse {
                what: "the stream is still busy, and `synchronize_within` gave it up: synchronize it before anything else waits for it".into(),
            }),
            false => Ok(()),
        }
    }

    /// Numbers a use of memory that has been queued.
    pub(crate) fn next_use(&self) -> u64 {
        self.used.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether the queue was waited for behind the use of this number.
    pub(crate) fn is_past(&self, number: u64) -> bool {
        self.past.load(Ordering::Acquire) >= number
    }

    /// Has faults of `link` reported, from the next use of memory on, until the stream is waited for behind use `last`.
    pub(crate) fn answer(&self, link: &Arc<Link>, last: u64) {
        let first = self.used.load(Ordering::Acquire) + 1;
        let mut links = lock(&self.links);
        match links.iter_mut().find(|due| Arc::ptr_eq(&due.link, link)) {
            Some(due) => due.last = last.max(due.last),
            None => links.push(Due { link: Arc::clone(link), first, last }),
        }
    }

    /// Whether all that was queued is done; `false` where that cannot be told now.
    pub(crate) fn is_idle(&self) -> bool {
        match &self.kind {
            Kind::Cuda(_) if self.is_capturing() => false,
            Kind::Cuda(_) if self.is_retired() => self.reached(self.last_use()).unwrap_or(false),
            Kind::Cuda(stream) => stream.query().unwrap_or(false),
            Kind::Host(worker) => worker.is_idle(),
        }
    }

    /// Keeps captures of the stream from beginning and from ending.
    pub(crate) fn mode(self: &Arc<Self>) -> Result<RwLockReadGuard<'_, ()>> {
        foreign::notice_all();
        self.notice()?;
        Ok(self.mode.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// For who begins or ends a capture.
    pub(crate) fn alone(&self) -> impl Sized + '_ {
        (self.mode.write().unwrap_or_else(PoisonError::into_inner), self.marks.lock())
    }

    /// The capture that is under way.
    pub(crate) fn capture(&self) -> Option<Weak<Capture>> {
        if !self.is_capturing() {
            return None;
        }
        lock(&self.capture).as_ref().map(|captured| Arc::downgrade(&captured.under_way))
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire)
    }

    pub(crate) fn not_capturing(&self, what: &str) -> Result<()> {
        match self.is_capturing() {
            true => Err(Error::misuse(format!(
                "`{what}` waits for the stream, which cannot be done while it is capturing a graph"
            ))),
            false => Ok(()),
        }
    }
}

impl fusewire_transports::host::Queue for Queue {
    fn wait_idle(&self) -> fusewire_transports::host::Result<()> {
        self.not_given_up()?;
        self.wait()?;
        settle();
        Ok(())
    }
}

/// Nothing on the stream runs any more, and what was queued has not run.
fn gone() -> fusewire_transports::host::Error {
    fusewire_transports::host::Error::System {
        what: "waiting for a stream".into(),
        source: std::io::Error::other(
            "its thread has ended, with work that it has not done: make a new stream",
        ),
    }
}

/// Refuses more streams than hardware queues on a GPU that ranks share: in one queue, a kernel of one rank could be queued behind another
/// rank's kernel that waits for it.
fn queues_are_left(context: &cuda::Context) -> Result<()> {
    let (streams, queues) = (context.streams_of_parts(), cuda::Driver::load()?.connections());
    if context.place().is_none() || streams < queues {
        return Ok(());
    }
    let (name, most) = (cuda::Driver::CONNECTIONS, cuda::Driver::MOST_CONNECTIONS);
    Err(Error::misuse(format!(
        "the ranks that share {} have {streams} streams in this process already, and it has {queues} hardware queues: a kernel could stand in \
         a queue behind one that waits for it. Use fewer streams, or set {name}={most} (the most) before the program starts",
        context.device()
    )))
}

impl Deref for Handle {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        match std::thread::panicking() {
            // A panic is news that peers wait for: what runs is left to itself, with what it uses.
            true => std::mem::forget(Arc::clone(&self.0)),
            false => self.0.retire(),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream on {:?}", self.0.device.0)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
