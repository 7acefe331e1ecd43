//! Tensors of others by DLPack, and buffers for others as tensors; with the feature `dlpack`.

use crate::buffer::Memory;
use crate::{Buffer, Device, Error, Result};
use dlpark::allocation::dynamic::Allocation;
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType};
use dlpark::versioned::Dlpack;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, OpaqueContext};
use fusewire_device::args::Crosses;
use fusewire_device::element::{Bf16, Element, F8E4M3, F8E5M2, F16};
use fusewire_transports::host::Machine;
use std::sync::Arc;

/// The type of DLPack for the element type `T`.
///
/// # Errors
/// [`Error::Misuse`] for a struct: DLPack has no type for it.
pub fn data_type<T: Element>() -> Result<DLDataType> {
    let code = match T::CODE {
        f32::CODE | f64::CODE | F16::CODE => DLDataTypeCode::FLOAT,
        Bf16::CODE => DLDataTypeCode::BFLOAT,
        F8E4M3::CODE => DLDataTypeCode::FLOAT8_E4M3FN,
        F8E5M2::CODE => DLDataTypeCode::FLOAT8_E5M2,
        i8::CODE | i16::CODE | i32::CODE | i64::CODE => DLDataTypeCode::INT,
        u8::CODE | u16::CODE | u32::CODE | u64::CODE => DLDataTypeCode::UINT,
        _ => {
            return Err(Error::misuse(format!(
                "DLPack has no type for `{}`, which is a struct: use a buffer of `u8` with its bytes",
                T::NAME
            )));
        }
    };
    Ok(DLDataType { code, bits: 8 * T::SIZE as u8, lanes: 1 })
}

/// Where DLPack says that the memory of a device is.
fn place(machine: &Machine) -> DLDevice {
    match machine {
        Machine::Host => DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
        Machine::Cuda(context) => {
            DLDevice { device_type: DLDeviceType::CUDA, device_id: context.device().ordinal() as i32 }
        }
    }
}

/// A tensor of elements at `address`, row by row, which keeps `kept`.
///
/// # Errors
/// [`Error::Misuse`] for a shape that has more dimensions than a descriptor.
///
/// # Safety
/// There are elements of that type and shape, on that device, for as long as `kept` is.
pub unsafe fn tensor<M: ManagedTensorBase>(
    kept: impl OpaqueContext,
    address: u64,
    device: DLDevice,
    of: DLDataType,
    shape: &[i64],
) -> Result<Managed<M>> {
    let dims = shape.len();
    let broken =
        |error: dlpark::allocation::Error| Error::misuse(format!("a tensor of shape {shape:?}: {error}"));
    let mut tensor =
        Allocation::<M>::allocate(2 * dims).map_err(broken)?.initialize(kept, dims).map_err(broken)?;
    let numbers = tensor.extra_mut();
    let mut stride = 1;
    for k in (0..dims).rev() {
        (numbers[k], numbers[dims + k]) = (shape[k], stride);
        stride *= shape[k];
    }
    let numbers = numbers.as_mut_ptr();
    let seen = tensor.tensor_mut();
    (seen.data, seen.device, seen.dtype) = (address as *mut _, device, of);
    // SAFETY: `2 * dims` numbers.
    (seen.shape, seen.strides) = (numbers, unsafe { numbers.add(dims) });
    // SAFETY: the caller's contract; shape and strides are of the allocation.
    Ok(unsafe { tensor.finish() })
}

impl<T: Element> Buffer<T> {
    /// The elements of a tensor as a buffer, where they are, row by row. The tensor is given back behind all work that was queued with the buffer; dropping the
    /// buffer waits for nothing. A launch asks for addresses that are multiples of 16.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a tensor of another element type or device, one that is read-only or not contiguous, or a descriptor that cannot be.
    ///
    /// # Safety
    /// That of [`Buffer::from_raw`]: what the tensor says is so, its producer's work on it is queued on a stream that runs before this buffer's, and
    /// nobody else uses the elements at the same time as what is queued with the buffer.
    pub unsafe fn from_dlpack(device: &Device, tensor: Dlpack) -> Result<Self> {
        let refuse = |what: String| {
            Err(Error::misuse(format!("a tensor of DLPack as a buffer of {}: {what}", T::NAME)))
        };
        let seen = match tensor.validate() {
            Ok(seen) => seen,
            Err(error) => return refuse(error.to_string()),
        };
        let (found, expected) = (seen.dtype(), data_type::<T>()?);
        if found != expected {
            let words = |of: DLDataType| format!("code {}, {} bits, {} lanes", of.code.0, of.bits, of.lanes);
            return refuse(format!(
                "its elements are of another type ({}, not {})",
                words(found),
                words(expected)
            ));
        }
        let (at, own) = (seen.device(), place(&device.0));
        // Pinned memory is the host's too.
        let pinned = at.device_type == DLDeviceType::CUDAHOST && own.device_type == DLDeviceType::CPU;
        if at != own && !pinned {
            let words = |at: DLDevice| format!("device {} of type {}", at.device_id, at.device_type.0);
            return refuse(format!("it is on {}, and the buffer is to be on {}", words(at), words(own)));
        }
        if tensor.flags().contains(DlpackFlags::READ_ONLY) {
            return refuse("it is read-only, and a buffer may be written: copy it".into());
        }
        if !seen.is_compact().unwrap_or(false) {
            let strides = seen.strides().unwrap_or_default();
            return refuse(format!(
                "it is not contiguous (shape {:?}, strides {strides:?}): copy it",
                seen.shape()
            ));
        }
        // SAFETY: an address; what is there is the caller's contract.
        let address = match unsafe { seen.offset_bytes_ptr() } {
            Ok(at) => at.addr() as u64,
            Err(error) => return refuse(error.to_string()),
        };
        let len = seen.num_elements();
        // SAFETY: the caller's contract; the tensor is kept.
        unsafe { Self::from_raw(device, address, len, tensor) }
    }

