//! Streams.

use crate::error::waiting;
use crate::handle::Handle;
use crate::world::milliseconds;
use fusewire_capi::fusewire_stream;
use pyo3::prelude::*;
use std::sync::Arc;

/// A queue of launches that run in order.
#[pyclass(frozen, module = "fusewire._fusewire")]
pub struct Stream {
    pub handle: Arc<Handle<fusewire_stream>>,
}

impl Stream {
    pub fn synchronized(&self, py: Python<'_>, limit_ms: u64) -> PyResult<()> {
        let (api, at) = (self.handle.api, self.handle.get());
        // SAFETY: the stream is there.
        waiting(py, api, move || unsafe { (api.fusewire_stream_synchronize)(at.get(), limit_ms) })
    }
}

#[pymethods]
impl Stream {
    /// Its handle of CUDA, as `torch.cuda.ExternalStream` takes it; 0 on CPU threads.
    #[getter]
    fn cuda_stream(&self) -> usize {
        // SAFETY: the stream is there.
        unsafe { (self.handle.api.fusewire_stream_raw)(self.handle.get().0) }.addr()
    }

    /// The protocol of CUDA Python.
    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.cuda_stream())
    }

    /// Waits for everything queued so far. A fault of a kernel comes out here.
    #[pyo3(signature = (limit=None))]
    fn synchronize(&self, py: Python<'_>, limit: Option<f64>) -> PyResult<()> {
        self.synchronized(py, milliseconds(py, limit, "limit")?)
    }
}

/// The handle of CUDA in what users give as a stream: a number, or an object of torch, cupy or CUDA Python.
pub fn raw(stream: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = stream.py();
    if let Ok(handle) = stream.extract::<usize>() {
        return Ok(handle);
    }
    for name in [pyo3::intern!(py, "cuda_stream"), pyo3::intern!(py, "ptr")] {
        if let Ok(handle) = stream.getattr(name).and_then(|handle| handle.extract::<usize>()) {
            return Ok(handle);
        }
    }
    if let Ok(method) = stream.getattr(pyo3::intern!(py, "__cuda_stream__")) {
        return Ok(method.call0()?.extract::<(u32, usize)>()?.1);
    }
    let what = "`stream` should be a number, a torch.cuda.Stream, a cupy stream, or have `__cuda_stream__`";
    Err(crate::error::misuse(py, what))
}
