//! Memory that somebody else allocated, for the ranks of a host to map.
//!
//! Ranks of one process reach each other's by its address, and by the right to reach another GPU's. Between processes CUDA has two ways: a handle of
//! its IPC for what `cudaMalloc` gave, and a descriptor for what was made with one. The owner keeps memory until every rank has unmapped it.

use super::{Error, Machine, Result, Symmetric, Table};
use fusewire_driver::DevicePtr;
use fusewire_driver::memory::{
    DeviceRegion, Export, ForeignAllocation, IpcHandle, IpcMemory, NotExported, SharedMemory, reach,
};
use fusewire_world::{Teardown, World};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// Why peers cannot map memory that somebody else allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum NotExportable {
    /// Memory of the host that is no other process's.
    #[error("it is memory of one process, and not all ranks are in that. {OURS}")]
    Private,
    /// `cuMemAllocManaged`.
    #[error("it is managed memory, whose pages move between host and GPU. {OURS}")]
    Managed,
    /// `cudaMallocAsync`.
    #[error("it is of a pool of CUDA's (`cudaMallocAsync`). {OURS}")]
    Pool,
    /// `cuMemCreate` without a file descriptor.
    #[error("`cuMemCreate` was not asked for a file descriptor of it. {OURS}")]
    NoHandle,
    /// Several times `cuMemCreate`, as PyTorch's expandable segments.
    #[error(
        "it is made of several allocations of `cuMemCreate` (expandable segments of PyTorch are). {OURS}"
    )]
    Several,
    /// It is not on the device of the transport.
    #[error("it is on another device than the transport: copy it to that one first")]
    Elsewhere,
    /// Launches and graphs know it as a buffer of its own.
    #[error("a graph, a window or an operation still has it: drop that first")]
    InUse,
}

/// What to do instead.
const OURS: &str =
    "Outputs that peers reach are made by `Buffer::symmetric`, data of windows by `Device::shared_buffer`";

/// Memory that somebody else allocated, as this rank reaches it: its own, or a peer's.
#[derive(Debug)]
pub struct Foreign {
    address: u64,
    bytes: usize,
    _mapped: Mapped,
}

#[derive(Debug)]
enum Mapped {
    Here,
    Ipc { _memory: IpcMemory },
    Fd { _memory: SharedMemory },
}

/// What a rank says of its memory.
#[derive(Serialize, Deserialize)]
struct Offer {
    process: u64,
    /// Number of the GPU in that process.
    device: Option<usize>,
    address: u64,
    bytes: u64,
    /// How other processes map it.
    how: Result<How, NotExportable>,
}

#[derive(Serialize, Deserialize)]
enum How {
    /// By a handle of the allocation, in which the memory begins at the offset.
    Ipc { handle: Vec<u8>, offset: u64 },
    /// By a descriptor of an allocation of so many bytes.
    Fd { bytes: u64, offset: u64 },
}

/// What a rank says of having mapped its peers' memory.
#[derive(Serialize, Deserialize)]
enum Said {
    Done,
    NotExportable(usize, NotExportable),
    Failed(String),
}

/// Tells processes apart: also those that have one number in two containers, and one that was forked.
fn process() -> u64 {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    SEED.get_or_init(RandomState::new).hash_one(std::process::id())
}

impl Foreign {
    /// This rank's own, of at least one byte.
    ///
    /// # Safety
    /// The memory is there as long as this, and until every rank that maps it has dropped its part.
    pub unsafe fn new(address: u64, bytes: usize) -> Self {
        Foreign { address, bytes, _mapped: Mapped::Here }
    }