    /// The buffer as a tensor of that shape, row by row, which keeps the memory. [`Buffer::hand_to`] says when others may use it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if a shape has more or fewer elements.
    pub fn to_dlpack(&self, shape: &[usize]) -> Result<Dlpack> {
        let count = shape.iter().try_fold(1usize, |count, n| count.checked_mul(*n));
        if count != Some(self.len()) {
            return Err(Error::misuse(format!(
                "a buffer of {} elements as a tensor of shape {shape:?}",
                self.len()
            )));
        }
        let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        let kept: Box<Arc<Memory>> = Box::new(Arc::clone(self.memory()));
        let (at, of) = (place(self.memory().machine()), data_type::<T>()?);
        // SAFETY: so many elements, for as long as the memory is kept.
        unsafe { tensor(kept, self.address(), at, of, &shape) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlpark::ffi::DLManagedTensorVersioned;
    use fusewire_device::element::{Bf16, F8E4M3, F8E5M2, F16};

    #[test]
    fn buffers_go_out_and_come_back() {
        let device = Device::host();
        let buffer = device.buffer_from(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let (address, tensor) = (buffer.address(), buffer.to_dlpack(&[2, 3]).unwrap());
        drop(buffer);
        let seen = tensor.validate_export().unwrap();
        assert_eq!((seen.shape(), seen.strides()), (&[2, 3][..], Some(&[3, 1][..])));
        // SAFETY: of the buffer's own memory, which the tensor keeps.
        let back = unsafe { Buffer::<f32>::from_dlpack(&device, tensor) }.unwrap();
        assert_eq!((back.address(), back.len()), (address, 6));
        let stream = device.stream().unwrap();
        assert_eq!(back.read(&stream).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let none = device.buffer::<u8>(0).unwrap().to_dlpack(&[4, 0]).unwrap();
        // SAFETY: no elements.
        assert!(unsafe { Buffer::<u8>::from_dlpack(&device, none) }.unwrap().is_empty());
        let one = device.buffer_from(&[7i64]).unwrap().to_dlpack(&[]).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { Buffer::<i64>::from_dlpack(&device, one) }.unwrap().len(), 1);
    }

    #[test]
    fn types_are_those_of_dlpack() {
        let named = [
            (data_type::<f32>(), DLDataType::F32),
            (data_type::<f64>(), DLDataType::F64),
            (data_type::<F16>(), DLDataType::F16),
            (data_type::<Bf16>(), DLDataType::BF16),
            (data_type::<F8E4M3>(), DLDataType::F8E4M3FN),
            (data_type::<F8E5M2>(), DLDataType::F8E5M2),
            (data_type::<u8>(), DLDataType::U8),
            (data_type::<u64>(), DLDataType::U64),
            (data_type::<i16>(), DLDataType::I16),
            (data_type::<i64>(), DLDataType::I64),
        ];
        for (found, expected) in named {
            assert_eq!(found.unwrap(), expected);
        }
    }

    #[test]
    fn tensors_that_do_not_fit_are_refused() {
        let device = Device::host();
        let tensor = || device.buffer::<f32>(6).unwrap().to_dlpack(&[2, 3]).unwrap();
        let refused = |tensor: Dlpack| {
            // SAFETY: refused, so never used.
            unsafe { Buffer::<f32>::from_dlpack(&device, tensor) }.unwrap_err().to_string()
        };
        let changed = |change: &dyn Fn(&mut DLManagedTensorVersioned)| {
            let tensor = tensor();
            // SAFETY: ours alone, and still a descriptor of memory that is there.
            change(unsafe { &mut *tensor.as_ptr() });
            refused(tensor)
        };
        // SAFETY: of two dimensions.
        let strides = |t: &mut DLManagedTensorVersioned| unsafe { *t.dl_tensor.strides = 1 };
        // SAFETY: as above.
        let shape = |t: &mut DLManagedTensorVersioned| unsafe { *t.dl_tensor.shape = -1 };
        let cases = [
            (
                changed(&|t| t.dl_tensor.dtype = DLDataType::I32),
                "its elements are of another type (code 0, 32 bits",
            ),
            (changed(&|t| t.dl_tensor.dtype.lanes = 2), "of another type"),
            (
                changed(&|t| t.dl_tensor.device.device_type = DLDeviceType::CUDA),
                "it is on device 0 of type 2",
            ),
            (changed(&|t| t.flags = DlpackFlags::READ_ONLY), "it is read-only"),
            (changed(&strides), "not contiguous (shape [2, 3], strides [1, 1])"),
            (changed(&shape), "a tensor of DLPack as a buffer of f32"),
            (changed(&|t| t.dl_tensor.byte_offset = 2), "is a multiple of that"),
            (
                device.buffer::<f32>(6).unwrap().to_dlpack(&[2, 2]).err().unwrap().to_string(),
                "of shape [2, 2]",
            ),
            (
                device.buffer::<f32>(0).unwrap().to_dlpack(&[usize::MAX, 2]).err().unwrap().to_string(),
                "of shape",
            ),
        ];
        for (text, expected) in cases {
            assert!(text.contains(expected), "{text}\nshould have: {expected}");
        }
    }
}
