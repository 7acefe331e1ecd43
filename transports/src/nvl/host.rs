//! Host half: a CUDA VMM allocation per rank, exported as a file descriptor, mapped by all.

use super::NvlOps;
use crate::host::symmetric::map_all;
use crate::host::{Board, Error, Link, Machine, Options, Region, Result, Symmetric, Transport, share};
use crate::peers::{PeersConfig, native_atomics};
use fusewire_device::mapped::Layout;
use fusewire_driver::memory::{DeviceMemory, DeviceRegion, SharedMemory};
use fusewire_driver::{Context, Driver};
use fusewire_world::World;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// GPUs that reach each other's memory, over NVLink or PCIe peer access. Ranks are threads or processes of one host.
///
/// Ranks may share a GPU: as threads of one process, or as processes under MPS. Each has a part of the multiprocessors to itself, on which
/// the streams of `Device::of(&nvl)` run.
///
/// Where a pair has PCIe alone there are no lines (`Options::ll128_channels` does not count): those need stores of 128 bytes that arrive
/// whole. The driver cannot be asked for that. It is inferred from native atomics, which paths over NVLink have and paths over PCIe have
/// not. A plan says which pair it is; `FUSEWIRE_NO_NATIVE_ATOMICS=1` on any rank makes every pair one of those.
#[derive(Debug)]
pub struct Nvl {
    link: Arc<Link>,
}

#[derive(Serialize, Deserialize, Clone, PartialEq)]
struct Card {
    bus: String,
    error: Option<String>,
}

impl Nvl {
    /// Makes the transport on the GPU of this rank's place on its host (`local_rank`, modulo the GPUs there are). Collective.
    ///
    /// # Errors
    /// As for [`Nvl::rendezvous_on`]; and a missing or old CUDA driver, on every rank.
    pub fn rendezvous(world: &World, options: impl Into<Options>) -> Result<Nvl> {
        let open = || -> fusewire_driver::Result<Context> {
            let driver = Driver::load()?;
            let count = driver.device_count()?.max(1);
            Context::new(&driver.device(world.local_rank() % count)?)
        };
        Self::with(world, open(), options.into())
    }

    /// Makes the transport on a GPU of the caller's choice. Collective: all ranks call it, with equal options.
    ///
    /// # Errors
    /// [`Error::Misuse`] for options that cannot be, ranks on other hosts, and GPUs that do not reach each other (the error names the
    /// pair); [`Error::World`] when options differ over ranks or a rank is missing; [`Error::Cuda`] when the driver refuses.
    pub fn rendezvous_on(world: &World, context: &Context, options: impl Into<Options>) -> Result<Nvl> {
        Self::with(world, Ok(context.clone()), options.into())
    }

    fn with(world: &World, context: fusewire_driver::Result<Context>, mut options: Options) -> Result<Nvl> {
        let mut layout = options.layout(world.size())?;
        crate::host::agree(world, "nvl rendezvous", &layout)?;
        // Every rank learns of every rank's GPU, or of why it has none: nobody is left waiting.
        let card = match &context {
            Ok(c) => Card { bus: c.device().pci_bus_id().to_string(), error: None },
            Err(e) => Card { bus: String::new(), error: Some(e.to_string()) },
        };
        let cards = world.all_gather_as(&card)?;
        let context = context?;
        if let Some((rank, why)) = cards.iter().enumerate().find_map(|(r, c)| Some((r, c.error.as_ref()?))) {
            return Err(Error::Misuse { what: format!("rank {rank} has no GPU to use: {why}") });
        }
        let context = share(world, &context)?;
        let verdicts: Vec<std::result::Result<Option<usize>, String>> =
            world.all_gather_as(&reachable(world, &context, &cards))?;
        let verdicts = verdicts.into_iter().collect::<std::result::Result<Vec<_>, _>>();
        let verdicts = verdicts.map_err(|what| Error::Misuse { what })?;
        let parted = verdicts.iter().enumerate().find_map(|(rank, peer)| Some((rank, (*peer)?)));
        if parted.is_some() {
            options.ll128_channels = 0;
            layout = options.layout(world.size())?;
        }
        let bytes = layout.total() as usize;
        let (own, page) = (SharedMemory::create(&context, bytes)?, Board::page()?);
        let fd = own.export_fd()?;
        let import = |fd: OwnedFd| Ok(SharedMemory::import(&context, fd.as_fd(), bytes)?);
        let (regions, pages) = map_all(world, own, &[fd.as_fd(), page.fd()], import)?;
        let pages = pages.into_iter().map(|p| p.into_iter().next()).collect();
        let board = Board::new(world.rank(), page, pages)?;
        let device_table = table(&context, &regions)?.0;
        let region = CudaRegion { regions, table: device_table, rank: world.rank(), layout };
        let link = Link::new("Nvl", world, options, layout, Machine::Cuda(context), board, Box::new(region))?;
        if let Some(pair) = parted {
            link.has_no_ll128(pair);
        }
        world.barrier()?;
        Ok(Nvl { link })
    }

