//! An open transport, as launchers, memory and streams of it share it.

use crate::error::{checked, misuse};
use crate::handle::Handle;
use fusewire_capi::{fusewire_stream, fusewire_transport, fusewire_world};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub struct Open {
    pub handle: Handle<fusewire_transport>,
    /// Number of the GPU; -1 for CPU threads.
    pub device: i32,
    pub name: String,
    pub rank: usize,
    pub size: usize,
    own: OnceLock<Arc<Handle<fusewire_stream>>>,
    wrapped: Mutex<HashMap<usize, Arc<Handle<fusewire_stream>>>>,
    _world: Arc<Handle<fusewire_world>>,
}

impl Open {
    /// A transport of `world`, with no stream yet; `device` and `rank_of_size` as it has them.
    pub fn new(
        handle: Handle<fusewire_transport>,
        name: &str,
        device: i32,
        rank_of_size: (usize, usize),
        world: &Arc<Handle<fusewire_world>>,
    ) -> Self {
        let (rank, size) = rank_of_size;
        let (own, wrapped) = (OnceLock::new(), Mutex::default());
        Open { handle, device, name: name.into(), rank, size, own, wrapped, _world: Arc::clone(world) }
    }

    /// All streams that its kernels have run on.
    pub fn streams(&self) -> Vec<Arc<Handle<fusewire_stream>>> {
        let wrapped = self.wrapped.lock().unwrap_or_else(PoisonError::into_inner);
        wrapped.values().chain(self.own.get()).map(Arc::clone).collect()
    }

    /// The transport's own stream.
    pub fn own(&self, py: Python<'_>) -> PyResult<Arc<Handle<fusewire_stream>>> {
        if let Some(stream) = self.own.get() {
            return Ok(Arc::clone(stream));
        }
        let (api, mut at) = (self.handle.api, ptr::null_mut());
        // SAFETY: the transport is there, and `at` takes the stream.
        checked(py, api, unsafe { (api.fusewire_stream_new)(self.handle.get().0, &mut at) })?;
        // SAFETY: made just now. Another thread may have made one meanwhile: then this is dropped.
        let made = Arc::new(unsafe { Handle::new(api, at, api.fusewire_stream_free) });
        Ok(Arc::clone(self.own.get_or_init(|| made)))
    }

    /// A stream of somebody else's, by its handle of CUDA.
    pub fn wrapped(&self, py: Python<'_>, raw: usize) -> PyResult<Arc<Handle<fusewire_stream>>> {
        let mut wrapped = self.wrapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = wrapped.get(&raw) {
            return Ok(Arc::clone(stream));
        }
        let (api, mut at) = (self.handle.api, ptr::null_mut());
        // SAFETY: the transport is there; the caller names a stream that lives as long as work is queued on it.
        let status = unsafe { (api.fusewire_stream_wrap)(self.handle.get().0, raw as *mut c_void, &mut at) };
        checked(py, api, status)?;
        // SAFETY: made just now.
        let stream = Arc::new(unsafe { Handle::new(api, at, api.fusewire_stream_free) });
        wrapped.insert(raw, Arc::clone(&stream));
        Ok(stream)
    }

    /// What a launch runs on: what was given; the producer's current stream; on CPU threads the transport's own.
    pub fn stream(
        &self,
        py: Python<'_>,
        given: Option<usize>,
        current: Option<usize>,
    ) -> PyResult<Arc<Handle<fusewire_stream>>> {
        match (self.device, given.or(current)) {
            (-1, _) => self.own(py),
            (_, Some(raw)) => self.wrapped(py, raw),
            (_, None) => Err(misuse(
                py,
                "these tensors do not say what stream they are used on: name one, as in `stream=cupy.cuda.get_current_stream()`",
            )),
        }
    }
}
