//! One chunk to a peer, one from a peer, or either.

use super::{Leg, Member, NOBODY, Schedule};

/// The only chunk of this rank goes to one peer; that of a peer, the same or another, comes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SendRecv {
    /// Where to send, or [`NOBODY`].
    pub to: u32,
    /// From whom to receive, or [`NOBODY`].
    pub from: u32,
}

impl SendRecv {
    #[inline(always)]
    const fn leg(peer: u32) -> Leg {
        Leg { peer, chunk: 0, theirs: 0 }
    }
}

// SAFETY: one leg each way at most. That the peers' values fit is what a launch names in its header.
unsafe impl Schedule for SendRecv {
    const NAME: &'static str = "sendrecv";
    const OWN: bool = false;
    const MUTUAL: bool = false;
    const MOST_LEGS: u32 = 1;

    #[inline(always)]
    fn sends(&self, _: Member) -> u32 {
        u32::from(self.to != NOBODY)
    }

    #[inline(always)]
    fn receives(&self, _: Member) -> u32 {
        u32::from(self.from != NOBODY)
    }

    #[inline(always)]
    fn to(&self, _: Member, _: u32) -> Leg {
        Self::leg(self.to)
    }

    #[inline(always)]
    fn from(&self, _: Member, _: u32) -> Leg {
        Self::leg(self.from)
    }

    #[inline(always)]
    fn own(&self, _: Member) -> [u32; 2] {
        [NOBODY; 2]
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [self.sends(me), self.receives(me)]
    }
}
