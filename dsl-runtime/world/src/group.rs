//! Sets of ranks, and their names on the wire.

use sha2::{Digest, Sha256};

use crate::Rank;

/// Marks contexts in which there is one end and nothing else. Contexts of groups do not have it.
pub(crate) const ONCE: u64 = 1 << 63;

/// Marks such contexts whose end is waited for beside everything else.
pub(crate) const APART: u64 = 1 << 62;

/// Which ranks of the world a [`World`](crate::World) handle speaks of, and which of them this rank is.
#[derive(Debug)]
pub(crate) struct Group {
    /// World ranks, in the group's order.
    pub members: Vec<Rank>,
    /// This rank's place in `members`.
    pub me: usize,
    /// True for the group of all ranks in order.
    pub whole: bool,
    /// Which [split](crate::World::split) it is of; 0 for the world, and for groups of it that are no split's.
    pub context: u64,
    /// What names it to all its ranks.
    pub id: u64,
    /// 31 bits that keep the messages of this group apart from those of others; 0 for the whole world.
    pub tag_space: u64,
}

impl Group {
    pub fn whole(rank: Rank, size: usize) -> Self {
        Self::of((0..size).collect(), rank, size, 0)
    }

    pub fn of(members: Vec<Rank>, me: usize, world_size: usize, context: u64) -> Self {
        let whole = members.len() == world_size && members.iter().enumerate().all(|(i, &rank)| i == rank);
        let id = group_id(context, &members);
        let tag_space = if whole && context == 0 { 0 } else { (id >> 33) | 1 };
        Self { members, me, whole, context, id, tag_space }
    }

    /// The context of the groups that come of the split with this number among the group's; never 0.
    pub fn split(&self, number: u64) -> u64 {
        first_8(Sha256::new().chain_update(self.id.to_le_bytes()).chain_update(number.to_le_bytes())) & !ONCE
            | 1
    }
}

/// Marks groups whose end is waited for beside everything else.
pub(crate) const APART_GROUP: u64 = 1 << 63;

/// The same number on every rank for the same context and members in the same order.
pub(crate) fn group_id(context: u64, members: &[Rank]) -> u64 {
    let mut hash = Sha256::new().chain_update(context.to_le_bytes());
    for &rank in members {
        hash.update((rank as u64).to_le_bytes());
    }
    match context & (ONCE | APART) == ONCE | APART {
        true => first_8(hash) | APART_GROUP,
        false => first_8(hash) & !APART_GROUP,
    }
}

pub(crate) fn first_8(hash: Sha256) -> u64 {
    let digest = hash.finalize();
    u64::from_le_bytes(digest[..8].try_into().expect("a SHA-256 digest has 32 bytes"))
}
