//! One chunk to and from every rank.

use super::{Leg, Member, Schedule};

/// Chunk `p` of a rank goes to rank `p`, where it is the chunk of the sender's number; nearest neighbours first. A rank's own goes from
/// `produce` to `consume`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AllToAll;

// SAFETY: by leg `k` every rank sends `k` ranks up, and receives from `k` ranks down; each pair of ranks has one leg each way.
unsafe impl Schedule for AllToAll {
    const NAME: &'static str = "all_to_all";
    const OWN: bool = true;
    const MUTUAL: bool = true;

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
        let peer = me.up(leg);
        Leg { peer, chunk: peer, theirs: me.rank }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        let peer = me.down(leg);
        Leg { peer, chunk: peer, theirs: me.rank }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        [me.rank; 2]
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [me.world; 2]
    }
}
