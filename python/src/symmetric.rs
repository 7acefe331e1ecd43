//! Symmetric memory as a tensor.

use crate::error::{misuse, waiting};
use crate::handle::{Handle, Passed};
use crate::open::Open;
use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::python::{DlpackExporter, ExportRequest, export_dlpack};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use fusewire::foreign::dlpack;
use fusewire_capi::fusewire_symmetric;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::ptr;
use std::sync::Arc;

/// Memory that every rank of a transport has and that all map: as an output it is stored to by peers directly. `torch.from_dlpack` and
/// `numpy.from_dlpack` make tensors of it, which keep it alive.
#[pyclass(frozen, module = "fusewire._fusewire")]
pub struct Symmetric {
    memory: Arc<Memory>,
    shape: Vec<i64>,
    of: DLDataType,
}

struct Memory {
    handle: Handle<fusewire_symmetric>,
    _transport: Arc<Open>,
}

/// Elements as users call them, and for DLPack.
fn types() -> [(&'static str, DLDataType); 15] {
    [
        ("bool", DLDataType::BOOL),
        ("uint8", DLDataType::U8),
        ("uint16", DLDataType::U16),
        ("uint32", DLDataType::U32),
        ("uint64", DLDataType::U64),
        ("int8", DLDataType::I8),
        ("int16", DLDataType::I16),
        ("int32", DLDataType::I32),
        ("int64", DLDataType::I64),
        ("float16", DLDataType::F16),
        ("float32", DLDataType::F32),
        ("float64", DLDataType::F64),
        ("bfloat16", DLDataType::BF16),
        ("float8_e4m3fn", DLDataType::F8E4M3FN),
        ("float8_e5m2", DLDataType::F8E5M2),
    ]
}

impl Symmetric {
    pub fn new(py: Python<'_>, transport: Arc<Open>, shape: Vec<i64>, dtype: &str) -> PyResult<Self> {
        let Some((_, of)) = types().into_iter().find(|(name, _)| *name == dtype) else {
            let names = types().map(|(name, _)| name).join(", ");
            return Err(misuse(
                py,
                format!("there is no symmetric memory of `{dtype}`; there is of {names}"),
            ));
        };
        let size = usize::from(of.bits / 8);
        let bytes = shape.iter().try_fold(size, |bytes, n| bytes.checked_mul(usize::try_from(*n).ok()?));
        let Some(bytes) = bytes else {
            return Err(misuse(py, format!("symmetric memory of shape {shape:?}")));
        };
        let (api, at, mut memory) = (transport.handle.api, transport.handle.get(), Passed(ptr::null_mut()));
        let out = Passed(&raw mut memory.0);
        // SAFETY: the transport is there, and `out` takes the memory.
        waiting(py, api, move || unsafe { (api.fusewire_symmetric_new)(at.get(), bytes, out.get()) })?;
        // SAFETY: made just now.
        let handle = unsafe { Handle::new(api, memory.0, api.fusewire_symmetric_free) };
        Ok(Symmetric { memory: Arc::new(Memory { handle, _transport: transport }), shape, of })
    }

    /// A descriptor that keeps the memory.
    fn tensor<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        // SAFETY: the memory is there.
        let at = unsafe { (self.memory.handle.api.fusewire_symmetric_address)(self.memory.handle.get().0) };
        let (kept, device) = (Box::new(Arc::clone(&self.memory)), DlpackExporter::device(self));
        // SAFETY: so many elements at the address, for as long as the memory is kept.
        let made = unsafe { dlpack::tensor(kept, at.addr() as u64, device, self.of, &self.shape) };
        made.map_err(|error| PyBufferError::new_err(error.to_string()))
    }
}

impl DlpackExporter for Symmetric {
    fn device(&self) -> DLDevice {
        match self.memory._transport.device {
            -1 => DLDevice::CPU,
            gpu => DLDevice { device_type: DLDeviceType::CUDA, device_id: gpu },
        }
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _: Python<'_>, _: &ExportRequest<'_>) -> PyResult<()> {
        // Fresh memory: nothing is queued with it. Later uses are in the order of the streams that they are on.
        Ok(())
    }

    fn export_legacy(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.tensor()
    }

    fn export_versioned(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.tensor()
    }
}

#[pymethods]
impl Symmetric {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        export_dlpack(self, py, ExportRequest::parse(stream, max_version, dl_device, copy)?)
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        let DLDevice { device_type, device_id } = DlpackExporter::device(self);
        (device_type.0, device_id)
    }
}
