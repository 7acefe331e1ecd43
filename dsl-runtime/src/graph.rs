//! Graphs: what a stream captured, replayed as often as one likes. On a GPU it is a CUDA graph, on the host a list of operations.

use crate::buffer::Memory;
use crate::capture::Captured;
use crate::kernel::Held;
use crate::machine::Op;
use crate::order::Used;
use crate::residency::{Demand, Ledger};
use crate::schedule::told_protocol;
use crate::stream::Kind;
use crate::uses::{Access, Claims, in_order};
use crate::{Device, Result, Stream};
use fusewire_driver as cuda;
use fusewire_transports::host::{Collective, Cut, Link, Machine};
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// Captured work. Buffers, transports and kernels that it uses stay alive with it.
pub struct Graph {
    device: Device,
    template: Option<cuda::Graph>,
    exec: Option<Arc<cuda::GraphExec>>,
    ops: Vec<Op>,
    links: Vec<Used>,
    collectives: Vec<(Arc<Link>, Collective)>,
    memory: Vec<(Arc<Memory>, Access)>,
    /// Other resources that nodes use.
    kept: Held,
    demand: Demand,
    /// Of the GPU, if it is one.
    ledger: Option<Arc<Ledger>>,
}

impl Graph {
    pub(crate) fn new(device: &Device, graph: Option<cuda::Graph>, captured: Captured) -> Result<Self> {
        let exec = graph.as_ref().map(cuda::Graph::instantiate).transpose()?.map(Arc::new);
        let Captured { ops, mut links, collectives, memory, held, modules, demand, .. } = captured;
        let ledger = match &device.0 {
            Machine::Host => None,
            Machine::Cuda(context) => Some(Ledger::of(context)?),
        };
        // In which they are to be claimed by every launch.
        links.sort_by_key(|used| used.link.id());
        let memory = in_order(memory, Arc::as_ptr);
        Ok(Graph {
            device: device.clone(),
            template: graph,
            exec,
            ops,
            links,
            collectives,
            memory,
            kept: Arc::new((held, modules)),
            demand,
            ledger,
        })
    }

    /// Queues the upload to the GPU, so that the first replay is as fast as the others.
    pub(crate) fn upload(&self, stream: &Stream) -> Result<()> {
        if let (Kind::Cuda(s), Some(exec)) = (&stream.0.kind, &self.exec) {
            stream.queue().keep(exec);
            exec.upload(s)?;
        }
        Ok(())
    }

    /// Operations in the graph.
    pub fn node_count(&self) -> usize {
        self.exec.as_ref().map_or(self.ops.len(), |exec| exec.node_count())
    }

    /// The graph's CUDA handle (`CUgraph`), for other libraries that make it a child node. Null on CPU threads. They copy the graph, but this one keeps
    /// the resources of its nodes alive: do not drop it while theirs may be launched. Their replays are not seen here: from now on, this rank's launches on the graph's transports are not
    /// compared with those of the host's other ranks.
    pub fn as_raw(&self) -> *mut c_void {
        self.is_unseen();
        self.template.as_ref().map_or(std::ptr::null_mut(), |graph| graph.as_raw().cast())
    }

    /// Queues one replay. As a launch, it runs after other streams' work that uses its buffers or transports. The call waits only for
    /// host copies to or from one of the buffers. While the stream captures, by this library or by another, the graph becomes one node of
    /// the captured graph, which keeps all that it uses.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] on a stream of another device, if a stream that it must wait for is capturing, or if its kernels and those
    /// queued on other streams do not fit on the GPU together. [`crate::Error::Fault`] with [`crate::Operation::Disagreed`] if another rank of this host
    /// replays another graph of as many collectives.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.device.check_stream(stream)?;
        let _claims = Claims::of(stream, self.memory.iter().map(|(memory, access)| (memory, *access)))?;
        let _turns = stream.touch_all(&self.links)?;
        if stream.is_capturing() {
            return self.record(stream);
        }
        let grid = self.demand.whole();
        let ledger = self.ledger.as_ref().filter(|_| grid.blocks > 0);
        let _admitted = ledger.map(|l| l.admit(stream.queue(), grid, false)).transpose()?;
        if stream.is_recorded_unseen()? {
            self.is_unseen();
        }
        // Behind what can refuse it on this rank alone.
        if !self.note()? {
            return Ok(());
        }
        match (&stream.0.kind, &self.exec) {
            (Kind::Cuda(s), Some(exec)) => {
                stream.queue().keep(exec);
                // SAFETY: the graph keeps everything it refers to; it runs behind the streams that used that last, and others come
                // when the claims end.
                let launch = || unsafe { exec.launch(s) };
                let queued = stream.queue().pending.launch(s, exec.node_count() as u32, launch);
                queued.inspect_err(|_| self.take_back(usize::MAX))?;
            }
            _ => self.ops.iter().for_each(|op| stream.push(Arc::clone(op))),
        }
        Ok(())
    }

    /// Nobody here sees the replays of a graph of others' that this one becomes a node of.
    fn is_unseen(&self) {
        self.collectives.iter().for_each(|(link, _)| link.has_unseen());
    }

    /// Notes a replay on each transport that its launches are of; `false` if it is not to be queued.
    fn note(&self) -> Result<bool> {
        for (noted, used) in self.links.iter().filter(|used| used.told).enumerate() {
            let all = self.collectives.iter().find(|(link, _)| Arc::ptr_eq(link, &used.link));
            let (all, how) = (all.map(|(_, all)| all), ["a replay of a graph", ""]);
            let told = used.link.note("", how, None, Cut::default(), all, told_protocol);
            if !matches!(told, Ok(true)) {
                self.take_back(noted);
                return Ok(told?);
            }
        }
        Ok(true)
    }

    /// The replay that was noted last, on so many transports, was not queued.
    fn take_back(&self, noted: usize) {
        for used in self.links.iter().filter(|used| used.told).take(noted) {
            let all = self.collectives.iter().filter(|(link, _)| Arc::ptr_eq(link, &used.link));
            all.for_each(|(link, all)| link.take_back(all));
        }
    }

    /// Becomes a node of the graph that the stream captures.
    fn record(&self, stream: &Stream) -> Result<()> {
        stream.captured(|captured| {
            captured.held.push(Arc::clone(&self.kept));
            self.collectives.iter().for_each(|(link, all)| captured.records(link, all));
            let grid = self.demand.whole();
            if let Some(ledger) = self.ledger.as_ref().filter(|_| grid.blocks > 0) {
                captured.demand.captured(ledger, grid, false);
            }
        });
        match (&stream.0.kind, &self.template) {
            // SAFETY: the capture keeps everything the graph refers to, and whoever replays it orders it as this graph.
            (Kind::Cuda(s), Some(graph)) => unsafe { graph.record(s)? },
            _ => self.ops.iter().for_each(|op| stream.push(Arc::clone(op))),
        }
        Ok(())
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph of {} operations on {:?}", self.node_count(), self.device.0)
    }
}