    /// The GPU of this rank, or its part of one that ranks share.
    pub fn context(&self) -> &Context {
        match self.link.machine() {
            Machine::Cuda(context) => context,
            Machine::Host => unreachable!("an Nvl link is made on a GPU"),
        }
    }
}

/// Where memory is mapped, as a table for kernels and for the host.
fn table(context: &Context, memory: &[SharedMemory]) -> Result<(DeviceMemory, Box<[u64]>)> {
    let bases: Box<[u64]> = memory.iter().map(|m| m.ptr().as_u64()).collect();
    let table = DeviceMemory::new(context, 8 * bases.len())?;
    table.write(0, &bases)?;
    Ok((table, bases))
}

/// The first rank to whose GPU this rank's has no NVLink, which alone carries lines of 128 bytes whole; or why it does not reach one.
fn reachable(world: &World, context: &Context, cards: &[Card]) -> std::result::Result<Option<usize>, String> {
    let (me, own, granted) = (world.rank(), context.device(), PeersConfig::default().atomics);
    let devices = Driver::load().and_then(|driver| driver.devices()).unwrap_or_default();
    let mut parted = None;
    for (rank, card) in cards.iter().enumerate() {
        if !world.is_local(rank) {
            return Err(format!(
                "rank {rank} is on another host than rank {me}; `Nvl` needs all ranks on one host"
            ));
        }
        if rank != me && !granted {
            parted = parted.or(Some(rank));
        }
        if card.bus == own.pci_bus_id() {
            continue;
        }
        let Some(theirs) = devices.iter().find(|d| d.pci_bus_id() == card.bus) else {
            return Err(format!(
                "rank {me} cannot see the GPU of rank {rank} ({}): give every rank all GPUs of the host (CUDA_VISIBLE_DEVICES hides it)",
                card.bus
            ));
        };
        if !own.can_access_peer(theirs).unwrap_or(false) {
            return Err(format!(
                "the GPUs of rank {me} ({own}) and rank {rank} ({theirs}) cannot reach each other's memory"
            ));
        }
        if !native_atomics(own, theirs) {
            parted = parted.or(Some(rank));
        }
    }
    if !own.supports_posix_fd() {
        return Err(format!("the GPU of rank {me} ({own}) cannot share memory by file descriptor"));
    }
    Ok(parted)
}

// SAFETY: the region and its table belong to the link.
unsafe impl Transport for Nvl {
    type Ops = NvlOps;
    const NAME: &'static str = "Nvl";

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    unsafe fn ops(&self) -> NvlOps {
        // SAFETY: the caller's contract, for the link's own regions.
        NvlOps(unsafe { self.link.mapped() })
    }
}

struct CudaRegion {
    regions: Vec<SharedMemory>,
    table: DeviceMemory,
    rank: usize,
    layout: Layout,
}

// SAFETY: memory that the value owns, of the layout that `rendezvous` agreed.
unsafe impl Region for CudaRegion {
    fn abort_word(&self) -> Result<u64> {
        let mut word = [0u64];
        self.regions[self.rank].read(0, &mut word)?;
        Ok(word[0])
    }

    fn raise_abort(&self, code: u64) -> Result<()> {
        // Not a compare-and-swap: the host has none on device memory. A fault of the same moment may be overwritten by this reason.
        if self.abort_word()? == 0 {
            self.regions[self.rank].write(0, &[code])?;
        }
        Ok(())
    }

    unsafe fn clear(&self) -> Result<()> {
        for (at, bytes) in self.layout.cleared().into_iter().filter(|(_, bytes)| *bytes > 0) {
            self.regions[self.rank].fill_at(at as usize, bytes as usize, 0)?;
        }
        Ok(())
    }

    fn own_address(&self) -> u64 {
        self.regions[self.rank].ptr().as_u64()
    }

    fn table_address(&self) -> u64 {
        self.table.ptr().as_u64()
    }

    fn outlives_rank(&self) -> bool {
        true
    }

    fn reaches_mapped(&self) -> bool {
        true
    }

    fn symmetric(&self, world: &World, bytes: usize) -> Result<Option<Symmetric>> {
        let context = self.regions[self.rank].context();
        let own = SharedMemory::create(context, bytes)?;
        let fd = own.export_fd()?;
        let import = |fd: OwnedFd| Ok(SharedMemory::import(context, fd.as_fd(), bytes)?);
        let (memory, _) = map_all(world, own, &[fd.as_fd()], import)?;
        let (table, bases) = table(context, &memory)?;
        let address = table.ptr().as_u64();
        Ok(Some(Symmetric::new(self.rank, bases, bytes, address, (memory, table))))
    }
}
