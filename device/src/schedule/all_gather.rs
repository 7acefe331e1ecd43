//! Each rank's chunk to every rank.

use super::{AllToAll, Leg, Member, Schedule};

/// The only chunk of a rank goes to every rank, where it is the chunk of the sender's number; nearest neighbours first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AllGather;

// SAFETY: by leg `k` every rank sends `k` ranks up, and receives from `k` ranks down; each pair of ranks has one leg each way.
unsafe impl Schedule for AllGather {
    const NAME: &'static str = "all_gather";
    const OWN: bool = true;
    const OWN_MOVES: bool = true;
    const ONCE: bool = true;
    const MUTUAL: bool = true;
    const APART: bool = true;
    const ALL_PAIRS: bool = true;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        me.world - 1
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        me.world - 1
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        Leg { chunk: 0, ..AllToAll.to(me, leg) }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        Leg { theirs: 0, ..AllToAll.from(me, leg) }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        [0, me.rank]
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [1, me.world]
    }
}
