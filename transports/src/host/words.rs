//! Words for kernels alone.

use super::{Error, Machine, Result};
use fusewire_driver::memory::{DeviceMemory, DeviceRegion};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words that kernels alone use: in the memory of the machine that runs them.
#[derive(Debug)]
pub(crate) enum Words {
    Host(Box<[AtomicU64]>),
    Cuda(DeviceMemory),
}

impl Words {
    pub fn new(machine: &Machine, content: Vec<u64>) -> Result<Self> {
        Ok(match machine {
            Machine::Host => Words::Host(content.into_iter().map(AtomicU64::new).collect()),
            Machine::Cuda(context) => {
                let memory = DeviceMemory::new(context, 8 * content.len())?;
                memory.write(0, &content)?;
                Words::Cuda(memory)
            }
        })
    }

    pub fn addr(&self) -> u64 {
        match self {
            Words::Host(words) => words.as_ptr() as u64,
            Words::Cuda(memory) => memory.ptr().as_u64(),
        }
    }

    /// Replaces them, as many as there are, before any kernel runs.
    pub fn write(self, content: Vec<u64>) -> Result<Self> {
        match self {
            Words::Host(words) => {
                words.iter().zip(content).for_each(|(word, value)| word.store(value, Ordering::Release));
                Ok(Words::Host(words))
            }
            Words::Cuda(memory) => {
                memory.write(0, &content)?;
                Ok(Words::Cuda(memory))
            }
        }
    }

    /// Zeroes them, with no kernel running.
    pub fn clear(&self) -> Result<()> {
        match self {
            Words::Host(words) => {
                words.iter().for_each(|word| word.store(0, Ordering::Release));
                Ok(())
            }
            Words::Cuda(memory) => memory.fill(0).map_err(Error::from),
        }
    }
}
