//! A schedule in two steps, where every output gets the same: parts of it to ranks that pass them on, and from there to all that take them.
//!
//! Chunks of these schedules are the parts. Every rank passes one on but a root, whose link is full without.

use super::{Leg, Member, NOBODY, Schedule};

/// The ranks that pass a part on.
#[derive(Clone, Copy)]
pub(crate) struct Relays {
    /// The only one that does not. (No number where there is none: then compilers see that no rank is it.)
    root: Option<u32>,
    world: u32,
}

impl Relays {
    #[inline(always)]
    pub(crate) fn of<S: Schedule>(schedule: &S, me: Member) -> Self {
        Relays { root: schedule.root(), world: me.world }
    }

    /// So many ranks, each of them.
    #[inline(always)]
    pub(super) fn all(world: u32) -> Self {
        Relays { root: None, world }
    }

    /// How many they are, and so many parts there are.
    #[inline(always)]
    pub(crate) fn parts(self) -> u32 {
        self.world - u32::from(self.root.is_some_and(|root| root < self.world))
    }

    /// The part that `rank` passes on.
    #[inline(always)]
    pub(crate) fn part(self, rank: u32) -> u32 {
        rank - u32::from(self.root.is_some_and(|root| rank > root))
    }

    /// The rank that passes `part` on.
    #[inline(always)]
    fn rank(self, part: u32) -> u32 {
        part + u32::from(self.root.is_some_and(|root| part >= root))
    }

    #[inline(always)]
    fn is_root(self, rank: u32) -> bool {
        self.root == Some(rank)
    }

    /// Those that are not `rank`.
    #[inline(always)]
    fn others(self, rank: u32) -> u32 {
        self.parts() - u32::from(!self.is_root(rank))
    }

    /// The one `step` up from `me`.
    #[inline(always)]
    fn up(self, me: Member, step: u32) -> u32 {
        if self.is_root(me.rank) { me.up(step) } else { self.rank(self.among(me).up(step)) }
    }

    /// The one `step` down from `me`.
    #[inline(always)]
    fn down(self, me: Member, step: u32) -> u32 {
        if self.is_root(me.rank) { me.down(step) } else { self.rank(self.among(me).down(step)) }
    }

    #[inline(always)]
    fn among(self, me: Member) -> Member {
        Member { rank: self.part(me.rank), world: self.parts() }
    }
}

/// The first step of a schedule that has [two](Schedule::TWO_STEPS): every rank that contributes sends each other one that passes a part on its part.
#[derive(Clone, Copy, Debug)]
pub struct First<S>(pub S);

// SAFETY: each part goes to the one rank that passes it on, from the root alone or from all.
unsafe impl<S: Schedule> Schedule for First<S> {
    const NAME: &'static str = S::NAME;
    const OWN: bool = S::FOLDS;
    const OWN_MOVES: bool = true;
    const FOLDS: bool = S::FOLDS;
    const MUTUAL: bool = S::MUTUAL;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        let relays = Relays::of(&self.0, me);
        if S::FOLDS || relays.is_root(me.rank) { relays.others(me.rank) } else { 0 }
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        let relays = Relays::of(&self.0, me);
        match relays.is_root(me.rank) {
            true => 0,
            false if S::FOLDS => me.world - 1,
            false => 1,
        }
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        let relays = Relays::of(&self.0, me);
        let peer = relays.up(me, leg);
        let part = relays.part(peer);
        Leg { peer, chunk: part, theirs: part }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        let relays = Relays::of(&self.0, me);
        let part = relays.part(me.rank);
        let peer = relays.root.filter(|_| !S::FOLDS).unwrap_or_else(|| me.down(leg));
        Leg { peer, chunk: part, theirs: part }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        let relays = Relays::of(&self.0, me);
        if S::FOLDS && !relays.is_root(me.rank) { [relays.part(me.rank); 2] } else { [NOBODY; 2] }
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [Relays::of(&self.0, me).parts(); 2]
    }

    #[inline(always)]
    fn root(&self) -> Option<u32> {
        self.0.root()
    }
}

/// The second step: what each rank passes on goes to every other one that receives in one step.
#[derive(Clone, Copy, Debug)]
pub struct Second<S>(pub S);

impl<S: Schedule> Second<S> {
    /// The root, if it alone takes what is passed on.
    #[inline(always)]
    fn only(relays: Relays) -> Option<u32> {
        relays.root.filter(|_| S::FOLDS)
    }
}

// SAFETY: each part comes from the one rank that passes it on, to the root alone or to all others.
unsafe impl<S: Schedule> Schedule for Second<S> {
    const NAME: &'static str = S::NAME;
    const OWN: bool = false;
    const MUTUAL: bool = S::MUTUAL;

    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        let relays = Relays::of(&self.0, me);
        match relays.is_root(me.rank) {
            true => 0,
            false if Self::only(relays).is_some() => 1,
            false => relays.others(me.rank),
        }
    }

    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        let relays = Relays::of(&self.0, me);
        if relays.is_root(me.rank) == Self::only(relays).is_some() { relays.others(me.rank) } else { 0 }
    }

    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        let relays = Relays::of(&self.0, me);
        let part = relays.part(me.rank);
        let peer = Self::only(relays).unwrap_or_else(|| relays.up(me, leg));
        Leg { peer, chunk: part, theirs: part }
    }

    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        let relays = Relays::of(&self.0, me);
        let peer = relays.down(me, leg);
        let part = relays.part(peer);
        Leg { peer, chunk: part, theirs: part }
    }

    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        let _ = me;
        [NOBODY; 2]
    }

    #[inline(always)]
    fn chunks(&self, me: Member) -> [u32; 2] {
        [Relays::of(&self.0, me).parts(); 2]
    }

    #[inline(always)]
    fn root(&self) -> Option<u32> {
        self.0.root()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AllReduce, Broadcast, Reduce, check};
    use super::*;
    use std::collections::BTreeSet;

    /// That both steps fit each other, and bring every part to whoever takes it.
    fn whole<S: Schedule>(world: u32, of: impl Fn(u32) -> S) {
        check(world, |rank| First(of(rank))).unwrap();
        check(world, |rank| Second(of(rank))).unwrap();
        for rank in 0..world {
            let (me, schedule) = (Member { rank, world }, of(rank));
            let relays = Relays::of(&schedule, me);
            let mut parts: BTreeSet<u32> =
                (1..=Second(schedule).receives(me)).map(|leg| Second(schedule).from(me, leg).chunk).collect();
            if !relays.is_root(rank) {
                parts.insert(relays.part(rank));
            }
            if schedule.receives(me) > 0 {
                assert!(parts.into_iter().eq(0..relays.parts()), "{} of {world}, rank {rank}", S::NAME);
            }
        }
    }

    #[test]
    fn every_part_reaches_whoever_takes_it() {
        for world in 2..9 {
            whole(world, |_| AllReduce);
            for root in 0..world {
                whole(world, |_| Broadcast { root });
                whole(world, |_| Reduce { root });
            }
        }
    }
}
