//! Steps among some of a world's ranks: those of this rank's domain, or those of the same place in each domain.
//!
//! Ranks `d n .. (d + 1) n` are domain `d` of `n` ranks; `n` is a power of two, and the world is a whole number of domains ([`Ops::domain`](crate::ops::Ops::domain)).
//! What a domain's ranks contribute is then a subtree of [`Order::Tree`](crate::fold::Order::Tree) over all ranks, and the folds of the domains, folded by the same
//! tree over the domains, are the whole of it.

use super::{First, Leg, Member, Relays, Schedule, Second};

/// What the ends of channels ask: a schedule, or one among some of the ranks. Members have numbers from 0 on, in the order of their ranks.
pub(crate) trait Legs: Copy {
    /// [`Schedule::sends`].
    fn sends(&self, me: Member) -> u32;
    /// [`Schedule::receives`].
    fn receives(&self, me: Member) -> u32;
    /// [`Schedule::to`].
    fn to(&self, me: Member, leg: u32) -> Leg;
    /// [`Schedule::from`].
    fn from(&self, me: Member, leg: u32) -> Leg;
    /// [`Schedule::own`].
    fn own(&self, me: Member) -> [u32; 2];
    /// [`Schedule::root`].
    fn root(&self) -> Option<u32>;
    /// The number of rank `me` among the members, and how many they are.
    fn member(&self, me: Member) -> Member;
    /// The rank of member `number`.
    fn rank(&self, me: Member, number: u32) -> u32;
}

impl<S: Schedule> Legs for S {
    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        Schedule::sends(self, me)
    }
    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        Schedule::receives(self, me)
    }
    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        Schedule::to(self, me, leg)
    }
    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        Schedule::from(self, me, leg)
    }
    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        Schedule::own(self, me)
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        Schedule::root(self)
    }
    #[inline(always)]
    fn member(&self, me: Member) -> Member {
        me
    }
    #[inline(always)]
    fn rank(&self, _me: Member, number: u32) -> u32 {
        number
    }
}

/// Among whom the first and the last step are.
pub(crate) trait Among: Copy {
    /// Whether there is a step between them, across domains.
    const ACROSS: bool;
    /// Whether that is to or from the domain of a root.
    const ROOTED: bool = false;
    /// The first step.
    type First<S: Schedule>: Legs;
    /// The last one.
    type Second<S: Schedule>: Legs;
    /// Both.
    fn steps<S: Schedule>(self, schedule: S) -> (Self::First<S>, Self::Second<S>);
    /// Those that pass a part on, by their numbers among these ranks.
    #[inline(always)]
    fn relays<S: Schedule>(self, schedule: &S, me: Member) -> Relays {
        Relays::of(schedule, self.member(me))
    }
    /// Ranks of a domain, of a world of so many.
    fn size(self, world: u32) -> u32;
    /// [`Legs::member`].
    fn member(self, me: Member) -> Member;
    /// [`Legs::rank`].
    fn rank(self, me: Member, number: u32) -> u32;
}

/// The steps of a schedule, among the ranks.
macro_rules! two_steps {
    () => {
        type First<S: Schedule> = Of<First<S>, Self>;
        type Second<S: Schedule> = Of<Second<S>, Self>;
        #[inline(always)]
        fn steps<S: Schedule>(self, schedule: S) -> (Self::First<S>, Self::Second<S>) {
            (Of(First(schedule), self), Of(Second(schedule), self))
        }
    };
}

/// Every rank.
#[derive(Clone, Copy)]
pub(crate) struct Everyone;

impl Among for Everyone {
    const ACROSS: bool = false;
    two_steps!();
    #[inline(always)]
    fn size(self, world: u32) -> u32 {
        world
    }
    #[inline(always)]
    fn member(self, me: Member) -> Member {
        me
    }
    #[inline(always)]
    fn rank(self, _me: Member, number: u32) -> u32 {
        number
    }
}

/// The ranks of this rank's domain, of so many ranks each.
#[derive(Clone, Copy)]
pub(crate) struct Domain(pub u32);

impl Among for Domain {
    const ACROSS: bool = true;
    two_steps!();
    #[inline(always)]
    fn size(self, _world: u32) -> u32 {
        self.0
    }
    #[inline(always)]
    fn member(self, me: Member) -> Member {
        Member { rank: me.rank & (self.0 - 1), world: self.0 }
    }
    #[inline(always)]
    fn rank(self, me: Member, number: u32) -> u32 {
        (me.rank & !(self.0 - 1)) + number
    }
}

/// Schedule `S` among the ranks that `A` names: legs, parts and roots are those of a world of so many ranks, peers are ranks of the whole world.
#[derive(Clone, Copy)]
pub(crate) struct Of<S, A>(pub S, pub A);

impl<S: Schedule, A: Among> Of<S, A> {
    #[inline(always)]
    fn leg(&self, me: Member, leg: Leg) -> Leg {
        Leg { peer: self.1.rank(me, leg.peer), ..leg }
    }
}

impl<S: Schedule, A: Among> Legs for Of<S, A> {
    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        Schedule::sends(&self.0, self.1.member(me))
    }
    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        Schedule::receives(&self.0, self.1.member(me))
    }
    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        self.leg(me, Schedule::to(&self.0, self.1.member(me), leg))
    }
    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        self.leg(me, Schedule::from(&self.0, self.1.member(me), leg))
    }
    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        Schedule::own(&self.0, self.1.member(me))
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        Schedule::root(&self.0)
    }
    #[inline(always)]
    fn member(&self, me: Member) -> Member {
        self.1.member(me)
    }
    #[inline(always)]
    fn rank(&self, me: Member, number: u32) -> u32 {
        self.1.rank(me, number)
    }
}

