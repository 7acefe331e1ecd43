//! Tables that kernels read.

use super::{Machine, Result};
use bytemuck::Pod;
use fusewire_driver::memory::{DeviceMemory, DeviceRegion};

/// Plain values where kernels of a machine read them.
#[derive(Debug)]
pub enum Table<T> {
    /// On the host.
    Host(Box<[T]>),
    /// On a GPU.
    Cuda(Option<DeviceMemory>),
}

impl<T: Pod> Table<T> {
    /// Copies the values there.
    ///
    /// # Errors
    /// If the GPU has no room.
    pub fn new(machine: &Machine, values: Vec<T>) -> Result<Self> {
        Ok(match machine {
            Machine::Host => Table::Host(values.into()),
            Machine::Cuda(_) if values.is_empty() => Table::Cuda(None),
            Machine::Cuda(context) => {
                let memory = DeviceMemory::new(context, size_of_val(values.as_slice()))?;
                memory.write(0, &values)?;
                Table::Cuda(Some(memory))
            }
        })
    }

    /// Address of the first value.
    pub fn address(&self) -> u64 {
        match self {
            Table::Host(values) => values.as_ptr() as u64,
            Table::Cuda(memory) => memory.as_ref().map_or(0, |m| m.ptr().as_u64()),
        }
    }
}
