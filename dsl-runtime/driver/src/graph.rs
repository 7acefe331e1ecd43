//! Graphs: work captured once and launched many times.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use crate::context::release;
use crate::error::{Error, Result, check};
use crate::foreign::Recording;
use crate::handle::Handle;
use crate::{Context, Stream};

/// Which calls a capture forbids while it lasts (`CUstreamCaptureMode`).
///
/// Calls such as allocating or synchronising a device may wait for, or add to, the captured stream. Where one
/// is forbidden it fails and invalidates the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// To every thread of the process.
    Global,
    /// To the capturing thread only. The right choice where several ranks are threads of one process.
    #[default]
    ThreadLocal,
    /// To none.
    Relaxed,
}

impl CaptureMode {
    fn raw(self) -> sys::CUstreamCaptureMode {
        use sys::CUstreamCaptureMode_enum::*;
        match self {
            Self::Global => CU_STREAM_CAPTURE_MODE_GLOBAL,
            Self::ThreadLocal => CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Self::Relaxed => CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

/// A capture that is going on. Dropping it ends the capture, throws away what was captured and leaves the
/// stream usable.
///
/// The driver wants a capture ended by the thread that began it, so this value stays on its thread.
#[derive(Debug)]
#[must_use = "dropping a capture throws away what was captured"]
pub struct Capture {
    stream: Stream,
    ended: bool,
    /// Neither `Send` nor `Sync`.
    thread: PhantomData<*const ()>,
}

impl Stream {
    /// Records what `body` queues on this stream, instead of running it (`cuStreamBeginCapture`,
    /// `cuStreamEndCapture`).
    ///
    /// If `body` fails or panics, the capture is ended and thrown away, and its own error is returned.
    ///
    /// # Errors
    /// That of `body`; [`Error::Misuse`] if the stream is capturing already; [`Error::Capture`] with the reason
    /// if something in `body` invalidated the capture.
    pub fn capture<E: From<Error>>(
        &self,
        mode: CaptureMode,
        body: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Graph, E> {
        let capture = self.begin_capture(mode)?;
        body(self)?;
        Ok(capture.end()?)
    }

    /// Begins a capture that the returned guard ends.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the stream is capturing already, [`Error::Call`] otherwise.
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<Capture> {
        self.refuse_capture("begin a capture of")?;
        // SAFETY: the stream is alive and its context was made current by the check above.
        let result = unsafe { sys::cuStreamBeginCapture_v2(self.as_raw(), mode.raw()) };
        check(result, "cuStreamBeginCapture", || {
            format!("beginning to capture a stream of {}", self.context().device())
        })?;
        Ok(Capture { stream: self.clone(), ended: false, thread: PhantomData })
    }
}

impl Capture {
    /// The captured stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Ends the capture and returns what was captured (`cuStreamEndCapture`).
    ///
    /// # Errors
    /// [`Error::Capture`] with the reason if the capture was invalidated; the stream is usable again.
    pub fn end(mut self) -> Result<Graph> {
        self.ended = true;
        let context = self.stream.context().clone();
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the stream is alive, was put into capture by this thread, and `raw` is a valid out-pointer.
        let result = unsafe { sys::cuStreamEndCapture(self.stream.as_raw(), &mut raw) };
        let graph = (!raw.is_null()).then(|| Graph { raw: Mutex::new(Handle(raw)), context });
        check(result, "cuStreamEndCapture", || {
            format!("ending the capture of a stream of {}", self.stream.context().device())
        })?;
        graph.ok_or_else(|| Error::misuse("the capture recorded no graph: queue work in it"))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut raw = ptr::null_mut();
        // SAFETY: as in `end`; a graph that comes out is destroyed and used by nobody else.
        release(Some(self.stream.context()), || unsafe {
            let ended = sys::cuStreamEndCapture(self.stream.as_raw(), &mut raw);
            if !raw.is_null() {
                let _ = sys::cuGraphDestroy(raw);
            }
            ended
        });
    }
}

/// Captured work: a template from which executable graphs are made.
pub struct Graph {
    raw: Mutex<Handle<sys::CUgraph>>,
    context: Context,
}

impl Graph {
    /// The number of nodes: kernels, copies, sets (`cuGraphGetNodes`).
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn node_count(&self) -> Result<usize> {
        self.context.bind()?;
        let mut count = 0;
        let raw = lock(&self.raw);
        // SAFETY: the graph is alive and locked; with a null array the driver only writes the count.
        let result = unsafe { sys::cuGraphGetNodes(raw.0, ptr::null_mut(), &mut count) };
        check(result, "cuGraphGetNodes", || "counting the nodes of a graph".to_owned())?;
        Ok(count)
    }

    /// Makes a graph that can be launched (`cuGraphInstantiateWithFlags`). Later changes to this one do not
    /// reach it.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn instantiate(&self) -> Result<GraphExec> {
        let nodes = self.node_count()?;
        let mut exec = ptr::null_mut();
        let raw = lock(&self.raw);
        // SAFETY: the graph is alive and locked; `exec` is a valid out-pointer; zero asks for no option.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, raw.0, 0) };
        let what = || format!("instantiating a graph of {nodes} nodes on {}", self.context.device());
        check(result, "cuGraphInstantiateWithFlags", what)?;
        Ok(GraphExec {
            raw: Mutex::new(Handle(exec)),
            context: self.context.clone(),
            nodes,
            kept: Vec::new(),
        })
    }

    /// The driver's handle. The driver does not synchronise graphs: use it on one thread at a time.
    pub fn as_raw(&self) -> sys::CUgraph {
        lock(&self.raw).0
    }

    /// Puts a copy of the graph, as one node, behind what a stream that captures has recorded (`cuGraphAddChildGraphNode`).
    ///
    /// # Safety
    /// As for [`GraphExec::launch`], for as long as the other graph may be launched.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the stream is of another context or does not capture, [`Error::Call`] otherwise.
    pub unsafe fn record(&self, stream: &Stream) -> Result<()> {
        self.context.expect_same(stream.context(), "a graph and the stream that records it")?;
        let Some(Recording { graph, before, .. }) = stream.recording()? else {
            return Err(Error::misuse("a graph is recorded by a stream that captures"));
        };
        let own = lock(&self.raw);
        let mut node = ptr::null_mut();
        // SAFETY: both graphs are alive; the nodes are the other's, which only this thread records into; `node` is a valid out-pointer.
        let result = unsafe {
            sys::cuGraphAddChildGraphNode(&mut node, graph.0, before.as_ptr(), before.len(), own.0)
        };
        check(result, "cuGraphAddChildGraphNode", || "recording a graph in another".to_owned())?;
        let set = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
        // SAFETY: a node of the graph that the stream records, in place of those behind which it stands.
        let result = unsafe {
            sys::cuStreamUpdateCaptureDependencies_v2(stream.as_raw(), &mut node, ptr::null(), 1, set)
        };
        check(result, "cuStreamUpdateCaptureDependencies", || "going on behind a graph".to_owned())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let raw = lock(&self.raw).0;
        // SAFETY: the one owner is going; executable graphs made from it do not refer to it.
        release(Some(&self.context), || unsafe { sys::cuGraphDestroy(raw) });
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("context", &self.context).finish_non_exhaustive()
    }
}

/// A graph ready to be launched.
pub struct GraphExec {
    raw: Mutex<Handle<sys::CUgraphExec>>,
    context: Context,
    nodes: usize,
    /// Dropped after the graph, which is destroyed by `Drop`.
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl GraphExec {
    /// Queues all of the graph's work on a stream (`cuGraphLaunch`). A launch waits for the one before it.
    ///
    /// # Safety
    /// What was promised when the work was captured holds now and until this launch has ended: memory, modules
    /// and parameters that the nodes use are alive ([`GraphExec::keep`] helps) and not touched in a racing way.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the stream is of another context, [`Error::Call`] otherwise.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        let raw = self.ready(stream)?;
        let _turn = self.context.submitting();
        // SAFETY: the graph is alive and locked, the stream alive; the caller vouches for the work.
        let result = unsafe { sys::cuGraphLaunch(raw.0, stream.as_raw()) };
        check(result, "cuGraphLaunch", || self.what("launching"))
    }

    /// Sends the graph to the device without running it, so that the first launch costs no more than later
    /// ones (`cuGraphUpload`).
    ///
    /// # Errors
    /// As [`GraphExec::launch`].
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let raw = self.ready(stream)?;
        let _turn = self.context.submitting();
        // SAFETY: the graph is alive and locked, the stream alive; nothing is run.
        let result = unsafe { sys::cuGraphUpload(raw.0, stream.as_raw()) };
        check(result, "cuGraphUpload", || self.what("uploading"))
    }

    fn ready(&self, stream: &Stream) -> Result<MutexGuard<'_, Handle<sys::CUgraphExec>>> {
        self.context.expect_same(stream.context(), "a graph and its stream")?;
        self.context.bind()?;
        Ok(lock(&self.raw))
    }

    fn what(&self, doing: &str) -> String {
        format!("{doing} a graph of {} nodes on {}", self.nodes, self.context.device())
    }

    /// Keeps `owner` alive as long as this graph: a [`crate::Module`], memory that the nodes use.
    pub fn keep(&mut self, owner: impl Any + Send + Sync) {
        self.kept.push(Box::new(owner));
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes
    }

    /// The driver's handle. The driver does not synchronise graphs: use it on one thread at a time.
    pub fn as_raw(&self) -> sys::CUgraphExec {
        lock(&self.raw).0
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let raw = lock(&self.raw).0;
        // SAFETY: the one owner is going. The driver frees a graph that is running once it has ended.
        release(Some(&self.context), || unsafe { sys::cuGraphExecDestroy(raw) });
    }
}

impl fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphExec")
            .field("context", &self.context)
            .field("nodes", &self.nodes)
            .field("kept", &self.kept.len())
            .finish_non_exhaustive()
    }
}

/// The handle, whether or not a thread has panicked while it held the lock: the lock guards calls, no state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
