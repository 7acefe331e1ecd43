//! Streams: work in order, on the host as on a GPU.

use crate::buffer::Memory;
use crate::kernel::Held;
use crate::machine::{Op, Worker};
use crate::uses::Access;
use crate::{Device, Error, Event, Graph, Result};
use fusewire_driver as cuda;
use fusewire_transports::host::{Link, Machine};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A queue of copies, launches and graphs that run in order. Dropping the last handle waits for what is queued, but not in a panic.
#[derive(Clone)]
pub struct Stream(pub(crate) Arc<Handle>);

/// What the users' handles of a stream share; whatever was used on the stream knows its queue alone.
pub(crate) struct Handle(Arc<Queue>);

pub(crate) struct Queue {
    device: Device,
    pub(crate) kind: Kind,
    /// Links whose kernels were queued since the last synchronisation, or are still to be reported.
    links: Mutex<Vec<Arc<Link>>>,
    capture: Mutex<Option<Captured>>,
}

pub(crate) enum Kind {
    Host(Worker),
    Cuda(cuda::Stream),
}

/// What a capture has collected: operations (host), and what must outlive the graph.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) ops: Vec<Op>,
    pub(crate) links: Vec<Arc<Link>>,
    pub(crate) memory: Vec<(Arc<Memory>, Access)>,
    pub(crate) held: Vec<Held>,
    pub(crate) modules: Vec<cuda::Function>,
}

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let kind = match &device.0 {
            Machine::Host => Kind::Host(
                Worker::new()
                    .map_err(|source| Error::System { what: "starting a stream's thread".into(), source })?,
            ),
            Machine::Cuda(context) => Kind::Cuda(cuda::Stream::new(context)?),
        };
        let queue =
            Queue { device: device.clone(), kind, links: Mutex::default(), capture: Mutex::default() };
        Ok(Stream(Arc::new(Handle(Arc::new(queue)))))
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
        self.not_capturing("synchronize")?;
        self.0.wait_idle()?;
        self.check_links()
    }

    /// As [`Stream::synchronize`]; gives up waiting after `limit`, with the work still queued.
    ///
    /// # Errors
    /// As for [`Stream::synchronize`], and [`Error::Misuse`] when `limit` has passed.
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        self.not_capturing("synchronize")?;
        match &self.0.kind {
            Kind::Host(worker) if !worker.wait(Some(limit)) => {
                return Err(Error::misuse(format!(
                    "the stream was still busy after {limit:?}; nothing was cancelled"
                )));
            }
            Kind::Host(_) => {}
            Kind::Cuda(stream) => stream.synchronize_deadline(limit)?,
        }
        self.check_links()
    }

    /// Marks this point of the stream's work.
    ///
    /// # Errors
    /// [`Error::Misuse`] while capturing.
    pub fn record(&self) -> Result<Event> {
        self.not_capturing("Stream::record")?;
        Event::record(self)
    }

    /// Records what `body` queues as a graph instead of running it.
    ///
    /// # Errors
    /// Those of `body`; the stream is usable again in any case, also behind a panic of `body`.
    pub fn capture(&self, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
        {
            let mut capture = lock(&self.0.capture);
            if capture.is_some() {
                return Err(Error::misuse("the stream is capturing already"));
            }
            *capture = Some(Captured::default());
        }
        let recording = Recording(&self.0);
        // Relaxed: other streams, of a buffer or of a transport, are waited for inside.
        let graph = match &self.0.kind {
            Kind::Host(_) => body().map(|()| None),
            Kind::Cuda(stream) => stream.capture(cuda::CaptureMode::Relaxed, |_| body()).map(Some),
        };
        let captured = recording.end();
        Graph::new(self.device(), graph?, captured)
    }

    /// Whether the stream is recording a graph.
    pub fn is_capturing(&self) -> bool {
        self.0.is_capturing()
    }

    fn check_links(&self) -> Result<()> {
        let links = std::mem::take(&mut *lock(&self.0.links));
        let mut first = Ok(());
        for link in links {
            let verdict = link.check();
            if first.is_ok() {
                first = verdict;
            }
        }
        Ok(first?)
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
        if let Some(captured) = &mut *lock(&self.0.capture) {
            captured.ops.push(op);
        } else if let Kind::Host(worker) = &self.0.kind {
            worker.push(op);
        }
    }

    /// Runs `keep` on the capture, if there is one.
    pub(crate) fn captured(&self, keep: impl FnOnce(&mut Captured)) {
        if let Some(captured) = &mut *lock(&self.0.capture) {
            keep(captured);
        }
    }

    /// Notes that a kernel on `link` is queued: two streams' kernels on one link would break its channels, so the other stream is
    /// waited for.
    pub(crate) fn touch(&self, link: &Arc<Link>) -> Result<()> {
        if self.is_capturing() {
            self.captured(|c| {
                if !c.links.iter().any(|l| Arc::ptr_eq(l, link)) {
                    c.links.push(Arc::clone(link));
                }
            });
            return Ok(());
        }
        let before = link.swap_stream(Arc::downgrade(self.queue()) as _);
        if let Some(other) = before
            && !std::ptr::addr_eq(Arc::as_ptr(&other), Arc::as_ptr(self.queue()))
        {
            other.wait_idle()?;
        }
        let mut links = lock(&self.0.links);
        if !links.iter().any(|l| Arc::ptr_eq(l, link)) {
            links.push(Arc::clone(link));
        }
        Ok(())
    }

    /// Takes over what `other`, which is idle, has not reported yet: results of its kernels are used here. `other` reports it as well.
    pub(crate) fn answer_for(&self, other: &Queue) {
        let theirs = lock(&other.links).clone();
        let mut own = lock(&self.0.links);
        for link in theirs {
            if !own.iter().any(|l| Arc::ptr_eq(l, &link)) {
                own.push(link);
            }
        }
    }
}

/// A capture that is under way; it ends with this, also in a panic.
struct Recording<'q>(&'q Queue);

impl Recording<'_> {
    fn end(self) -> Captured {
        let captured = lock(&self.0.capture).take().unwrap_or_default();
        std::mem::forget(self);
        captured
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // What it kept may wait for the stream: not under the lock.
        let captured = lock(&self.0.capture).take();
        drop(captured);
    }
}

impl Queue {
    /// Waits without looking for faults.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        Ok(fusewire_transports::host::Queue::wait_idle(self)?)
    }

    pub(crate) fn is_capturing(&self) -> bool {
        lock(&self.capture).is_some()
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
        match &self.kind {
            Kind::Host(worker) => {
                worker.wait(None);
                Ok(())
            }
            Kind::Cuda(stream) => Ok(stream.synchronize()?),
        }
    }
}

impl Deref for Handle {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A panic is news that peers wait for: what runs is left to itself, with what it uses.
        if std::thread::panicking() {
            return std::mem::forget(Arc::clone(&self.0));
        }
        let _ = self.wait_idle();
        // Results may outlive the stream: whoever uses them is told of a fault. No link goes under the lock: its last end waits for peers.
        let links = std::mem::take(&mut *lock(&self.links));
        let (faulty, _done): (Vec<_>, Vec<_>) = links.into_iter().partition(|link| link.is_aborted());
        *lock(&self.links) = faulty;
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream on {:?}", self.0.device.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
