//! Tensors of others, by DLPack.

use crate::error::misuse;
use dlpark::ffi::{DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};
use dlpark::python::consumer::exchange::ExchangeApi;
use dlpark::python::consumer::stream;
use dlpark::python::{DlpackStream, ImportRequest, ImportedDlpack, StreamArg};
use dlpark::tensor::TensorRef;
use fusewire_capi::fusewire_type::{self, *};
use pyo3::prelude::*;
use std::ffi::c_void;

/// What a launch takes of a tensor.
pub struct Tensor {
    pub data: *const c_void,
    /// Elements.
    pub len: usize,
    pub bytes: usize,
    /// Type and how users call it.
    pub of: Option<fusewire_type>,
    pub dtype: String,
    /// Number of the GPU; -1 for the host.
    pub device: i32,
    pub read_only: bool,
    /// The producer's current stream, if it says so.
    pub stream: Option<usize>,
    /// Keeps what was imported until the launch is queued.
    _imported: Option<ImportedDlpack>,
}

/// The stream that a producer is to be ready on.
struct Ready(Option<usize>);

// SAFETY: a handle that the caller has given for this launch.
unsafe impl DlpackStream for Ready {
    fn as_python_arg(&self, _: Python<'_>, device: DLDevice) -> PyResult<StreamArg> {
        Ok(match self.0 {
            Some(handle) if device.device_type == DLDeviceType::CUDA => stream::cuda(handle as *mut c_void),
            _ => stream::none(),
        })
    }
}

impl Tensor {
    /// What `object` is; `stream` is where it will be used.
    pub fn of(object: &Bound<'_, PyAny>, name: &str, stream: Option<usize>) -> PyResult<Self> {
        if let Some(api) = ExchangeApi::from_object(object.as_borrowed())? {
            let seen = api.with_tensor_view_no_sync(object.as_borrowed(), |tensor, current| {
                Self::seen(object.py(), name, tensor, Some(current.addr()))
            });
            // Some tensors have no such view: those that ask for a gradient, say.
            return seen?;
        }
        let py = object.py();
        if !object.hasattr(pyo3::intern!(py, "__dlpack__"))? {
            return Err(misuse(
                py,
                format!(
                    "argument `{name}` is a {}, but should be a tensor (with `__dlpack__`)",
                    object.get_type().name()?
                ),
            ));
        }
        let imported = ImportRequest::new(object.as_borrowed())?.import(Some(&Ready(stream)), Some(false))?;
        let read_only = imported.flags().contains(dlpark::DlpackFlags::READ_ONLY);
        let tensor = match &imported {
            // SAFETY: the descriptor lives as long as what was imported.
            ImportedDlpack::Versioned(managed) => unsafe { managed.tensor() },
            // SAFETY: as above.
            ImportedDlpack::Legacy(managed) => unsafe { managed.tensor() },
        };
        let seen = Self::seen(py, name, tensor, None)?;
        Ok(Tensor { read_only, _imported: Some(imported), ..seen })
    }

    fn seen(py: Python<'_>, name: &str, tensor: &DLTensor, stream: Option<usize>) -> PyResult<Self> {
        // SAFETY: a producer's descriptor, read at once.
        let seen = unsafe { TensorRef::from_raw(tensor) };
        let seen = seen.map_err(|error| misuse(py, format!("argument `{name}`: {error}")))?;
        if !compact(seen.shape(), seen.strides()) {
            return Err(misuse(
                py,
                format!(
                    "argument `{name}` is not contiguous (shape {:?}, strides {:?}): give a contiguous tensor",
                    seen.shape(),
                    seen.strides().unwrap_or_default()
                ),
            ));
        }
        let DLDevice { device_type, device_id } = tensor.device;
        let device = match device_type {
            DLDeviceType::CPU | DLDeviceType::CUDAHOST => -1,
            DLDeviceType::CUDA => device_id,
            DLDeviceType(other) => {
                let what = format!(
                    "argument `{name}` is on a device of DLPack's type {other}, not a CPU or a GPU of CUDA"
                );
                return Err(misuse(py, what));
            }
        };
        // SAFETY: the producer's; it is an address and is not read here.
        let data = unsafe { seen.offset_bytes_ptr() }.map_or(std::ptr::null(), <*const u8>::cast);
        let code = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
        let (of, dtype) = typed(code);
        Ok(Tensor {
            data,
            len: seen.num_elements(),
            bytes: seen.num_bytes(),
            of,
            dtype,
            device,
            read_only: false,
            stream,
            _imported: None,
        })
    }
}

/// Whether elements lie one behind the other in their order. The stride of a dimension of one element means nothing.
fn compact(shape: &[i64], strides: Option<&[i64]>) -> bool {
    let (mut next, mut dimensions) = (1i64, shape.iter().zip(strides.unwrap_or_default()).rev());
    let fits = |(&len, &stride): (&i64, &i64)| {
        let fits = len == 1 || stride == next;
        next = next.saturating_mul(len);
        fits
    };
    shape.contains(&0) || dimensions.all(fits)
}

fn typed(code: (DLDataTypeCode, u8, u16)) -> (Option<fusewire_type>, String) {
    use DLDataTypeCode as C;
    let of = match code {
        (C::UINT, 8, 1) => FUSEWIRE_U8,
        (C::UINT, 16, 1) => FUSEWIRE_U16,
        (C::UINT, 32, 1) => FUSEWIRE_U32,
        (C::UINT, 64, 1) => FUSEWIRE_U64,
        (C::INT, 8, 1) => FUSEWIRE_I8,
        (C::INT, 16, 1) => FUSEWIRE_I16,
        (C::INT, 32, 1) => FUSEWIRE_I32,
        (C::INT, 64, 1) => FUSEWIRE_I64,
        (C::FLOAT, 16, 1) => FUSEWIRE_F16,
        (C::FLOAT, 32, 1) => FUSEWIRE_F32,
        (C::FLOAT, 64, 1) => FUSEWIRE_F64,
        (C::BFLOAT, 16, 1) => FUSEWIRE_BF16,
        (C::FLOAT8_E4M3FN, 8, 1) => FUSEWIRE_F8E4M3,
        (C::FLOAT8_E5M2, 8, 1) => FUSEWIRE_F8E5M2,
        (C::BOOL, 8, 1) => return (None, "bool".into()),
        (C::COMPLEX, bits, 1) => return (None, format!("complex{bits}")),
        (C(code), bits, lanes) => return (None, format!("type {code} of {bits} bits and {lanes} lanes")),
    };
    (Some(of), name(of).into())
}

/// A type as users of Python call it.
pub fn name(of: fusewire_type) -> &'static str {
    match of {
        FUSEWIRE_OTHER => "bytes",
        FUSEWIRE_U8 => "uint8",
        FUSEWIRE_U16 => "uint16",
        FUSEWIRE_U32 => "uint32",
        FUSEWIRE_U64 | FUSEWIRE_USIZE => "uint64",
        FUSEWIRE_I8 => "int8",
        FUSEWIRE_I16 => "int16",
        FUSEWIRE_I32 => "int32",
        FUSEWIRE_I64 | FUSEWIRE_ISIZE => "int64",
        FUSEWIRE_F32 => "float32",
        FUSEWIRE_F64 => "float64",
        FUSEWIRE_F16 => "float16",
        FUSEWIRE_BF16 => "bfloat16",
        FUSEWIRE_F8E4M3 => "float8_e4m3fn",
        FUSEWIRE_F8E5M2 => "float8_e5m2",
        FUSEWIRE_BOOL => "bool",
    }
}
