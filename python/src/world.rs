//! Worlds.

use crate::api::Api;
use crate::error::{misuse, waiting};
use crate::handle::{Handle, Passed};
use crate::kernel::Library;
use fusewire_capi::{FUSEWIRE_UNIQUE_ID_BYTES, fusewire_status, fusewire_world};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ptr;
use std::sync::Arc;

/// The ranks of a job.
#[pyclass(frozen, subclass, module = "fusewire._fusewire")]
pub struct World {
    pub handle: Arc<Handle<fusewire_world>>,
}

/// Milliseconds of the interface: 0 is its default.
pub fn milliseconds(py: Python<'_>, seconds: Option<f64>, name: &str) -> PyResult<u64> {
    match seconds {
        None => Ok(0),
        Some(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok((seconds * 1e3).ceil() as u64),
        Some(seconds) => {
            Err(misuse(py, format!("{name}={seconds}: it should be a number of seconds above 0")))
        }
    }
}

fn made(
    py: Python<'_>,
    api: &'static Api,
    make: impl FnOnce(*mut *mut fusewire_world) -> fusewire_status + Send,
) -> PyResult<World> {
    let mut at = Passed(ptr::null_mut());
    let out = Passed(&raw mut at.0);
    waiting(py, api, move || make(out.get()))?;
    // SAFETY: made just now.
    Ok(World { handle: Arc::new(unsafe { Handle::new(api, at.0, api.fusewire_world_free) }) })
}

impl World {
    /// Runs a call on the world without the interpreter's lock.
    pub fn on(
        &self,
        py: Python<'_>,
        call: impl FnOnce(*mut fusewire_world) -> fusewire_status + Send,
    ) -> PyResult<()> {
        let at = self.handle.get();
        waiting(py, self.handle.api, move || call(at.get()))
    }
}

#[pymethods]
impl World {
    /// Meets the ranks that the same launcher started. Collective.
    #[staticmethod]
    #[pyo3(signature = (library, timeout=None))]
    fn from_env(py: Python<'_>, library: &Library, timeout: Option<f64>) -> PyResult<Self> {
        let (api, timeout) = (library.api, milliseconds(py, timeout, "timeout")?);
        // SAFETY: `out` takes the world.
        made(py, api, move |out| unsafe { (api.fusewire_world_from_env)(timeout, out) })
    }

    /// A world of this rank alone.
    #[staticmethod]
    fn single(py: Python<'_>, library: &Library) -> PyResult<Self> {
        let api = library.api;
        // SAFETY: `out` takes the world.
        made(py, api, move |out| unsafe { (api.fusewire_world_single)(out) })
    }

    /// Meets the ranks that have the same id. Collective.
    #[staticmethod]
    #[pyo3(signature = (library, id, rank, size, timeout=None))]
    fn connect(
        py: Python<'_>,
        library: &Library,
        id: &[u8],
        rank: usize,
        size: usize,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let (api, timeout) = (library.api, milliseconds(py, timeout, "timeout")?);
        if id.len() != FUSEWIRE_UNIQUE_ID_BYTES {
            let what = format!("an id of {} bytes; `unique_id()` makes {FUSEWIRE_UNIQUE_ID_BYTES}", id.len());
            return Err(misuse(py, what));
        }
        // SAFETY: as many bytes, and `out` takes the world.
        made(py, api, move |out| unsafe {
            (api.fusewire_world_connect)(id.as_ptr(), rank, size, timeout, out)
        })
    }

    /// This rank.
    #[getter]
    fn rank(&self) -> usize {
        // SAFETY: the world is there.
        unsafe { (self.handle.api.fusewire_world_rank)(self.handle.get().0) }
    }

    /// Ranks.
    #[getter]
    fn size(&self) -> usize {
        // SAFETY: the world is there.
        unsafe { (self.handle.api.fusewire_world_size)(self.handle.get().0) }
    }

    /// This rank among those of its host.
    #[getter]
    fn local_rank(&self) -> usize {
        // SAFETY: the world is there.
        unsafe { (self.handle.api.fusewire_world_local_rank)(self.handle.get().0) }
    }

    /// The ranks with the same color, in the order of key. Collective.
    #[pyo3(signature = (color, key=0))]
    fn _split(&self, py: Python<'_>, color: u64, key: u64) -> PyResult<Self> {
        let (api, at) = (self.handle.api, self.handle.get());
        // SAFETY: the world is there, and `out` takes the new one.
        made(py, api, move |out| unsafe { (api.fusewire_world_split)(at.get(), color, key, out) })
    }

    /// Gives the bytes of root, which is as many on every rank, to all. Collective.
    #[pyo3(signature = (data, root=0))]
    fn broadcast<'py>(&self, py: Python<'py>, data: &[u8], root: usize) -> PyResult<Bound<'py, PyBytes>> {
        let (mut bytes, api) = (data.to_vec(), self.handle.api);
        let room = bytes.as_mut_slice();
        // SAFETY: `room` is written while it is borrowed.
        self.on(py, |world| unsafe {
            (api.fusewire_world_broadcast)(world, root, room.as_mut_ptr(), room.len())
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Waits for every rank. Collective.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: the world is there.
        self.on(py, |world| unsafe { (self.handle.api.fusewire_world_barrier)(world) })
    }

    /// Waits until every rank is done with the world, or is gone, and leaves it. Collective.
    fn _teardown(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: the world is there.
        self.on(py, |world| unsafe { (self.handle.api.fusewire_world_teardown)(world) })
    }
}
