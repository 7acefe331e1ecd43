//! Slices and streams of cudarc as buffers and streams, and buffers for cudarc; with the feature `cudarc`, which is of cudarc 0.19.
//!
//! ```no_run
//! # use cudarc::driver::CudaContext;
//! # use fusewire::{Buffer, Device, Stream};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let theirs = CudaContext::new(0)?.new_stream()?;
//! let device = Device::cuda(0)?;
//! let stream = Stream::from_cudarc(&device, &theirs)?;
//! let mut buffer: Buffer<f32> = Buffer::from_cudarc(&device, theirs.alloc_zeros(1024)?)?;
//! // What is launched with the buffer, on any stream of this library, runs behind what `theirs` has queued.
//! // SAFETY: used on `theirs` alone.
//! let lent = unsafe { buffer.lend_cudarc(&theirs)? };
//! let values = theirs.clone_dtoh(&lent.view())?;
//! # drop((values, stream));
//! # Ok(())
//! # }
//! ```

use crate::{Buffer, Device, Result, Stream};
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr};
use fusewire_device::element::{Bf16, Element, F16};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// An element type that cudarc has too.
///
/// # Safety
/// Both have the same bits.
pub unsafe trait InCudarc: Element {
    /// cudarc's.
    type Of: Send + Sync + 'static;
}

macro_rules! alike {
    ($($ours:ty = $theirs:ty,)*) => {$(
        // SAFETY: one type, or one format of 16 bits.
        unsafe impl InCudarc for $ours {
            type Of = $theirs;
        }
    )*};
}

alike! {
    u8 = u8,
    u16 = u16,
    u32 = u32,
    u64 = u64,
    i8 = i8,
    i16 = i16,
    i32 = i32,
    i64 = i64,
    f32 = f32,
    f64 = f64,
    F16 = half::f16,
    Bf16 = half::bf16,
}

impl Stream {
    /// A stream of cudarc's, which lives as long as it is used here: as [`Stream::from_raw`].
    ///
    /// # Errors
    /// As there.
    pub fn from_cudarc(device: &Device, stream: &Arc<CudaStream>) -> Result<Self> {
        // SAFETY: the owner keeps the stream for as long as anything here knows of it. What else is queued on it is cudarc's to vouch for.
        unsafe { Self::from_raw(device, stream.cu_stream().cast(), Arc::clone(stream)) }
    }
}

impl<T: InCudarc> Buffer<T> {
    /// The elements of a slice, where they are: the slice belongs to the buffer from here on, and goes with it. Whatever uses the buffer runs behind
    /// what the slice's own stream has queued until now. A launch asks for addresses that are multiples of 16, which whole slices have.
    ///
    /// # Errors
    /// As for [`Buffer::from_raw`] and [`Stream::from_raw`], of the slice's stream.
    pub fn from_cudarc(device: &Device, slice: CudaSlice<T::Of>) -> Result<Self> {
        let (len, theirs) = (slice.len(), Arc::clone(slice.stream()));
        // Behind what other streams of cudarc's have queued with it, if cudarc tracks that.
        let address = slice.device_ptr(&theirs).0;
        let stream = Stream::from_cudarc(device, &theirs)?;
        // SAFETY: the slice's own elements, of the same bits, until it is dropped; nobody else has it.
        let mut buffer = unsafe { Self::from_raw(device, address, len, slice)? };
        buffer.hand_to(&stream)?;
        Ok(buffer)
    }

    /// The buffer for cudarc, for work that is queued on `stream`: that runs behind all that uses the buffer now, and what uses it on other
    /// streams here later runs behind it.
    ///
    /// # Errors
    /// As for [`Stream::from_raw`] and [`Buffer::hand_to`]; [`Error::Misuse`](crate::Error::Misuse) on CPU threads.
    ///
    /// # Safety
    /// What is lent is used on `stream` alone.
    pub unsafe fn lend_cudarc(&mut self, stream: &Arc<CudaStream>) -> Result<Lent<'_, T>> {
        let ours = Stream::from_cudarc(&Device(self.memory().machine().clone()), stream)?;
        self.hand_to(&ours)?;
        // SAFETY: the buffer's elements, of the same bits; the slice is never dropped.
        let slice = unsafe { stream.upgrade_device_ptr(self.address(), self.len()) };
        Ok(Lent { slice: ManuallyDrop::new(slice), _stream: ours, buffer: PhantomData })
    }
}

/// A buffer that was lent to cudarc: [`Buffer::lend_cudarc`].
pub struct Lent<'b, T: InCudarc> {
    slice: ManuallyDrop<CudaSlice<T::Of>>,
    _stream: Stream,
    buffer: PhantomData<&'b mut Buffer<T>>,
}

impl<T: InCudarc> Lent<'_, T> {
    /// To be read.
    pub fn view(&self) -> CudaView<'_, T::Of> {
        self.slice.as_view()
    }

    /// To be written.
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T::Of> {
        self.slice.as_view_mut()
    }
}

impl<T: InCudarc> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken once. The memory stays the buffer's.
        unsafe { ManuallyDrop::take(&mut self.slice) }.leak();
    }
}
