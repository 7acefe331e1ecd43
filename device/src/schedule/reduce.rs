//! What all ranks contribute to an element, folded: on every rank a part of it, or all of it, or all of it on one rank.

use super::{AllGather, AllToAll, Gather, Leg, Member, Schedule};

/// Chunk `p` of every rank goes to rank `p`, where they become its only chunk; nearest neighbours first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ReduceScatter;

// SAFETY: legs are those of an all-to-all; what a rank receives, and its own, are of its only chunk.
unsafe impl Schedule for ReduceScatter {
    const NAME: &'static str = "reduce_scatter";
    const OWN: bool = true;
    const OWN_MOVES: bool = true;
    const FOLDS: bool = true;
    const MUTUAL: bool = true;
    const APART: bool = true;
    const ALL_PAIRS: bool = true;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        AllToAll.sends(me)
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        AllToAll.receives(me)
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        Leg { theirs: 0, ..AllToAll.to(me, leg) }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        Leg { chunk: 0, ..AllToAll.from(me, leg) }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        [me.rank, 0]
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [me.world, 1]
    }
}

/// The only chunk of every rank goes to every rank, where they become its only chunk; nearest neighbours first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AllReduce;

// SAFETY: legs are those of an all-gather; what a rank receives, and its own, are of its only chunk.
unsafe impl Schedule for AllReduce {
    const NAME: &'static str = "all_reduce";
    const OWN: bool = true;
    const ONCE: bool = true;
    const FOLDS: bool = true;
    const MUTUAL: bool = true;
    const TWO_STEPS: bool = true;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        AllGather.sends(me)
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        AllGather.receives(me)
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        Leg { theirs: 0, ..AllGather.to(me, leg) }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        Leg { chunk: 0, ..AllGather.from(me, leg) }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        let _ = me;
        [0; 2]
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        let _ = me;
        [1; 2]
    }
}

/// The only chunk of every rank goes to the root, where they become its only chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Reduce {
    /// The rank.
    pub root: u32,
}

impl Reduce {
    #[inline(always)]
    fn gather(self) -> Gather {
        Gather { root: self.root }
    }
}

// SAFETY: legs are those of a gather; what the root receives, and its own, are of its only chunk.
unsafe impl Schedule for Reduce {
    const NAME: &'static str = "reduce";
    const OWN: bool = true;
    const OWN_MOVES: bool = true;
    const FOLDS: bool = true;
    const MUTUAL: bool = false;
    const APART: bool = true;
    const TWO_STEPS: bool = true;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        self.gather().sends(me)
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        self.gather().receives(me)
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        Leg { theirs: 0, ..self.gather().to(me, leg) }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        Leg { chunk: 0, ..self.gather().from(me, leg) }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        self.gather().own(me).map(|chunk| if chunk == super::NOBODY { chunk } else { 0 })
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        self.gather().chunks(me).map(|chunks| chunks.min(1))
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        Some(self.root)
    }
}
