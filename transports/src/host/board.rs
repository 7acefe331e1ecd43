//! The notice board: every rank's abort record, last launch and collective launches, readable by all ranks of the host.

use super::alike::{self, Collective, Count, Looked, Ring};
use super::ledger::{self, Notes};
use super::{Launched, Mapping, Result};
use fusewire_device::wait::{AbortRecord, FILLED};
use fusewire_world::World;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const BYTES: usize = alike::AT + alike::BYTES;
const _: () = assert!(ledger::AT + ledger::BYTES <= alike::AT && alike::AT.is_multiple_of(64));

/// Some pages per rank of the host.
#[derive(Debug)]
pub struct Board {
    pages: Vec<Option<Mapping>>,
    rank: usize,
    /// Held by whoever writes this rank's notes.
    count: Mutex<Count>,
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

    /// This rank's pages.
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
        Ok(Board { pages, rank, count: Mutex::default() })
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

    /// Whether some rank of the host has left one.
    pub(super) fn has_record(&self) -> bool {
        (0..self.pages.len()).any(|rank| self.read(rank, Duration::ZERO).is_some())
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

    /// So many bytes from `at` on of the pages of `rank`; `None` for ranks of other hosts.
    fn words(&self, rank: usize, at: usize, bytes: usize) -> Option<&[AtomicU64]> {
        let page = self.pages.get(rank)?.as_ref()?;
        assert!(at.is_multiple_of(8) && at >= size_of::<AbortRecord>() && at + bytes <= BYTES);
        let at = (page.address() as usize + at) as *const AtomicU64;
        // SAFETY: within live pages, behind the record, aligned, and accessed by atomics alone.
        Some(unsafe { std::slice::from_raw_parts(at, bytes / 8) })
    }

    fn notes(&self, rank: usize) -> Option<Notes<'_>> {
        self.words(rank, ledger::AT, ledger::BYTES).map(Notes)
    }

    fn ring(&self, rank: usize) -> Option<Ring<'_>> {
        self.words(rank, alike::AT, alike::BYTES).map(Ring)
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what this rank notes of its launches.
    pub(crate) fn note(&self, change: impl FnOnce(Notes<'_>)) {
        let _one = self.count();
        if let Some(notes) = self.notes(self.rank) {
            change(notes);
        }
    }

    /// The same for a launch, which is counted and compared with those of the host's other ranks if it is `collective`.
    pub(super) fn launch(&self, change: impl FnOnce(Notes<'_>), collective: Option<&Collective>) -> Looked {
        let mut count = self.count();
        if let Some(notes) = self.notes(self.rank) {
            change(notes);
        }
        let others = (0..self.pages.len()).filter(|rank| *rank != self.rank);
        let others = others.filter_map(|rank| Some((rank, self.ring(rank)?)));
        let differs = match (collective, self.ring(self.rank)) {
            (Some(launch), Some(own)) => count.launch(launch, own, others),
            _ => None,
        };
        count.looked(differs)
    }

    /// The last launch was not queued.
    pub(super) fn take_back(&self, launch: &Collective) {
        let mut count = self.count();
        if let Some(own) = self.ring(self.rank) {
            count.take_back(launch, own);
        }
    }

    /// Others replay launches of this rank.
    pub(super) fn has_unseen(&self) {
        self.count().has_unseen();
    }

    /// What `rank` launched last; `None` for ranks of other hosts.
    pub(crate) fn launched(&self, rank: usize) -> Option<Launched> {
        self.notes(rank)?.read()
    }

    /// Empties this rank's record, and what it noted of its launches.
    pub(crate) fn clear(&self) {
        self.note(|notes| notes.clear());
        let mut count = self.count();
        count.clear();
        if let Some(own) = self.ring(self.rank) {
            own.clear();
        }
        let at = self.own_record() as *mut AbortRecord;
        if !at.is_null() {
            // SAFETY: this rank's own live page; all ranks are between two barriers of `renew`.
            unsafe { at.write_volatile(AbortRecord::EMPTY) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_compared_with_those_of_all_ranks_of_the_host() {
        // Rank 2 is on another one.
        let here = [0, 1, 3, 4];
        for (first, second) in here.into_iter().flat_map(|first| here.map(|second| (first, second))) {
            let pages: Vec<Mapping> = (0..5).map(|_| Board::page().unwrap()).collect();
            let fd = |rank: usize| pages[rank].fd().try_clone_to_owned().unwrap();
            let launch = |rank: usize, digest| {
                let own = Mapping::map(fd(rank), BYTES).unwrap();
                let board = Board::new(rank, own, (0..5).map(|rank| (rank != 2).then(|| fd(rank))).collect())
                    .unwrap();
                board.launch(|_| (), Some(&Collective { digest, launches: 1, ..Collective::default() }))
            };
            assert_eq!(launch(first, 1), Looked::Alike);
            let found = match launch(second, 2) {
                Looked::Differs(differs) => Some((differs.number, differs.peer)),
                _ => None,
            };
            assert_eq!(found, (first != second).then_some((1, first)), "ranks {first} and {second}");
        }
    }
}
