//! Host half: two transports and a table of which peer is where.

use super::MeshOps;
use super::ops::FAR;
use crate::host::{Domains, Error, Link, Machine, Result, Transport, Words, share};
use crate::ibgda::{Ibgda, IbgdaOptions};
use crate::{Nvl, Shm};
use fusewire_driver::Context;
use fusewire_nic::Nic;
use fusewire_world::World;
use std::fmt;
use std::sync::Arc;

/// Peers of one's domain over `Intra`, all others over `Inter`.
pub struct Mesh<Intra: Transport, Inter: Transport> {
    inter: Inter,
    intra: Intra,
    ops: MeshOps<Intra::Ops, Inter::Ops>,
}

impl<Intra: Transport, Inter: Transport> Mesh<Intra, Inter> {
    /// Makes one transport of two. `intra` was made in the group of this rank's domain, `inter` in the whole world; both with equal
    /// options, and on the same device. Collective: all ranks call it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the two do not fit, on any rank.
    pub fn new(intra: Intra, inter: Inter) -> Result<Self> {
        let (near, all) = (intra.link(), inter.link());
        let verdicts: Vec<Option<String>> = all.world().all_gather_as(&misfit(near, all))?;
        if let Some((rank, what)) = verdicts.into_iter().enumerate().find_map(|(r, v)| Some((r, v?))) {
            return Err(Error::Misuse { what: format!("rank {rank}: {what}") });
        }
        let mut places = vec![FAR; all.world().size()];
        for local in 0..near.world().size() {
            let name = near.world().world_rank(local);
            if let Some(rank) = (0..places.len()).find(|r| all.world().world_rank(*r) == name) {
                places[rank] = local as u32;
            }
        }
        let lowest = places.iter().position(|place| *place != FAR).unwrap_or(0);
        let domains = Domains::of(&all.world().all_gather_as(&lowest)?);
        let words = places.chunks(2).map(|p| u64::from(p[0]) | u64::from(*p.get(1).unwrap_or(&FAR)) << 32);
        let table = Words::new(all.machine(), words.collect())?;
        // SAFETY: given out by `Transport::ops` alone; both links live with `all`, which joins them.
        let ops =
            unsafe { MeshOps::new(intra.ops(), inter.ops(), table.addr(), domains.aligned().unwrap_or(0)) };
        all.has_domains(domains);
        all.join(Arc::clone(near), Arc::new(table));
        all.world().barrier()?;
        Ok(Mesh { inter, intra, ops })
    }

    /// The transport within the domain.
    pub fn intra(&self) -> &Intra {
        &self.intra
    }

    /// The transport to every rank.
    pub fn inter(&self) -> &Inter {
        &self.inter
    }
}

/// Why the two cannot be one.
fn misfit(near: &Link, all: &Link) -> Option<String> {
    let (a, b) = (near.layout(), all.layout());
    if (a.channels, a.window) != (b.channels, b.window) {
        return Some(format!(
            "{} has {} channels of {} bytes and {} has {} of {}: give both the same options",
            near.name(),
            a.channels,
            a.window,
            all.name(),
            b.channels,
            b.window
        ));
    }
    match (near.machine(), all.machine()) {
        (Machine::Host, Machine::Host) => None,
        (Machine::Cuda(a), Machine::Cuda(b)) if a.device().pci_bus_id() == b.device().pci_bus_id() => None,
        _ => Some(format!("{} and {} are on different devices", near.name(), all.name())),
    }
}

/// Before the domains go their own ways.
fn agree(world: &World, options: &IbgdaOptions) -> Result<()> {
    crate::host::agree(world, "mesh rendezvous", &options.transport.layout(world.size())?)
}

impl Mesh<Shm, Ibgda> {
    /// A mesh for CPU threads: shared memory among the ranks of `domain` (the same number on each of them), an adapter to all.
    /// Collective.
    ///
    /// # Errors
    /// Those of both transports.
    pub fn rendezvous(
        world: &World,
        domain: u64,
        nic: Arc<dyn Nic>,
        options: impl Into<IbgdaOptions>,
    ) -> Result<Self> {
        let options = options.into();
        agree(world, &options)?;
        let near = world.split(domain, world.rank() as u64)?;
        let intra = Shm::rendezvous(&near, options.transport.clone())?;
        Self::new(intra, Ibgda::named("Mesh", world, nic, None, options)?)
    }
}

impl Mesh<Nvl, Ibgda> {
    /// A mesh for GPUs: NVLink among the ranks of `domain` (the same number on each of them), an adapter to all. Collective.
    ///
    /// # Errors
    /// Those of both transports.
    pub fn rendezvous(
        world: &World,
        domain: u64,
        context: &Context,
        nic: Arc<dyn Nic>,
        options: impl Into<IbgdaOptions>,
    ) -> Result<Self> {
        let options = options.into();
        agree(world, &options)?;
        // Of all ranks, before domains divide a GPU by themselves.
        let context = share(world, context)?;
        let near = world.split(domain, world.rank() as u64)?;
        let intra = Nvl::rendezvous_on(&near, &context, options.transport.clone())?;
        Self::new(intra, Ibgda::named("Mesh", world, nic, Some(&context), options)?)
    }
}

// SAFETY: those of two transports, whose links and table `Mesh::new` has joined.
unsafe impl<Intra: Transport, Inter: Transport> Transport for Mesh<Intra, Inter> {
    type Ops = MeshOps<Intra::Ops, Inter::Ops>;
    const NAME: &'static str = "Mesh";

    fn link(&self) -> &Arc<Link> {
        self.inter.link()
    }

    unsafe fn ops(&self) -> Self::Ops {
        self.ops
    }
}

impl<Intra: Transport, Inter: Transport> fmt::Debug for Mesh<Intra, Inter> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} within the domain, {:?} to all", self.intra.link(), self.inter.link())
    }
}
