//! What an adapter's queue pairs are made of, and its doorbell.

use crate::driver::{Driver, Handle, PageKind};
use crate::error::misuse;
use crate::place::{Chunk, INVALID, Offsets, Place};
use crate::prm::Path;
use fusewire_driver::Context;
use fusewire_driver::memory::RegisteredMemory;
use fusewire_nic::{QueuePair, Result};
use std::sync::Arc;

/// Bytes of a doorbell.
const DOORBELL: usize = 8;

/// A doorbell as kernels know it.
pub struct Doorbell {
    page: Option<Handle>,
    /// Number of its page.
    pub number: u32,
    /// Address for kernels.
    pub address: u64,
    mapping: Option<RegisteredMemory>,
}

impl Doorbell {
    /// A page whose doorbell can be mapped for whoever rings it: for kernels of `context`, or for the CPU. Not cached if there is
    /// one, since doorbells are no bursts.
    pub fn open(driver: &dyn Driver, adapter: &str, context: Option<&Context>) -> Result<Doorbell> {
        let mut reasons = Vec::new();
        for kind in [PageKind::Dedicated, PageKind::NonCached, PageKind::BlueFlame] {
            let page = match driver.page(kind) {
                Ok(page) => page,
                Err(error) => {
                    reasons.push(error.to_string());
                    continue;
                }
            };
            let number = page.number;
            let Some(context) = context else {
                let address = page.doorbell.as_ptr() as u64;
                return Ok(Doorbell { page: Some(page.handle), number, address, mapping: None });
            };
            // SAFETY: the adapter's registers, mapped until `close` has ended this mapping, which nobody else makes.
            match unsafe { RegisteredMemory::io(context, page.doorbell, DOORBELL) } {
                Ok(mapping) => {
                    let address = mapping.device_ptr().as_u64();
                    return Ok(Doorbell { page: Some(page.handle), number, address, mapping: Some(mapping) });
                }
                Err(error) => {
                    driver.free_page(page.handle);
                    reasons.push(error.to_string());
                }
            }
        }
        let hint = match context {
            Some(_) => "; the GPU's driver needs PeerMappingOverride=1 (NVreg_RegistryDwords) to map it",
            None => "",
        };
        Err(misuse(format!("no doorbell of {adapter} can be mapped: {}{hint}", reasons.join("; "))))
    }

    /// Ends it.
    pub fn close(&mut self, driver: &dyn Driver) {
        // Before the page that it maps.
        self.mapping = None;
        if let Some(page) = self.page.take() {
            driver.free_page(page);
        }
    }
}

/// What a queue pair is made of; ended in this order.
#[derive(Default)]
pub struct Parts {
    /// Queue pair.
    pub pair: Option<Handle>,
    /// Completion queue.
    pub completions: Option<Handle>,
    /// Registration of their memory.
    pub memory: Option<Handle>,
    /// GPU memory that `memory` is a registration of.
    pub chunk: Option<Arc<Chunk>>,
}

impl Parts {
    /// Ends what there is of it.
    pub fn end(&mut self, driver: &dyn Driver) {
        // What an adapter that is gone says of it changes nothing.
        let _ = self.pair.take().map(|pair| driver.destroy(pair));
        let _ = self.completions.take().map(|queue| driver.destroy(queue));
        let _ = self.memory.take().map(|memory| driver.unpin(memory));
        self.chunk = None;
    }
}

/// A queue pair.
pub struct Made {
    /// As kernels know it.
    pub queue: QueuePair,
    /// What it is made of.
    pub parts: Parts,
    /// Its memory.
    pub place: Place,
    /// What is where in it.
    pub offsets: Offsets,
    /// Entries, as the adapter counts them.
    pub entries: u32,
    /// Number of the first packet that it sends.
    pub first_packet: u32,
    /// The rank that it is connected to, if that is another one.
    pub peer: Option<usize>,
    /// Once connected.
    pub way: Option<Path>,
}

impl Made {
    /// Whether nothing was ever posted.
    pub fn fresh(&self) -> Result<bool> {
        let first = self.place.word(self.offsets.last_word(0))?;
        Ok(self.place.word(self.offsets.sq_record)? == 0 && first == INVALID)
    }

    /// Whether everything posted is complete: every entry is reported, at the place of its index, with its index.
    pub fn idle(&self) -> Result<bool> {
        let posted = self.place.word(self.offsets.sq_record)? as u16;
        let last = posted.wrapping_sub(1);
        let word = self.place.word(self.offsets.last_word(u32::from(last) & (self.entries - 1)))?;
        if word == INVALID {
            return Ok(posted == 0);
        }
        Ok((word >> 16) as u16 == last)
    }
}
