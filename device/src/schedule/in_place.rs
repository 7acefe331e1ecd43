//! Input and output in one buffer.

use super::{Leg, Member, NOBODY, Schedule};

/// A schedule whose input and output are one buffer, laid over each other so that the self copy's chunks are one: an all-gather sends chunk `rank` of
/// the buffer that it fills, a reduce-scatter leaves its result in chunk `rank` of what it sends.
///
/// Where the schedule is [`Schedule::APART`], protocols need no order between what a rank sends and what it receives: the self copy's chunk alone is
/// both, and the thread that stores an element of it has produced it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct InPlace<S>(pub S);

impl<S: Schedule> InPlace<S> {
    /// Chunks of the buffer before the first of the input, and before the first of the output.
    #[inline(always)]
    fn before(&self, me: Member) -> [u32; 2] {
        match self.0.own(me) {
            [NOBODY, _] | [_, NOBODY] => [0; 2],
            [input, output] => [output.saturating_sub(input), input.saturating_sub(output)],
        }
    }
}

// SAFETY: chunks have other numbers, the same ones at both ends.
unsafe impl<S: Schedule> Schedule for InPlace<S> {
    const NAME: &'static str = S::NAME;
    const OWN: bool = S::OWN;
    const OWN_MOVES: bool = S::OWN_MOVES;
    const ONCE: bool = S::ONCE;
    const FOLDS: bool = S::FOLDS;
    const MUTUAL: bool = S::MUTUAL;
    const APART: bool = S::APART;
    const TWO_STEPS: bool = S::TWO_STEPS;
    const ALL_PAIRS: bool = S::ALL_PAIRS;
    const MOST_LEGS: u32 = S::MOST_LEGS;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        self.0.sends(me)
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        self.0.receives(me)
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        let Leg { peer, chunk, theirs } = self.0.to(me, leg);
        let there = self.before(Member { rank: peer, ..me });
        Leg { peer, chunk: chunk + self.before(me)[0], theirs: theirs + there[1] }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        let Leg { peer, chunk, theirs } = self.0.from(me, leg);
        let there = self.before(Member { rank: peer, ..me });
        Leg { peer, chunk: chunk + self.before(me)[1], theirs: theirs + there[0] }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        match self.0.own(me) {
            [NOBODY, _] | [_, NOBODY] => [NOBODY; 2],
            [input, output] => [input.max(output); 2],
        }
    }

    /// Those of the buffer, twice.
    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        let ([inputs, outputs], before) = (self.0.chunks(me), self.before(me));
        [(inputs + before[0]).max(outputs + before[1]); 2]
    }

    #[inline(always)]
    fn root(&self) -> Option<u32> {
        self.0.root()
    }
}
