//! Host half: a memory file for each rank, mapped by all.

use crate::TubeOps;
use fusewire::transport::{Board, Link, Machine, Mapping, Region, Result, agree, map_all};
use fusewire::{Options, Transport, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranks of one host, of which each fetches what is sent to it.
#[derive(Debug)]
pub struct Tube {
    link: Arc<Link>,
}

impl Tube {
    /// Makes it. Collective.
    pub fn rendezvous(world: &World, options: impl Into<Options>) -> Result<Tube> {
        let options = options.into();
        let layout = options.layout(world.size())?;
        agree(world, "tube rendezvous", &layout)?;
        let bytes = layout.total() as usize;
        let own = Mapping::create(bytes)?;
        let fd = own.try_clone_fd()?;
        let (regions, _) =
            map_all(world, own, &[std::os::fd::AsFd::as_fd(&fd)], |fd| Mapping::map(fd, bytes))?;
        let table = regions.iter().map(Mapping::address).collect();
        let control = layout.control_bytes() as usize;
        let region = Regions { regions, table, rank: world.rank(), control };
        let board = Board::rendezvous(world)?;
        let link = Link::new("Tube", world, options, layout, Machine::Host, board, Box::new(region))?;
        world.barrier()?;
        Ok(Tube { link })
    }
}

// SAFETY: regions and table belong to the link.
unsafe impl Transport for Tube {
    type Ops = TubeOps;
    const NAME: &'static str = "Tube";

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    unsafe fn ops(&self) -> TubeOps {
        let bases = self.link.region().table_address();
        TubeOps { layout: *self.link.layout(), rank: self.rank() as u32, bases }
    }
}

struct Regions {
    regions: Vec<Mapping>,
    table: Box<[u64]>,
    rank: usize,
    control: usize,
}

impl Regions {
    fn abort(&self) -> &AtomicU64 {
        // SAFETY: the first word of this rank's live region, accessed by atomics alone.
        unsafe { AtomicU64::from_ptr(self.regions[self.rank].address() as *mut u64) }
    }
}

// SAFETY: mappings and table that the value owns, of the layout that `rendezvous` agreed.
unsafe impl Region for Regions {
    fn abort_word(&self) -> Result<u64> {
        Ok(self.abort().load(Ordering::Acquire))
    }
    fn raise_abort(&self, code: u64) -> Result<()> {
        let _ = self.abort().compare_exchange(0, code, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }
    unsafe fn clear(&self) -> Result<()> {
        self.regions[self.rank].clear(self.control)
    }
    fn own_address(&self) -> u64 {
        self.table[self.rank]
    }
    fn table_address(&self) -> u64 {
        self.table.as_ptr() as u64
    }
}