    /// Address of the first byte, as kernels of this rank see it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn offer(&self, machine: &Machine) -> Result<(Offer, Option<OwnedFd>)> {
        let mut passed = None;
        let (device, how) = match machine {
            Machine::Host => (None, Err(NotExportable::Private)),
            Machine::Cuda(context) => {
                let start = DevicePtr::new(self.address);
                let how = match ForeignAllocation::export(context, start, self.bytes)? {
                    Ok(ForeignAllocation { base, bytes, exported }) => {
                        let offset = self.address - base.as_u64();
                        Ok(match exported {
                            Export::Ipc(handle) => How::Ipc { handle: handle.into(), offset },
                            Export::Fd(fd) => {
                                passed = Some(fd);
                                How::Fd { bytes: bytes as u64, offset }
                            }
                        })
                    }
                    Err(NotExported::Managed) => Err(NotExportable::Managed),
                    Err(NotExported::Pool) => Err(NotExportable::Pool),
                    Err(NotExported::NoHandle) => Err(NotExportable::NoHandle),
                    Err(NotExported::Several) => Err(NotExportable::Several),
                };
                (Some(context.device().ordinal()), how)
            }
        };
        let (address, bytes) = (self.address, self.bytes as u64);
        Ok((Offer { process: process(), device, address, bytes, how }, passed))
    }

    /// Maps what `rank` offers, which holds as many bytes as it says.
    fn map(machine: &Machine, rank: usize, offer: &Offer, fd: Option<OwnedFd>) -> Result<Self> {
        let here = |address| Foreign { address, bytes: offer.bytes as usize, _mapped: Mapped::Here };
        let near = offer.process == process();
        let context = match machine {
            Machine::Host if near => return Ok(here(offer.address)),
            Machine::Host => return Err(Error::NotExportable { rank, why: NotExportable::Private }),
            Machine::Cuda(context) => context,
        };
        if near && offer.device == Some(context.device().ordinal()) {
            return Ok(here(offer.address));
        }
        let how = offer.how.as_ref().map_err(|why| Error::NotExportable { rank, why: *why })?;
        let nothing = || Error::Misuse { what: format!("rank {rank} passed no memory") };
        match how {
            How::Ipc { .. } if near => {
                let device = offer.device.ok_or_else(nothing)?;
                reach(context, &fusewire_driver::Driver::load()?.device(device)?)?;
                Ok(here(offer.address))
            }
            How::Ipc { handle, offset } => {
                let handle = IpcHandle::try_from(&handle[..]).map_err(|_| nothing())?;
                // SAFETY: the owner keeps it until this rank has unmapped it: see `Foreign::new`.
                let memory = unsafe { IpcMemory::open(context, &handle)? };
                let address = memory.ptr().as_u64() + offset;
                Ok(Foreign { _mapped: Mapped::Ipc { _memory: memory }, ..here(address) })
            }
            How::Fd { bytes, offset } => {
                let fd = fd.ok_or_else(nothing)?;
                let memory = SharedMemory::import(context, fd.as_fd(), *bytes as usize)?;
                let address = memory.ptr().as_u64() + offset;
                Ok(Foreign { _mapped: Mapped::Fd { _memory: memory }, ..here(address) })
            }
        }
    }

    /// Maps the memory of every rank that is `wanted`, and makes `more` of it. `own`, or why there is none. Collective; what fails on one rank is
    /// [`Refused`] on all, and then no rank has the memory mapped any more.
    ///
    /// # Errors
    /// Ranks that do not come: others may have the memory mapped.
    pub(crate) fn map_all<M>(
        world: &World,
        machine: &Machine,
        own: Result<&Foreign, NotExportable>,
        wanted: impl Fn(usize) -> bool,
        more: impl FnOnce(&[Option<Foreign>]) -> Result<M>,
    ) -> Result<Made<M>> {
        let offered = match own {
            Ok(own) => own.offer(machine),
            Err(why) => Err(Error::NotExportable { rank: world.rank(), why }),
        };
        let (offer, fd, refused) = match offered {
            Ok((offer, fd)) => (Some(offer), fd, None),
            Err(error) => (None, None, Some(error)),
        };
        let all: Vec<Option<Offer>> = world.all_gather_as(&offer)?;
        let by_fd = |offer: &Option<Offer>| matches!(offer, Some(Offer { how: Ok(How::Fd { .. }), .. }));
        let mut fds = match all.iter().any(by_fd) {
            true => world.exchange_fds(fd.as_ref().map(AsFd::as_fd).as_slice())?,
            false => Vec::new(),
        };
        let each = |(rank, theirs): (usize, &Option<Offer>)| match theirs {
            Some(theirs) if rank != world.rank() && wanted(rank) => {
                Foreign::map(machine, rank, theirs, fds.get_mut(rank).and_then(Vec::pop)).map(Some)
            }
            // Who has none says so itself.
            _ => Ok(None),
        };
        let mapped: Result<Vec<_>> = match refused {
            Some(error) => Err(error),
            None => all.iter().enumerate().map(each).collect(),
        };
        let made = mapped.and_then(|mapped| more(&mapped).map(|more| (mapped, more)));
        let said = match &made {
            Ok(_) => Said::Done,
            Err(Error::NotExportable { rank, why }) => Said::NotExportable(*rank, *why),
            Err(error) => Said::Failed(error.to_string()),
        };
        // Nobody goes on alone.
        let said: Vec<Said> = world.all_gather_as(&said)?;
        let failed = said.into_iter().enumerate().find(|(_, said)| !matches!(said, Said::Done));
        let Some((rank, said)) = failed else { return made.map(Ok) };
        let own = made.err();
        // Nor does memory go that a peer has mapped.
        world.barrier()?;
        Ok(Err(Refused(own.unwrap_or_else(|| match said {
            Said::NotExportable(rank, why) => Error::NotExportable { rank, why },
            Said::Failed(why) => {
                Error::Misuse { what: format!("rank {rank} could not share its memory: {why}") }
            }
            Said::Done => unreachable!("looked for one that is not"),
        }))))
    }
}

