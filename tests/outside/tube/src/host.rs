//! Host half: a memory file for each rank, mapped by all, for their CPU threads or their GPUs.

use crate::TubeOps;
use fusewire::driver::memory::{RegisteredMemory, release_dropped};
use fusewire::driver::{Context, Driver};
use fusewire::transport::{Board, Link, Machine, Mapping, Region, Result, agree, map_all, share};
use fusewire::{Options, Transport, World};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranks of one host, of which each fetches what is sent to it.
#[derive(Debug)]
pub struct Tube {
    link: Arc<Link>,
}

impl Tube {
    /// Makes it on CPU threads. Collective.
    pub fn rendezvous(world: &World, options: impl Into<Options>) -> Result<Tube> {
        Self::on(world, options.into(), Machine::Host)
    }

    /// Makes it on the GPU of this rank's place, over memory of the host. Collective.
    pub fn on_gpus(world: &World, options: impl Into<Options>) -> Result<Tube> {
        // What earlier ones let go of, which keeps their part of a GPU. All ranks are here: no kernel waits for a launch.
        world.barrier()?;
        release_dropped();
        world.barrier()?;
        let driver = Driver::load()?;
        let device = driver.device(world.local_rank() % driver.device_count()?.max(1))?;
        let context = share(world, &Context::new(&device)?)?;
        Self::on(world, options.into(), Machine::Cuda(context))
    }

    fn on(world: &World, options: Options, machine: Machine) -> Result<Tube> {
        let layout = options.layout(world.size())?;
        agree(world, "tube rendezvous", &layout)?;
        let bytes = layout.total() as usize;
        let own = Mapping::create(bytes)?;
        let fd = own.try_clone_fd()?;
        let (regions, _) =
            map_all(world, own, &[std::os::fd::AsFd::as_fd(&fd)], |fd| Mapping::map(fd, bytes))?;
        let regions: Arc<[Mapping]> = regions.into();
        let control = layout.control_bytes() as usize;
        let region = Regions::new(regions, &machine, bytes, world.rank(), control)?;
        let board = Board::rendezvous(world)?;
        let link = Link::new("Tube", world, options, layout, machine, board, Box::new(region))?;
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
    /// As a GPU has them, and the table: they go first.
    registered: Vec<RegisteredMemory>,
    regions: Arc<[Mapping]>,
    /// Where kernels find each rank's region.
    bases: Arc<[u64]>,
    /// Where they find `bases`.
    table: u64,
    rank: usize,
    control: usize,
}

impl Regions {
    fn new(
        regions: Arc<[Mapping]>,
        machine: &Machine,
        bytes: usize,
        rank: usize,
        control: usize,
    ) -> Result<Self> {
        let mut registered = Vec::new();
        let mut bases: Arc<[u64]> = regions.iter().map(Mapping::address).collect();
        let mut table = bases.as_ptr() as u64;
        if let Machine::Cuda(context) = machine {
            for region in regions.iter() {
                let host = NonNull::new(region.address() as *mut u8).expect("a mapping has an address");
                // SAFETY: mapped, whole, for as long as the owner keeps the mappings.
                registered
                    .push(unsafe { RegisteredMemory::owned(context, host, bytes, Arc::clone(&regions))? });
            }
            bases = registered.iter().map(|memory| memory.device_ptr().as_u64()).collect();
            let copy = Mapping::create(8 * bases.len())?;
            for (k, base) in bases.iter().enumerate() {
                // SAFETY: inside the mapping, which nobody else has yet.
                unsafe { (copy.address() as *mut u64).add(k).write(*base) };
            }
            let host = NonNull::new(copy.address() as *mut u8).expect("a mapping has an address");
            // SAFETY: as above.
            let copy = unsafe { RegisteredMemory::owned(context, host, 8 * bases.len(), copy)? };
            table = copy.device_ptr().as_u64();
            registered.push(copy);
        }
        Ok(Regions { registered, regions, bases, table, rank, control })
    }

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
        let own = &self.regions[self.rank];
        if self.registered.is_empty() {
            return own.clear(self.control);
        }
        // SAFETY: inside this rank's own region, which nobody accesses. A GPU has its pages: they must stay.
        unsafe { (own.address() as *mut u8).write_bytes(0, self.control) };
        Ok(())
    }
    fn own_address(&self) -> u64 {
        self.bases[self.rank]
    }
    fn table_address(&self) -> u64 {
        self.table
    }
}
