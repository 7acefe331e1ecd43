//! The notice board: every rank's abort record and last launch, readable by all ranks of the host.

use super::ledger::{self, Notes};
use super::{Launched, Mapping, Result};
use fusewire_device::wait::{AbortRecord, FILLED};
use fusewire_world::World;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
const _: () = assert!(ledger::AT + ledger::BYTES <= BYTES);

/// One page per rank of the host.
#[derive(Debug)]
pub struct Board {
    pages: Vec<Option<Mapping>>,
    rank: usize,
    /// Held by whoever writes this rank's notes.
    notes: Mutex<()>,
}

impl Board {
    /// A board of ranks that all share this host's memory. Collective.
    ///
    /// # Errors
    /// If there is no memory, or a rank does not come.
    pub fn rendezvous(world: &World) -> Result<Self> {
        let page = Board::page()?;
        let passed = world.exchange_fds(&[page.fd()])?;
        Board::new(world.rank(), page, passed.into_iter().map(|fds| fds.into_iter().next()).collect())
    }

    /// This rank's page.
    pub(crate) fn page() -> Result<Mapping> {
        Mapping::create(BYTES)
    }

    /// Maps the peers' pages; `None` for ranks that cannot share memory.
    pub(crate) fn new(rank: usize, own: Mapping, peers: Vec<Option<OwnedFd>>) -> Result<Self> {
        let mut pages = Vec::with_capacity(peers.len());
        let mut own = Some(own);
        for (r, fd) in peers.into_iter().enumerate() {
            pages.push(match fd {
                _ if r == rank => own.take(),
                Some(fd) => Some(Mapping::map(fd, BYTES)?),
                None => None,
            });
        }
        Ok(Board { pages, rank, notes: Mutex::default() })
    }

    /// Address of this rank's record.
    pub fn own_record(&self) -> u64 {
        self.pages[self.rank].as_ref().map_or(0, Mapping::address)
    }

    /// The record of `rank`, if it is complete within `patience`.
    pub(crate) fn read(&self, rank: usize, patience: Duration) -> Option<AbortRecord> {
        let page = self.pages.get(rank)?.as_ref()?;
        let at = page.address() as *mut AbortRecord;
        let start = Instant::now();
        loop {
            // SAFETY: a live page, aligned; the state word is accessed by atomics alone.
            let state = unsafe { AtomicU32::from_ptr(&raw mut (*at).state) };
            if state.load(Ordering::Acquire) == FILLED {
                // SAFETY: complete, and not written again before the next `renew`.
                return Some(unsafe { at.read_volatile() });
            }
            if start.elapsed() >= patience {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Posts a record that a kernel left elsewhere.
    pub(crate) fn post(&self, record: &AbortRecord) {
        let at = self.own_record() as *mut AbortRecord;
        if at.is_null() {
            return;
        }
        // SAFETY: this rank's own live page; readers look at the state first.
        unsafe {
            let state = AtomicU32::from_ptr(&raw mut (*at).state);
            if state.load(Ordering::Acquire) == FILLED {
                return;
            }
            at.write_volatile(AbortRecord { state: 0, ..*record });
            state.store(FILLED, Ordering::Release);
        }
    }

    fn notes(&self, rank: usize) -> Option<Notes<'_>> {
        let page = self.pages.get(rank)?.as_ref()?;
        let at = (page.address() as usize + ledger::AT) as *const AtomicU64;
        // SAFETY: within a live page, aligned, and accessed by atomics alone.
        Some(Notes(unsafe { std::slice::from_raw_parts(at, ledger::BYTES / 8) }))
    }

    /// Changes what this rank notes of its launches.
    pub(crate) fn note(&self, change: impl FnOnce(Notes<'_>)) {
        let _one = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notes) = self.notes(self.rank) {
            change(notes);
        }
    }

    /// What `rank` launched last; `None` for ranks of other hosts.
    pub(crate) fn launched(&self, rank: usize) -> Option<Launched> {
        self.notes(rank)?.read()
    }

    /// Empties this rank's record, and what it noted of its launches.
    pub(crate) fn clear(&self) {
        self.note(|notes| notes.clear());
        let at = self.own_record() as *mut AbortRecord;
        if !at.is_null() {
            // SAFETY: this rank's own live page; all ranks are between two barriers of `renew`.
            unsafe { at.write_volatile(AbortRecord::EMPTY) };
        }
    }
}