/// What was mapped and made of it; or what all ranks were refused.
type Made<M> = Result<(Vec<Option<Foreign>>, M), Refused>;

/// What all ranks were refused.
pub(crate) struct Refused(pub(crate) Error);

/// What keeps memory of others.
pub type Owner = Box<dyn Any + Send + Sync>;

/// The memory of all ranks, which belongs to others.
struct Adopted {
    /// The peers'.
    mapped: Vec<Option<Foreign>>,
    /// That kernels read.
    _table: Table<u64>,
    /// Of this rank's memory, until every rank has unmapped it.
    owner: Option<Owner>,
    teardown: Option<Teardown>,
    world: World,
}

impl Drop for Adopted {
    fn drop(&mut self) {
        let (mapped, world) = (std::mem::take(&mut self.mapped), self.world.clone());
        // The memory stays if peers may go on using it.
        let owner = ManuallyDrop::new(self.owner.take());
        let Some(teardown) = self.teardown.take() else { return };
        // Nobody waits in a drop: not for the GPU either, as the driver may when it unmaps.
        let end = move || {
            drop(mapped);
            if world.teardown(teardown) {
                drop(ManuallyDrop::into_inner(owner));
            }
        };
        let _ = std::thread::Builder::new().name("end".into()).spawn(end);
    }
}

/// Makes memory that is there symmetric: `bytes` bytes at an address, and what keeps them; or why this rank has none. Collective.
///
/// # Errors
/// [`Error::NotExportable`], [`Error::Misuse`] where a rank could not map it; ranks that do not come.
///
/// # Safety
/// The memory is there until the owner is dropped.
pub(super) unsafe fn adopt(
    world: &World,
    machine: &Machine,
    own: Result<(u64, Owner), NotExportable>,
    bytes: usize,
) -> Result<Symmetric> {
    let (own, owner) = match own {
        // SAFETY: the owner is dropped when every rank is done, or never.
        Ok((address, owner)) => (Ok(unsafe { Foreign::new(address, bytes) }), Some(owner)),
        Err(why) => (Err(why), None),
    };
    // Until it is known that no peer has the memory.
    let mut owner = ManuallyDrop::new(owner);
    let here = own.as_ref().map_or(0, |own| own.address);
    let tabled = |mapped: &[Option<Foreign>]| {
        let bases = mapped.iter().map(|peer| peer.as_ref().map_or(here, Foreign::address));
        let bases: Vec<u64> = bases.collect();
        Ok((Table::new(machine, bases.clone())?, bases.into_boxed_slice()))
    };
    let made = Foreign::map_all(world, machine, own.as_ref().map_err(|why| *why), |_| true, tabled)?;
    let (mapped, (table, bases)) = match made {
        Ok(made) => made,
        Err(Refused(error)) => {
            drop(ManuallyDrop::into_inner(owner));
            return Err(error);
        }
    };
    let teardown = Some(world.name_teardown()?.apart());
    let (address, owner) = (table.address(), owner.take());
    let kept = Adopted { mapped, _table: table, owner, teardown, world: world.clone() };
    Ok(Symmetric::new(world.rank(), bases, bytes, address, kept))
}
