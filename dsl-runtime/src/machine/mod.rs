//! Where kernels run: CPU threads or a GPU.

mod crew;
mod overflow;
mod worker;

pub(crate) use crew::Crew;
pub(crate) use overflow::Running;
pub(crate) use worker::{Op, Waited, Worker, on_stream};

use crate::{Buffer, Error, Result, Stream, Transport};
use fusewire_device::element::Element;
use fusewire_transports::host::Machine;
use std::fmt;

/// A place that holds buffers and runs streams: the host's threads, or one GPU.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Machine);

impl Device {
    /// CPU threads; each block of a kernel is one.
    pub fn host() -> Device {
        Device(Machine::Host)
    }

    /// A GPU by its number.
    ///
    /// # Errors
    /// [`Error::Device`] without CUDA, or if there is no such GPU.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        let device = fusewire_driver::Driver::load()?.device(ordinal)?;
        Ok(Device(Machine::Cuda(fusewire_driver::Context::new(&device)?)))
    }

    /// Where kernels on a transport run: where ranks share a GPU, this rank's part of it.
    pub fn of(transport: &impl Transport) -> Device {
        Device(transport.link().machine().clone())
    }

    /// A new stream.
    ///
    /// # Errors
    /// If the driver or the system has no room for it.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self)
    }

    /// A buffer of `len` zeroed elements.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn buffer<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::new(self, len)
    }

    /// A buffer with these elements.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn buffer_from<T: Element>(&self, values: &[T]) -> Result<Buffer<T>> {
        let mut buffer = Buffer::new(self, values.len())?;
        buffer.fill_from(values)?;
        Ok(buffer)
    }

    /// A buffer of `len` zeroed elements that peers can map: for windows.
    ///
    /// # Errors
    /// If there is not enough memory, or the device cannot share it.
    pub fn shared_buffer<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::shared(self, len)
    }

    /// Streaming multiprocessors, or cores.
    pub fn processors(&self) -> usize {
        match &self.0 {
            Machine::Host => std::thread::available_parallelism().map_or(1, usize::from),
            Machine::Cuda(c) => c.multiprocessors() as usize,
        }
    }

    /// Refuses a stream for kernels of this device that is elsewhere, or on multiprocessors that other ranks' kernels may hold.
    pub(crate) fn check_stream(&self, stream: &Stream) -> Result<()> {
        self.check_same(&stream.device().0, "the stream")?;
        match (&self.0, &stream.device().0) {
            (Machine::Cuda(own), Machine::Cuda(other)) if own.place() != other.place() => {
                let part = |place: Option<(u32, u32)>| match place {
                    Some((place, of)) => format!("part {place} of {of} of the GPU"),
                    None => "all of the GPU".to_owned(),
                };
                Err(Error::misuse(format!(
                    "the stream runs kernels on {}, but the kernel's transport has {}: its kernels could keep those of a rank beside it from \
                     running. Make the stream by `Device::of(&transport).stream()`",
                    part(other.place()),
                    part(own.place())
                )))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_same(&self, other: &Machine, what: impl fmt::Display) -> Result<()> {
        match (&self.0, other) {
            (Machine::Host, Machine::Host) => Ok(()),
            (Machine::Cuda(a), Machine::Cuda(b)) if a == b => Ok(()),
            (a, b) => Err(Error::misuse(format!("{what} is on {b:?}, but the kernel runs on {a:?}"))),
        }
    }
}

/// Bytes of elements.
pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: elements have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Bytes of elements, to be written.
pub(crate) fn bytes_of_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as for `bytes_of`, and every bit pattern is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
