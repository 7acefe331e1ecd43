//! Captures: what a stream records in place of running it.

use crate::aside::Aside;
use crate::buffer::Memory;
use crate::foreign::Kept;
use crate::kernel::Held;
use crate::machine::Op;
use crate::order::Used;
use crate::residency::Demand;
use crate::stream::{Kind, Queue, lock};
use crate::uses::{Access, Capture};
use crate::{Error, Result};
use fusewire_driver as cuda;
use fusewire_transports::host::{Collective, Link};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a capture has collected: operations (host), and what must outlive the graph.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) ops: Vec<Op>,
    pub(crate) links: Vec<Used>,
    /// What a replay launches that every rank does, on each link.
    pub(crate) collectives: Vec<(Arc<Link>, Collective)>,
    pub(crate) memory: Vec<(Arc<Memory>, Access)>,
    pub(crate) held: Vec<Held>,
    pub(crate) modules: Vec<cuda::Function>,
    pub(crate) demand: Demand,
    pub(crate) aside: Option<Arc<Aside>>,
    pub(crate) under_way: Arc<Capture>,
    /// Of somebody else's capture: what their graph keeps.
    pub(crate) kept: Option<Arc<Kept>>,
}

impl Captured {
    /// The graph has such launches as well.
    pub(crate) fn records(&mut self, link: &Arc<Link>, launch: &Collective) {
        if self.kept.is_some() {
            // Nobody here sees its replays.
            return link.has_unseen();
        }
        match self.collectives.iter_mut().find(|(known, _)| Arc::ptr_eq(known, link)) {
            Some((_, all)) => *all = all.then(launch),
            None => self.collectives.push((Arc::clone(link), *launch)),
        }
    }
}

/// A capture that is under way; it ends with this, also in a panic.
pub(crate) struct Recording<'q> {
    queue: &'q Arc<Queue>,
    driver: Option<cuda::Capture>,
}

impl<'q> Recording<'q> {
    pub(crate) fn begin(queue: &'q Arc<Queue>) -> Result<Self> {
        queue.notice()?;
        let _alone = queue.alone();
        if queue.is_capturing() {
            return Err(Error::misuse("the stream is capturing already"));
        }
        let driver = match &queue.kind {
            Kind::Host(_) => None,
            // Relaxed: what is queued inside on other streams may wait.
            Kind::Cuda(stream) => Some(stream.begin_capture(cuda::CaptureMode::Relaxed)?),
        };
        queue.own_capture(true)?;
        *lock(&queue.capture) = Some(Captured::default());
        queue.capturing.store(true, Ordering::Release);
        Ok(Recording { queue, driver })
    }

    pub(crate) fn end(mut self) -> Result<(Option<cuda::Graph>, Captured)> {
        let (graph, captured) = self.stop();
        std::mem::forget(self);
        Ok((graph?, captured))
    }

    /// Ends what the driver records and what is kept for it in one: nobody queues between.
    fn stop(&mut self) -> (Result<Option<cuda::Graph>>, Captured) {
        let _alone = self.queue.alone();
        let graph = self.driver.take().map(cuda::Capture::end).transpose();
        let captured = lock(&self.queue.capture).take().unwrap_or_default();
        self.queue.capturing.store(false, Ordering::Release);
        let _ = self.queue.own_capture(false);
        (graph.map_err(Error::from), captured)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // What it kept may wait for the stream: dropped behind the lock.
        let _stopped = self.stop();
    }
}
