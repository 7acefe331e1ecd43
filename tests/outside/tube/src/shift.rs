//! Every rank sends its one chunk to the rank `by` behind it.

use fusewire::device::schedule::{Leg, Member, NOBODY, Schedule};

/// A cyclic shift of one chunk by `by` ranks, by 1 to `world - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Shift {
    /// How many ranks on.
    pub by: u32,
}

// SAFETY: one leg each way, of the one chunk; `check` follows it in the tests.
unsafe impl Schedule for Shift {
    const NAME: &'static str = "shift";
    const OWN: bool = false;
    const MUTUAL: bool = false;
    const MOST_LEGS: u32 = 1;

    fn sends(&self, _: Member) -> u32 {
        1
    }
    fn receives(&self, _: Member) -> u32 {
        1
    }
    fn to(&self, me: Member, _: u32) -> Leg {
        Leg { peer: (me.rank + self.by) % me.world, chunk: 0, theirs: 0 }
    }
    fn from(&self, me: Member, _: u32) -> Leg {
        Leg { peer: (me.rank + me.world - self.by % me.world) % me.world, chunk: 0, theirs: 0 }
    }
    fn own(&self, _: Member) -> [u32; 2] {
        [NOBODY; 2]
    }
    fn chunks(&self, _: Member) -> [u32; 2] {
        [1, 1]
    }
}
