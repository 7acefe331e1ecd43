//! Host memory that adapter, proxy and kernels share.

use super::HostIbOps;
use super::ring::{BOUNCE, SLOT};
use crate::host::{Machine, Mapping, Result};
use fusewire_device::mapped::{LINE, Layout};
use fusewire_device::wait::{AbortRecord, FILLED};
use fusewire_driver::memory::{DeviceMemory, DeviceRegion, PinnedMemory};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Zeroed pages of the host, as the host and as kernels address them.
#[derive(Debug)]
pub enum Pages {
    Mapped(Mapping),
    Pinned(PinnedMemory),
}

impl Pages {
    pub fn new(machine: &Machine, bytes: u64) -> Result<Self> {
        let bytes = bytes.next_multiple_of(4096).max(4096) as usize;
        Ok(match machine {
            Machine::Host => Pages::Mapped(Mapping::create(bytes)?),
            Machine::Cuda(context) => Pages::Pinned(PinnedMemory::new(context, bytes)?),
        })
    }

    pub fn host(&self) -> *mut u8 {
        match self {
            Pages::Mapped(mapping) => mapping.address() as *mut u8,
            Pages::Pinned(memory) => memory.host_ptr(),
        }
    }

    pub fn kernel(&self) -> u64 {
        match self {
            Pages::Mapped(mapping) => mapping.address(),
            Pages::Pinned(memory) => memory.device_ptr().as_u64(),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Pages::Mapped(mapping) => mapping.bytes(),
            Pages::Pinned(memory) => memory.bytes(),
        }
    }

    /// An aligned word.
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes() as u64, "a word outside of its pages");
        // SAFETY: in bounds and aligned by the assertion; such words are accessed by atomics, kernels and adapters alone.
        unsafe { AtomicU64::from_ptr(self.host().add(offset as usize).cast()) }
    }

    /// Zeroes the first `bytes` bytes.
    ///
    /// # Safety
    /// Nobody accesses them meanwhile.
    pub unsafe fn clear(&self, bytes: u64) {
        // SAFETY: within the pages; nobody else is there by the caller's contract.
        unsafe { self.host().write_bytes(0, (bytes as usize).min(self.bytes())) };
    }
}

/// Words that kernels change by atomics: in memory of the machine that runs them.
#[derive(Debug)]
pub enum Words {
    Host(Mapping),
    Device(DeviceMemory),
}

impl Words {
    pub fn new(machine: &Machine, bytes: u64) -> Result<Self> {
        Ok(match machine {
            Machine::Host => Words::Host(Mapping::create(bytes as usize)?),
            Machine::Cuda(context) => {
                let memory = DeviceMemory::new(context, bytes as usize)?;
                memory.fill(0)?;
                Words::Device(memory)
            }
        })
    }

    pub fn kernel(&self) -> u64 {
        match self {
            Words::Host(mapping) => mapping.address(),
            Words::Device(memory) => memory.ptr().as_u64(),
        }
    }

    /// The first word, which is the abort word.
    pub fn abort(&self) -> Result<u64> {
        match self {
            Words::Host(mapping) => Ok(abort_word(mapping).load(Ordering::Acquire)),
            Words::Device(memory) => {
                let mut word = [0];
                memory.read(0, &mut word)?;
                Ok(word[0])
            }
        }
    }

    /// Sets the abort word if it is zero; whether it was. On a GPU, where the host has no compare-and-swap, a fault of the same
    /// moment may be overwritten.
    pub fn claim(&self, code: u64) -> Result<bool> {
        match self {
            Words::Host(mapping) => {
                let word = abort_word(mapping);
                Ok(word.compare_exchange(0, code, Ordering::AcqRel, Ordering::Relaxed).is_ok())
            }
            Words::Device(memory) => {
                let free = self.abort()? == 0;
                if free {
                    memory.write(0, &[code])?;
                }
                Ok(free)
            }
        }
    }

    /// Zeroes all of it, with no kernel running.
    pub fn clear(&self) -> Result<()> {
        match self {
            Words::Host(mapping) => {
                // SAFETY: the whole live mapping; no kernel runs.
                unsafe { (mapping.address() as *mut u8).write_bytes(0, mapping.bytes()) };
                Ok(())
            }
            Words::Device(memory) => Ok(memory.fill(0)?),
        }
    }
}