/// The step between: ranks of the same place in their domains, of so many ranks each, exchange what each domain's ranks contribute to the part of that place.
/// Members are domains.
#[derive(Clone, Copy)]
pub(crate) struct Across(pub u32);

impl Across {
    #[inline(always)]
    fn leg(self, me: Member, domain: u32) -> Leg {
        let part = me.rank & (self.0 - 1);
        Leg { peer: Legs::rank(&self, me, domain), chunk: part, theirs: part }
    }
}

impl Legs for Across {
    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        self.member(me).world - 1
    }
    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        self.member(me).world - 1
    }
    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        self.leg(me, self.member(me).up(leg))
    }
    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        self.leg(me, self.member(me).down(leg))
    }
    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        [me.rank & (self.0 - 1); 2]
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        None
    }
    #[inline(always)]
    fn member(&self, me: Member) -> Member {
        // A power of two.
        let shift = self.0.trailing_zeros();
        Member { rank: me.rank >> shift, world: me.world >> shift }
    }
    #[inline(always)]
    fn rank(&self, me: Member, number: u32) -> u32 {
        number * self.0 + (me.rank & (self.0 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AllReduce, check};
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec::Vec;

    /// Every transfer of a step, as the sender has it and as the receiver does: from, to, and the part.
    fn transfers<L: Legs>(world: u32, step: L) -> BTreeSet<(u32, u32, u32)> {
        let members = || (0..world).map(|rank| Member { rank, world });
        let sent = members().flat_map(|me| {
            (1..=step.sends(me)).map(move |leg| (me.rank, step.to(me, leg).peer, step.to(me, leg).theirs))
        });
        let received = members().flat_map(|me| {
            (1..=step.receives(me))
                .map(move |leg| (step.from(me, leg).peer, me.rank, step.from(me, leg).chunk))
        });
        let (sent, received): (Vec<_>, Vec<_>) = (sent.collect(), received.collect());
        let all: BTreeSet<_> = sent.iter().copied().collect();
        assert_eq!(all.len(), sent.len(), "a transfer is there once");
        assert_eq!(all, received.iter().copied().collect(), "what is sent is received");
        assert_eq!(sent.len(), received.len());
        all
    }

    #[test]
    fn every_contribution_reaches_every_rank_once_in_three_steps() {
        for (domains, each) in [(1, 2), (2, 1), (2, 2), (2, 4), (4, 2), (3, 4), (5, 8), (8, 1)] {
            let world = domains * each;
            check(each, |_| First(AllReduce)).unwrap();
            check(each, |_| Second(AllReduce)).unwrap();
            let [first, second] = [
                transfers(world, Of(First(AllReduce), Domain(each))),
                transfers(world, Of(Second(AllReduce), Domain(each))),
            ];
            let across = transfers(world, Across(each));
            // Who has what of which part: contributions of ranks, folded on the way.
            let own = |rank: u32| (0..each).map(move |part| ((rank, part), BTreeSet::from([rank])));
            let contributed: BTreeMap<(u32, u32), BTreeSet<u32>> = (0..world).flat_map(own).collect();
            let part = |rank: u32| rank % each;
            let pass = |have: &BTreeMap<(u32, u32), BTreeSet<u32>>, step: &BTreeSet<(u32, u32, u32)>| {
                let mut then = have.clone();
                for (from, to, part) in step {
                    let what = have[&(*from, *part)].clone();
                    let there = then.get_mut(&(*to, *part)).unwrap();
                    assert!(there.is_disjoint(&what), "rank {from} sends {to} what it has");
                    there.extend(what);
                }
                then
            };
            let folded = pass(&contributed, &first);
            let mut whole = pass(&folded, &across);
            for rank in 0..world {
                let domain: BTreeSet<u32> = (rank / each * each..(rank / each + 1) * each).collect();
                assert_eq!(folded[&(rank, part(rank))], domain);
                assert_eq!(whole[&(rank, part(rank))], (0..world).collect());
                // What a rank does not pass on, it takes anew.
                for other in (0..each).filter(|other| *other != part(rank)) {
                    whole.insert((rank, other), BTreeSet::new());
                }
            }
            let taken = pass(&whole, &second);
            assert!(taken.values().all(|what| what.len() == world as usize), "{domains} domains of {each}");
            // Nothing but the step between leaves a domain, and it goes to the same place.
            assert!(first.iter().chain(&second).all(|(from, to, _)| from / each == to / each));
            assert!(across.iter().all(|(from, to, _)| from / each != to / each && from % each == to % each));
        }
    }

    #[test]
    fn members_are_numbered_in_the_order_of_their_ranks() {
        for (domains, each) in [(1, 4), (2, 2), (3, 8), (4, 1)] {
            let world = domains * each;
            for me in (0..world).map(|rank| Member { rank, world }) {
                let [domain, across] =
                    [Of(First(AllReduce), Domain(each)).member(me), Across(each).member(me)];
                assert_eq!((domain.world, across.world), (each, domains));
                let near: Vec<u32> = (0..each).map(|k| Domain(each).rank(me, k)).collect();
                assert!(near.is_sorted() && near[domain.rank as usize] == me.rank);
                let far: Vec<u32> = (0..domains).map(|k| Across(each).rank(me, k)).collect();
                assert!(far.is_sorted() && far[across.rank as usize] == me.rank);
            }
        }
    }
}
