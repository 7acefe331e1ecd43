//! Host half: a memfd per rank, mapped by all.

use super::ShmOps;
use crate::host::symmetric::map_all;
use crate::host::{Board, Error, Link, Machine, Mapping, Options, Region, Result, Symmetric, Transport};
use fusewire_device::arch::read_process;
use fusewire_device::mapped::Layout;
use fusewire_world::World;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Host shared memory between threads or processes of one host. Kernels run on CPU threads.
#[derive(Debug)]
pub struct Shm {
    link: Arc<Link>,
}

impl Shm {
    /// Makes the transport. Collective: all ranks call it, with equal options.
    ///
    /// # Errors
    /// [`Error::Misuse`] for options that cannot be and ranks on other hosts; [`Error::World`] when options differ over ranks (the
    /// error names rank and field) or a rank is missing.
    pub fn rendezvous(world: &World, options: impl Into<Options>) -> Result<Shm> {
        let options = options.into();
        let layout = options.layout(world.size())?;
        crate::host::agree(world, "shm rendezvous", &layout)?;
        if let Some(far) = (0..world.size()).find(|r| !world.is_local(*r)) {
            let what = format!(
                "rank {far} is on another host than rank {}; `Shm` needs all ranks on one host",
                world.rank()
            );
            return Err(Error::Misuse { what });
        }
        let bytes = layout.total() as usize;
        let (own, page) = (Mapping::create(bytes)?, Board::page()?);
        let fd = own.try_clone_fd()?;
        let (regions, pages) = map_all(world, own, &[fd.as_fd(), page.fd()], |fd| Mapping::map(fd, bytes))?;
        let pages = pages.into_iter().map(|p| p.into_iter().next()).collect();
        let board = Board::new(world.rank(), page, pages)?;
        let processes = readable_processes(world)?;
        let table: Box<[u64]> =
            regions.iter().map(Mapping::address).chain(processes.iter().flatten().copied()).collect();
        let region =
            HostRegion { regions, table, processes: processes.is_some(), rank: world.rank(), layout };
        let link = Link::new("Shm", world, options, layout, Machine::Host, board, Box::new(region))?;
        world.barrier()?;
        Ok(Shm { link })
    }
}

// SAFETY: the region and its table belong to the link.
unsafe impl Transport for Shm {
    type Ops = ShmOps;
    const NAME: &'static str = "Shm";

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    unsafe fn ops(&self) -> ShmOps {
        // SAFETY: the caller's contract, for the link's own regions.
        ShmOps(unsafe { self.link.mapped() })
    }
}

/// The ids of all ranks' processes, if every rank can read the memory of each: the system may forbid it, or the ranks may be in
/// containers that number processes differently. Collective.
fn readable_processes(world: &World) -> Result<Option<Vec<u64>>> {
    let id = u64::from(std::process::id());
    // A value that no other process has at this address.
    let token = Box::new(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), id));
    let own = (id, (&raw const *token) as u64, *token);
    let all = world.all_gather_as(&own)?;
    let readable = all.iter().all(|(id, address, value)| {
        let mut seen = 0u64;
        // SAFETY: `seen` is eight bytes.
        unsafe { read_process(*id, *address, (&raw mut seen).cast(), 8) && seen == *value }
    });
    // The tokens stay until all have looked.
    let everywhere = world.all_gather_as(&readable)?.into_iter().all(|readable| readable);
    Ok(everywhere.then(|| all.into_iter().map(|(id, ..)| id).collect()))
}

struct HostRegion {
    regions: Vec<Mapping>,
    /// Addresses of all regions; then, if `processes`, all ranks' process ids.
    table: Box<[u64]>,
    processes: bool,
    rank: usize,
    layout: Layout,
}

impl HostRegion {
    fn abort(&self) -> &AtomicU64 {
        // SAFETY: the first word of this rank's live region, aligned, accessed by atomics alone.
        unsafe { AtomicU64::from_ptr(self.regions[self.rank].address() as *mut u64) }
    }
}

// SAFETY: mappings and table that the value owns, of the layout that `rendezvous` agreed.
unsafe impl Region for HostRegion {
    fn abort_word(&self) -> Result<u64> {
        Ok(self.abort().load(Ordering::Acquire))
    }

    fn raise_abort(&self, code: u64) -> Result<()> {
        let _ = self.abort().compare_exchange(0, code, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn clear(&self) -> Result<()> {
        // `renew` holds all ranks between two barriers with no kernel running.
        let own = &self.regions[self.rank];
        self.layout
            .cleared()
            .into_iter()
            .try_for_each(|(at, bytes)| own.clear_at(at as usize, bytes as usize))
    }

    fn own_address(&self) -> u64 {
        self.table[self.rank]
    }

    fn table_address(&self) -> u64 {
        self.table.as_ptr() as u64
    }

    fn outlives_rank(&self) -> bool {
        true
    }

    fn reads_processes(&self) -> bool {
        self.processes
    }

    fn reaches_mapped(&self) -> bool {
        true
    }

    fn symmetric(&self, world: &World, bytes: usize) -> Result<Option<Symmetric>> {
        let own = Mapping::create(bytes)?;
        let fd = own.try_clone_fd()?;
        let (memory, _) = map_all(world, own, &[fd.as_fd()], |fd| Mapping::map(fd, bytes))?;
        let bases: Box<[u64]> = memory.iter().map(Mapping::address).collect();
        // Its own copy, which does not move: kernels read it.
        let table = bases.clone();
        let address = table.as_ptr() as u64;
        Ok(Some(Symmetric::new(self.rank, bases, bytes, address, (memory, table))))
    }
}
