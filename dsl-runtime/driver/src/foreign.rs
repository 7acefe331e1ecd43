//! What other libraries of the process have made: their streams, their captures, their memory.

use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;

use crate::error::{Error, Result, check};
use crate::handle::Handle;
use crate::{Context, DevicePtr, Stream};

/// What a graph of somebody else keeps alive.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// What destroyed graphs have let go. The driver forbids its own functions where it destroys a graph, so nothing is dropped there.
static LET_GO: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// A capture that is under way on a stream, whoever began it.
#[derive(Debug)]
pub struct Recording {
    id: u64,
    pub(crate) graph: Handle<sys::CUgraph>,
    /// The nodes that the next one stands behind.
    pub(crate) before: Vec<sys::CUgraphNode>,
    context: Context,
}

impl Stream {
    /// A stream that somebody else made. It is used and not destroyed.
    ///
    /// # Safety
    /// `raw` is null, which is the legacy default stream, or a stream that lives as long as this value and its clones.
    ///
    /// # Errors
    /// [`Error::Misuse`] for the default stream of a thread, for a stream of another context and for one of a green context;
    /// [`Error::Call`] otherwise.
    pub unsafe fn borrowed(context: &Context, raw: sys::CUstream) -> Result<Self> {
        /// `CU_STREAM_PER_THREAD`.
        const PER_THREAD: usize = 2;
        if raw.addr() == PER_THREAD {
            return Err(Error::misuse(
                "the default stream of a thread is another one on each thread, and has no handle of its own: make a stream",
            ));
        }
        context.bind()?;
        let what = || format!("looking at a stream of {}", context.device());
        let (mut green, mut own) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the caller vouches for the stream; `green` is a valid out-pointer.
        let result = unsafe { sys::cuStreamGetGreenCtx(raw, &mut green) };
        check(result, "cuStreamGetGreenCtx", what)?;
        if !green.is_null() {
            return Err(Error::misuse(format!(
                "the stream runs kernels on some of the multiprocessors of {} (a green context), and launches are planned for all: use a \
                 stream of its primary context",
                context.device()
            )));
        }
        // SAFETY: as above.
        let result = unsafe { sys::cuStreamGetCtx(raw, &mut own) };
        check(result, "cuStreamGetCtx", what)?;
        if own != context.as_raw() {
            return Err(Error::misuse(format!(
                "the stream is of another context than the primary one of {}: make it on that device, behind `cudaSetDevice` or \
                 `cuDevicePrimaryCtxRetain`",
                context.device()
            )));
        }
        Ok(Self::of_others(context, raw))
    }

    /// The capture that is under way, if there is one.
    ///
    /// # Errors
    /// [`Error::Capture`] if it has become invalid; [`Error::Call`] otherwise, as of the legacy default stream while another stream of the
    /// context captures.
    pub fn recording(&self) -> Result<Option<Recording>> {
        use sys::CUstreamCaptureStatus::*;
        self.context().bind()?;
        let (mut status, mut id, mut graph) = (CU_STREAM_CAPTURE_STATUS_NONE, 0, ptr::null_mut());
        // Without a place for the edges the driver refuses to tell the rest of kernels that are set up early.
        let (mut before, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the stream is alive; all pointers are valid out-pointers.
        let result = unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                self.as_raw(),
                &mut status,
                &mut id,
                &mut graph,
                &mut before,
                &mut edges,
                &mut count,
            )
        };
        let what = || format!("asking for the capture of a stream of {}", self.context().device());
        check(result, "cuStreamGetCaptureInfo", what)?;
        match status {
            CU_STREAM_CAPTURE_STATUS_NONE => Ok(None),
            CU_STREAM_CAPTURE_STATUS_ACTIVE => {
                // SAFETY: so many, until something else is done with the stream.
                let before = unsafe { nodes(before, count) };
                Ok(Some(Recording { id, graph: Handle(graph), before, context: self.context().clone() }))
            }
            CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
                check(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamGetCaptureInfo", what)?;
                Ok(None)
            }
        }
    }
}

