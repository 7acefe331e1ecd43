//! From one rank, the root, to every rank, or from every rank to it.
//!
//! A root that is no rank leaves every rank without legs: hosts refuse it.

use super::{Leg, Member, NOBODY, Schedule};

#[inline(always)]
fn root_legs(root: u32, me: Member) -> u32 {
    if me.rank == root { me.world - 1 } else { 0 }
}

#[inline(always)]
fn other_legs(root: u32, me: Member) -> u32 {
    if me.rank == root || root >= me.world { 0 } else { 1 }
}

/// The only chunk of the root goes to every rank, the root among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Broadcast {
    /// The rank.
    pub root: u32,
}

// SAFETY: the root sends one leg to each other rank, which receives it.
unsafe impl Schedule for Broadcast {
    const NAME: &'static str = "broadcast";
    const OWN: bool = true;
    const OWN_MOVES: bool = true;
    const ONCE: bool = true;
    const MUTUAL: bool = false;
    const APART: bool = true;
    const TWO_STEPS: bool = true;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        root_legs(self.root, me)
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        other_legs(self.root, me)
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        Leg { peer: me.up(leg), chunk: 0, theirs: 0 }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        let _ = (me, leg);
        Leg { peer: self.root, chunk: 0, theirs: 0 }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        if me.rank == self.root { [0, 0] } else { [NOBODY; 2] }
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [u32::from(me.rank == self.root), 1]
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        Some(self.root)
    }
}

/// Chunk `p` of the root goes to rank `p`, whose only chunk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Scatter {
    /// The rank.
    pub root: u32,
}

// SAFETY: the root sends one leg to each other rank, which receives it.
unsafe impl Schedule for Scatter {
    const NAME: &'static str = "scatter";
    const OWN: bool = true;
    const OWN_MOVES: bool = true;
    const MUTUAL: bool = false;
    const APART: bool = true;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        root_legs(self.root, me)
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        other_legs(self.root, me)
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        let peer = me.up(leg);
        Leg { peer, chunk: peer, theirs: 0 }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        let _ = leg;
        Leg { peer: self.root, chunk: 0, theirs: me.rank }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        if me.rank == self.root { [me.rank, 0] } else { [NOBODY; 2] }
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [if me.rank == self.root { me.world } else { 0 }, 1]
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        Some(self.root)
    }
}

/// The only chunk of rank `p` goes to the root, where it is chunk `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gather {
    /// The rank.
    pub root: u32,
}

// SAFETY: each rank but the root sends it one leg, which it receives.
unsafe impl Schedule for Gather {
    const NAME: &'static str = "gather";
    const OWN: bool = true;
    const OWN_MOVES: bool = true;
    const MUTUAL: bool = false;
    const APART: bool = true;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        other_legs(self.root, me)
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        root_legs(self.root, me)
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        let _ = leg;
        Leg { peer: self.root, chunk: 0, theirs: me.rank }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        let peer = me.down(leg);
        Leg { peer, chunk: peer, theirs: 0 }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        if me.rank == self.root { [0, me.rank] } else { [NOBODY; 2] }
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [1, if me.rank == self.root { me.world } else { 0 }]
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        Some(self.root)
    }
}
