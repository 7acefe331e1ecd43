//! Symmetric memory: one allocation on each rank, mapped by all.

use super::{Error, Result};
use fusewire_world::World;
use std::any::Any;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

/// An allocation of this rank and where its peers' are mapped. Each rank may drop its own at any time: memory that a peer still maps
/// stays.
pub struct Symmetric {
    bases: Box<[u64]>,
    rank: usize,
    bytes: usize,
    table: u64,
    /// The transport's number of this allocation; equal on all ranks.
    number: u32,
    /// The transport's end that made it.
    link: u64,
    _memory: Box<dyn Any + Send + Sync>,
}

impl Symmetric {
    /// `bases[r]` is where rank `r`'s allocation is mapped, `table` the address of a copy of `bases` that kernels read; `memory` keeps
    /// all of it alive.
    pub(crate) fn new(
        rank: usize,
        bases: Box<[u64]>,
        bytes: usize,
        table: u64,
        memory: impl Any + Send + Sync,
    ) -> Self {
        Symmetric { bases, rank, bytes, table, number: 0, link: 0, _memory: Box::new(memory) }
    }

    pub(crate) fn of(self, link: u64, number: u32) -> Self {
        Symmetric { number, link, ..self }
    }

    /// Address of this rank's own.
    pub fn own(&self) -> u64 {
        self.bases[self.rank]
    }

    /// Where each rank's is mapped, by rank.
    pub fn bases(&self) -> &[u64] {
        &self.bases
    }

    /// Address of that table for kernels.
    pub fn table(&self) -> u64 {
        self.table
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Numbers the allocations of a transport in the order in which they were made.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// [`Link::id`](super::Link::id) of the transport's end that made it.
    pub fn link(&self) -> u64 {
        self.link
    }
}

impl fmt::Debug for Symmetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of symmetric memory on each of {} ranks", self.bytes, self.bases.len())
    }
}

/// Maps what every rank passes: `own` as it is, the others' from their first descriptors; the other descriptors are given back. Collective.
///
/// # Errors
/// If a rank passes none or is on another host, or what `map` says.
pub fn map_all<M>(
    world: &World,
    own: M,
    descriptors: &[BorrowedFd<'_>],
    mut map: impl FnMut(OwnedFd) -> Result<M>,
) -> Result<(Vec<M>, Vec<Vec<OwnedFd>>)> {
    let passed = world.exchange_fds(descriptors)?;
    let (mut all, mut rest, mut own) = (Vec::<M>::new(), Vec::new(), Some(own));
    for (rank, theirs) in passed.into_iter().enumerate() {
        let mut theirs = theirs.into_iter();
        let first = theirs.next();
        all.push(match (own.take_if(|_| rank == world.rank()), first) {
            (Some(own), _) => own,
            (None, Some(fd)) => map(fd)?,
            (None, None) => return Err(Error::Misuse { what: format!("rank {rank} passed no memory") }),
        });
        rest.push(theirs.collect());
    }
    Ok((all, rest))
}