/// # Safety
/// There are `count` nodes at `at`, which may be null if there is none.
unsafe fn nodes(at: *const sys::CUgraphNode, count: usize) -> Vec<sys::CUgraphNode> {
    match at.is_null() {
        true => Vec::new(),
        // SAFETY: the caller's contract.
        false => unsafe { std::slice::from_raw_parts(at, count) }.to_vec(),
    }
}

impl Recording {
    /// Tells captures of the process apart.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Keeps `what` until the graph is destroyed, with all that were instantiated or cloned from it (`cuGraphRetainUserObject`). Then it
    /// is among what [`let_go`] returns. Called by the thread that queues work on the stream.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails; `what` is dropped then.
    pub fn keep(&self, what: Kept) -> Result<()> {
        self.context.bind()?;
        let owner = Box::into_raw(Box::new(what));
        let mut object = ptr::null_mut();
        let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
        // SAFETY: `object` is a valid out-pointer; `release_kept` takes what was boxed here, once: at the last reference, of which there is one.
        let result =
            unsafe { sys::cuUserObjectCreate(&mut object, owner.cast(), Some(release_kept), 1, flags) };
        let about = || "keeping what a captured launch uses".to_owned();
        if let Err(error) = check(result, "cuUserObjectCreate", about) {
            // SAFETY: boxed above, and the driver has not taken it.
            drop(unsafe { Box::from_raw(owner) });
            return Err(error);
        }
        let moved = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
        // SAFETY: the graph is under capture on a live stream, and this thread queues on that; the one reference becomes the graph's.
        let result = unsafe { sys::cuGraphRetainUserObject(self.graph.0, object, 1, moved) };
        check(result, "cuGraphRetainUserObject", about).inspect_err(|_| {
            // SAFETY: the reference is still ours.
            let _ = unsafe { sys::cuUserObjectRelease(object, 1) };
        })
    }
}

unsafe extern "C" fn release_kept(owner: *mut c_void) {
    // SAFETY: boxed by `Recording::keep`; the driver calls this once.
    let kept = unsafe { Box::from_raw(owner.cast::<Kept>()) };
    LET_GO.lock().unwrap_or_else(PoisonError::into_inner).push(*kept);
}

/// What graphs have let go since this was called last, to be dropped where the driver may be called.
pub fn let_go() -> Vec<Kept> {
    std::mem::take(&mut LET_GO.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The number of the device whose memory an address is in; `None` for memory of the host that CUDA knows.
///
/// # Errors
/// [`Error::Misuse`] for an address that CUDA does not know, [`Error::Call`] otherwise.
pub fn device_of(context: &Context, address: DevicePtr) -> Result<Option<usize>> {
    context.bind()?;
    let (mut kind, mut ordinal) = (0u32, -1i32);
    let mut asked = [
        sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut answers = [ptr::from_mut(&mut kind).cast(), ptr::from_mut(&mut ordinal).cast::<c_void>()];
    // SAFETY: each answer has room for its attribute, which is of 32 bits; any address may be asked about.
    let result =
        unsafe { sys::cuPointerGetAttributes(2, asked.as_mut_ptr(), answers.as_mut_ptr(), address.as_u64()) };
    check(result, "cuPointerGetAttributes", || format!("asking where {address} is"))?;
    match kind {
        // So it answers for an address that it does not know.
        0 => return Err(Error::misuse(format!("{address} is no address in memory that CUDA knows"))),
        kind if kind != sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 => return Ok(None),
        _ => {}
    }
    Ok(Some(ordinal as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_graph_lets_go_is_dropped_later() {
        let kept: Kept = Arc::new(7u32);
        let owner = Box::into_raw(Box::new(Arc::clone(&kept)));
        // SAFETY: as the driver calls it.
        unsafe { release_kept(owner.cast()) };
        assert_eq!(Arc::strong_count(&kept), 2);
        assert_eq!(let_go().len(), 1);
        assert_eq!(Arc::strong_count(&kept), 1);
        assert!(let_go().is_empty());
    }
}
