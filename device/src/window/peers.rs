//! Who the peers are and how they are reached.

use crate::args::{Crosses, Lent};
use core::marker::PhantomData;

/// How a rank is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LinkKind {
    /// It is this rank.
    Own = 0,
    /// Its memory can be stored to: NVLink, or shared memory of the host.
    Mapped = 1,
    /// By an adapter.
    Rdma = 2,
}

/// A rank in the table of [`DevicePeers`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct PeerSlot {
    /// How it is reached when either would do: see [`LinkKind`].
    pub kind: u32,
    /// Its number among the mapped peers; [`NONE`](PeerSlot::NONE) if it is none.
    pub mapped: u32,
    /// Its number among the peers that an adapter reaches.
    pub rdma: u32,
    /// The rank that is mapped peer of this slot's index.
    pub mapped_rank: u32,
    /// The rank that is adapter's peer of this slot's index.
    pub rdma_rank: u32,
}

impl PeerSlot {
    /// No number.
    pub const NONE: u32 = u32::MAX;
}

/// The peers of a rank as kernels see them: one flat value over a table in device memory. Every question is one load.
///
/// Kernels take it as an argument, `peers: DevicePeers`; a launch is given the `MultiPeerTransport` in its place.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DevicePeers<'a> {
    rank: u32,
    world: u32,
    mapped: u32,
    rdma: u32,
    /// Address of a table of one [`PeerSlot`] for each rank.
    table: u64,
    life: PhantomData<&'a ()>,
}

// SAFETY: plain words, the same on both sides, under a code of their own.
unsafe impl Crosses for DevicePeers<'static> {
    const CODE: u64 = 3 << 32;
}

impl<'a> DevicePeers<'a> {
    /// The peers of `rank` of `world`, of which `mapped` and `rdma` are reached so.
    ///
    /// # Safety
    /// At `table`, where kernels that use it run, are `world` slots that are not written during `'a`.
    pub const unsafe fn new([rank, world]: [u32; 2], [mapped, rdma]: [u32; 2], table: u64) -> Self {
        DevicePeers { rank, world, mapped, rdma, table, life: PhantomData }
    }

    /// The same for a shorter time.
    #[inline(always)]
    pub const fn lend<'b>(self, _: Lent<'b>) -> DevicePeers<'b>
    where
        'a: 'b,
    {
        DevicePeers { life: PhantomData, ..self }
    }

    /// This rank.
    #[inline(always)]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Ranks.
    #[inline(always)]
    pub fn world(&self) -> usize {
        self.world as usize
    }

    /// Mapped peers.
    #[inline(always)]
    pub fn mapped(&self) -> usize {
        self.mapped as usize
    }

    /// Peers that an adapter reaches.
    #[inline(always)]
    pub fn rdma(&self) -> usize {
        self.rdma as usize
    }

    #[inline(always)]
    fn slot(&self, rank: usize) -> Option<PeerSlot> {
        // SAFETY: the table has `world` slots, written before any launch and kept as long as launches run.
        (rank < self.world as usize).then(|| unsafe { (self.table as *const PeerSlot).add(rank).read() })
    }

    /// How `rank` is reached; mapped memory comes before an adapter. `None` for a rank that does not exist.
    #[inline(always)]
    pub fn kind(&self, rank: usize) -> Option<LinkKind> {
        Some(match self.slot(rank)?.kind {
            1 => LinkKind::Mapped,
            2 => LinkKind::Rdma,
            _ => LinkKind::Own,
        })
    }

    /// Number of `rank` among the mapped peers, by rank; `None` if it is none.
    #[inline(always)]
    pub fn mapped_index(&self, rank: usize) -> Option<usize> {
        some(self.slot(rank)?.mapped)
    }

    /// Number of `rank` among the peers that an adapter reaches, by rank; `None` if it is none.
    #[inline(always)]
    pub fn rdma_index(&self, rank: usize) -> Option<usize> {
        some(self.slot(rank)?.rdma)
    }

    /// The rank of a mapped peer.
    #[inline(always)]
    pub fn mapped_rank(&self, index: usize) -> Option<usize> {
        some(self.slot(index)?.mapped_rank)
    }

    /// The rank of a peer that an adapter reaches.
    #[inline(always)]
    pub fn rdma_rank(&self, index: usize) -> Option<usize> {
        some(self.slot(index)?.rdma_rank)
    }

    /// Peers, without this rank.
    #[inline(always)]
    pub fn peers(&self) -> usize {
        self.world as usize - 1
    }

    /// The rank of peer `index`: all ranks but this one, ascending. `None` past the last.
    #[inline(always)]
    pub fn peer_rank(&self, index: usize) -> Option<usize> {
        let rank = if index < self.rank as usize { index } else { index.checked_add(1)? };
        (rank < self.world as usize).then_some(rank)
    }

    /// The index of a peer; `None` for this rank, and for one that does not exist.
    #[inline(always)]
    pub fn peer_index(&self, rank: usize) -> Option<usize> {
        let own = self.rank as usize;
        (rank != own && rank < self.world as usize).then(|| if rank < own { rank } else { rank - 1 })
    }
}

#[inline(always)]
fn some(number: u32) -> Option<usize> {
    (number != PeerSlot::NONE).then_some(number as usize)
}

#[cfg(test)]
mod tests {
    use super::DevicePeers;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_and_indices_of_peers_are_inverse(world in 1u32..1200, seed in 0u32..1200) {
            let rank = seed % world;
            // SAFETY: nothing that is asked here follows the address.
            let peers = unsafe { DevicePeers::new([rank, world], [0, 0], 0) };
            let all: Vec<usize> = (0..peers.peers()).map(|i| peers.peer_rank(i).unwrap()).collect();
            let want: Vec<usize> = (0..world as usize).filter(|r| *r != rank as usize).collect();
            prop_assert_eq!(&all, &want);
            for (index, rank) in all.into_iter().enumerate() {
                prop_assert_eq!(peers.peer_index(rank), Some(index));
            }
            prop_assert_eq!(peers.peer_rank(peers.peers()), None);
            prop_assert_eq!(peers.peer_rank(usize::MAX), None);
            prop_assert_eq!(peers.peer_index(rank as usize), None);
            prop_assert_eq!(peers.peer_index(world as usize), None);
        }
    }
}