fn abort_word(mapping: &Mapping) -> &AtomicU64 {
    // SAFETY: the first word of a live mapping, aligned, accessed by atomics alone.
    unsafe { AtomicU64::from_ptr(mapping.address() as *mut u64) }
}

/// Everything a rank has in memory.
#[derive(Debug)]
pub struct Memory {
    pub layout: Layout,
    pub slots: u32,
    /// Abort word, channel states, tickets.
    pub words: Words,
    /// What peers write: lines, staging, heap, and behind them a line for each peer's abort.
    pub region: Pages,
    /// What this rank's requests are from: outgoing staging, bounce memory.
    pub local: Pages,
    /// The ring of commands, the line of `retired`, the record.
    pub commands: Pages,
}

impl Memory {
    pub fn new(machine: &Machine, layout: Layout, slots: u32) -> Result<Self> {
        let local = HostIbOps::bounce(&layout) + u64::from(slots) * BOUNCE;
        let commands = u64::from(slots) * SLOT + LINE + size_of::<AbortRecord>() as u64;
        Ok(Memory {
            layout,
            slots,
            words: Words::new(machine, HostIbOps::control_bytes(&layout))?,
            region: Pages::new(machine, Self::region_bytes(&layout))?,
            local: Pages::new(machine, local)?,
            commands: Pages::new(machine, commands)?,
        })
    }

    /// Bytes that peers may name.
    pub const fn region_bytes(layout: &Layout) -> u64 {
        layout.total() + layout.world as u64 * LINE
    }

    /// Offset, in every rank's region, of the word in which `writer` says why it was aborted.
    pub const fn inbox(layout: &Layout, writer: u32) -> u64 {
        layout.total() + writer as u64 * LINE
    }

    /// Offset, in every rank's region, of the word in which `writer` says that it knows of the rank's own fault.
    pub const fn answer(layout: &Layout, writer: u32) -> u64 {
        Self::inbox(layout, writer) + 8
    }

    const fn record_at(&self) -> u64 {
        self.slots as u64 * SLOT + LINE
    }

    /// How many slots are free again.
    pub fn retired(&self) -> &AtomicU64 {
        self.commands.word(u64::from(self.slots) * SLOT)
    }

    /// Address of the record, for kernels.
    pub fn record_for_kernels(&self) -> u64 {
        self.commands.kernel() + self.record_at()
    }

    /// The record, for the host.
    pub fn record(&self) -> *mut AbortRecord {
        (self.commands.host() as u64 + self.record_at()) as *mut AbortRecord
    }

    /// The record, if it is complete.
    pub fn filled_record(&self) -> Option<AbortRecord> {
        let record = self.record();
        // SAFETY: live, aligned; the state word is accessed by atomics alone.
        let state = unsafe { AtomicU32::from_ptr(&raw mut (*record).state) };
        // SAFETY: complete, and not written again before the next `renew`.
        (state.load(Ordering::Acquire) == FILLED).then(|| unsafe { record.read_volatile() })
    }

    /// Begins anew: no kernel runs here or on a peer, the proxy is idle, nothing is under way.
    pub fn clear(&self) -> Result<()> {
        self.words.clear()?;
        let layout = &self.layout;
        // SAFETY: nobody else is there, as the function's contract says. Staging and heap keep what they have.
        unsafe {
            self.region.clear(layout.control_bytes());
            for writer in 0..layout.world {
                self.region.host().add(Self::inbox(layout, writer) as usize).write_bytes(0, LINE as usize);
            }
            self.commands.clear(self.commands.bytes() as u64);
        }
        Ok(())
    }

    /// The device half for kernels of this rank.
    pub fn ops(&self, rank: u32, deadline_ns: u64) -> HostIbOps {
        HostIbOps {
            layout: self.layout,
            rank,
            slots: self.slots,
            control: self.words.kernel(),
            region: self.region.kernel(),
            local: self.local.kernel(),
            ring: self.commands.kernel(),
            retired: self.commands.kernel() + u64::from(self.slots) * SLOT,
            record: self.record_for_kernels(),
            deadline_ns,
        }
    }
}
