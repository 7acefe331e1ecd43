//! Sets of ranks, and their names on the wire.

use sha2::{Digest, Sha256};

use crate::Rank;

/// Which ranks of the world a [`World`](crate::World) handle speaks of, and which of them this rank is.
#[derive(Debug)]
pub(crate) struct Group {
    /// World ranks, in the group's order.
    pub members: Vec<Rank>,
    /// This rank's place in `members`.
    pub me: usize,
    /// True for the group of all ranks in order.
    pub whole: bool,
    /// 31 bits that keep the messages of this group apart from those of others; 0 for the whole world.
    pub tag_space: u64,
}

impl Group {
    pub fn whole(rank: Rank, size: usize) -> Self {
        Self { members: (0..size).collect(), me: rank, whole: true, tag_space: 0 }
    }

    pub fn of(members: Vec<Rank>, me: usize, world_size: usize) -> Self {
        let whole = members.len() == world_size && members.iter().enumerate().all(|(i, &rank)| i == rank);
        let tag_space = if whole { 0 } else { (group_id(&members) >> 33) | 1 };
        Self { members, me, whole, tag_space }
    }
}

/// The same number on every rank for the same members in the same order.
pub(crate) fn group_id(members: &[Rank]) -> u64 {
    let mut hash = Sha256::new();
    for &rank in members {
        hash.update((rank as u64).to_le_bytes());
    }
    let digest = hash.finalize();
    u64::from_le_bytes(digest[..8].try_into().expect("a SHA-256 digest has 32 bytes"))
}
