//! Transports.

use crate::error::{checked, misuse, waiting};
use crate::handle::{Handle, Passed};
use crate::kernel::Kernel;
use crate::launch::Launcher;
use crate::open::Open;
use crate::pool;
use crate::stream::Stream;
use crate::symmetric::Symmetric;
use crate::world::{World, milliseconds};
use fusewire_capi::{FUSEWIRE_NO_LL128, fusewire_transport_options};
use pyo3::prelude::*;
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

/// A transport, with the streams that its kernels have run on.
#[pyclass(frozen, subclass, module = "fusewire._fusewire")]
pub struct Transport {
    pub open: Arc<Open>,
}

#[pymethods]
impl Transport {
    #[new]
    #[pyo3(signature = (world, name, *, window=None, channels=None, ll128_channels=None, ll_channels=None, deadline=None))]
    #[allow(clippy::too_many_arguments)] // of Python, by name
    fn new(
        py: Python<'_>,
        world: &World,
        name: &str,
        window: Option<usize>,
        channels: Option<u32>,
        ll128_channels: Option<u32>,
        ll_channels: Option<u32>,
        deadline: Option<f64>,
    ) -> PyResult<Self> {
        let flagged =
            |channels: Option<u32>| channels.map_or(0, |n| if n == 0 { FUSEWIRE_NO_LL128 } else { n });
        let options = fusewire_transport_options {
            per_peer_bytes: window.unwrap_or(0),
            channels: channels.unwrap_or(0),
            ll128_channels: flagged(ll128_channels),
            ll_channels: flagged(ll_channels),
            deadline_ms: milliseconds(py, deadline, "deadline")?,
        };
        let c_name = CString::new(name).map_err(|_| misuse(py, "a transport's name has no zero bytes"))?;
        let (api, mut at) = (world.handle.api, Passed(ptr::null_mut()));
        let out = Passed(&raw mut at.0);
        // SAFETY: the world is there, and `out` takes the transport.
        world.on(py, move |world| unsafe {
            (api.fusewire_transport_open)(world, c_name.as_ptr(), &options, out.get())
        })?;
        // SAFETY: made just now.
        let handle = unsafe { Handle::new(api, at.0, api.fusewire_transport_free) };
        // SAFETY: the transport and the world are there.
        let (device, rank, size) = unsafe {
            let world = world.handle.get().0;
            let device = (api.fusewire_transport_device)(handle.get().0);
            (device, (api.fusewire_world_rank)(world), (api.fusewire_world_size)(world))
        };
        let open = Open::new(handle, name, device, (rank, size), &world.handle);
        Ok(Transport { open: Arc::new(open) })
    }

    /// Its name: "Shm" or "Nvl".
    #[getter]
    fn name(&self) -> &str {
        &self.open.name
    }

    /// Number of the GPU that its kernels run on; `None` for CPU threads.
    #[getter]
    fn device(&self) -> Option<i32> {
        (self.open.device >= 0).then_some(self.open.device)
    }

    /// This rank.
    #[getter]
    fn rank(&self) -> usize {
        self.open.rank
    }

    /// Ranks.
    #[getter]
    fn size(&self) -> usize {
        self.open.size
    }

    /// The transport's own stream: where ranks share a GPU, the one that kernels of this rank can run on.
    #[getter]
    fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        Ok(Stream { handle: self.open.own(py)? })
    }

    /// Prepares a kernel. Collective: every rank prepares the same kernels in the same order.
    fn prepare(&self, py: Python<'_>, kernel: &Kernel) -> PyResult<Launcher> {
        let api = self.open.handle.api;
        if !ptr::eq(api, kernel.api) {
            return Err(misuse(
                py,
                format!(
                    "{} is of another library than this transport: open the transport by that library",
                    kernel.__repr__()
                ),
            ));
        }
        let (mut at, transport, kernel_) =
            (Passed(ptr::null_mut()), self.open.handle.get(), Passed(ptr::from_ref(kernel.raw()).cast_mut()));
        let out = Passed(&raw mut at.0);
        // SAFETY: the transport is there, the kernel is of the same library, and `out` takes the launcher.
        waiting(py, api, move || unsafe {
            (api.fusewire_launcher_new)(kernel_.get(), transport.get(), out.get())
        })?;
        // SAFETY: made just now.
        let handle = unsafe { Handle::new(api, at.0, api.fusewire_launcher_free) };
        Ok(Launcher::new(py, handle, Arc::clone(&self.open), kernel))
    }

    /// Zeroed memory that all ranks map, as a tensor of DLPack. Collective: every rank asks for the same.
    #[pyo3(signature = (shape, dtype))]
    fn _symmetric(&self, py: Python<'_>, shape: Vec<i64>, dtype: &str) -> PyResult<Symmetric> {
        Symmetric::new(py, Arc::clone(&self.open), shape, dtype)
    }

    /// The number of a new pool of symmetric memory, and the names of the functions by which PyTorch allocates and frees in it.
    fn _pool(&self, py: Python<'_>) -> PyResult<(usize, &'static str, &'static str)> {
        pool::open(py, &self.open)
    }

    /// Waits for what was launched on the given stream, or else on all of them. A fault of a kernel comes out here.
    #[pyo3(signature = (stream=None))]
    fn synchronize(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let streams: Vec<_> = match stream {
            Some(stream) => vec![self.open.wrapped(py, crate::stream::raw(stream)?)?],
            None => self.open.streams(),
        };
        streams.into_iter().try_for_each(|handle| Stream { handle }.synchronized(py, 0))
    }

    /// Raises the fault if a kernel was aborted since the last `renew`.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let (api, at) = (self.open.handle.api, self.open.handle.get());
        // SAFETY: the transport is there.
        checked(py, api, unsafe { (api.fusewire_transport_check)(at.0) })
    }

    /// Makes it usable again after a fault. Collective.
    fn renew(&self, py: Python<'_>) -> PyResult<()> {
        let (api, at) = (self.open.handle.api, self.open.handle.get());
        // SAFETY: the transport is there.
        waiting(py, api, move || unsafe { (api.fusewire_transport_renew)(at.get()) })
    }

    /// Ends every wait of its kernels, on all ranks. From any thread.
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        let (api, at) = (self.open.handle.api, self.open.handle.get());
        // SAFETY: the transport is there, and `reason` is a string.
        waiting(py, api, move || unsafe { (api.fusewire_transport_abort)(at.get(), reason.as_ptr()) })
    }

    /// Ends it: waits for what this rank has launched, then for every rank. Collective.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let (api, at) = (self.open.handle.api, self.open.handle.get());
        // SAFETY: the transport is there.
        waiting(py, api, move || unsafe { (api.fusewire_transport_close)(at.get()) })
    }

    fn __repr__(&self) -> String {
        let Open { name, rank, size, device, .. } = &*self.open;
        match device {
            -1 => format!("{name}(rank {rank} of {size})"),
            gpu => format!("{name}(rank {rank} of {size}, GPU {gpu})"),
        }
    }
}
