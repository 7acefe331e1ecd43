//! Driver handles as values that may be shared between threads.

use cudarc::driver::sys;

/// The pointer types that `cuda.h` uses as opaque handles.
pub(crate) trait Opaque: Copy {}

impl Opaque for sys::CUcontext {}
impl Opaque for sys::CUmodule {}
impl Opaque for sys::CUfunction {}
impl Opaque for sys::CUstream {}
impl Opaque for sys::CUevent {}
impl Opaque for sys::CUgraph {}
impl Opaque for sys::CUgraphExec {}

/// An opaque driver handle. It is never dereferenced here, only handed back to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle<P: Opaque>(pub(crate) P);

// SAFETY: the handle is a name for an object that the driver owns and is not tied to the thread that made it;
// every driver function that takes it may be called on any thread.
unsafe impl<P: Opaque> Send for Handle<P> {}

// SAFETY: the driver synchronises its own objects, graphs excepted ("graph objects are not internally
// synchronized"); `graph.rs` keeps each graph handle behind a mutex.
unsafe impl<P: Opaque> Sync for Handle<P> {}
