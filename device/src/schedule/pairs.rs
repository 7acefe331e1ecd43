//! Schedules by which every rank sends to every other one ([`Schedule::ALL_PAIRS`]), by domains of ranks.

use super::{Across, Domain, Leg, Legs, Member, NOBODY, Of, Schedule};

/// Such a schedule, of domains of so many ranks.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<S> {
    pub schedule: S,
    /// Among the ranks of a domain. Of its legs the peers count, no chunks.
    pub near: Of<S, Domain>,
    /// Among those of the same place. In the same way.
    pub far: Across,
}

impl<S: Schedule> Pairs<S> {
    #[inline(always)]
    pub(crate) fn of(schedule: S, each: u32) -> Self {
        Pairs { schedule, near: Of(schedule, Domain(each)), far: Across(each) }
    }

    /// What this rank has in one step for the rank that has the place of `peer`, or has of it: in this domain, or in number `other` of the others. Those are numbered
    /// as legs across: up where what is folded is sent, down from where a chunk comes.
    #[inline(always)]
    pub(crate) fn leg(&self, me: Member, peer: u32, other: Option<u32>) -> Leg {
        let member = self.far.member(me);
        let domain = match other {
            None => member.rank,
            Some(number) if const { S::FOLDS } => member.up(number + 1),
            Some(number) => member.down(number + 1),
        };
        let rank = self.far.rank(Member { rank: peer, ..me }, domain);
        let [from, to] = self.schedule.own(me);
        match (rank == me.rank, const { S::FOLDS }) {
            (true, true) => Leg { peer: rank, chunk: from, theirs: to },
            (true, false) => Leg { peer: rank, chunk: to, theirs: from },
            (false, true) => self.schedule.to(me, me.steps_to(rank)),
            (false, false) => self.schedule.from(me, Member { rank, ..me }.steps_to(me.rank)),
        }
    }
}

/// To the others of this rank's domain, and behind them to the ranks of its place in the other domains, who all get this rank's own chunk.
#[derive(Clone, Copy)]
pub(crate) struct Both<S>(pub Pairs<S>);

impl<S: Schedule> Legs for Both<S> {
    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        self.0.near.sends(me) + self.0.far.sends(me)
    }
    #[inline(always)]
    fn receives(&self, _me: Member) -> u32 {
        0
    }
    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        let (Pairs { near, far, .. }, [chunk, _]) = (&self.0, self.own(me));
        let here = near.sends(me);
        let leg = if leg < here + 1 { near.to(me, leg) } else { far.to(me, leg - here) };
        Leg { chunk, theirs: NOBODY, ..leg }
    }
    #[inline(always)]
    fn from(&self, me: Member, _leg: u32) -> Leg {
        Leg { peer: me.rank, chunk: NOBODY, theirs: NOBODY }
    }
    #[inline(always)]
    fn own(&self, me: Member) -> [u32; 2] {
        self.0.schedule.own(me)
    }
    #[inline(always)]
    fn root(&self) -> Option<u32> {
        None
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

#[cfg(test)]
mod tests {
    use super::super::{AllGather, InPlace, ReduceScatter};
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// That legs are those of one step, to or from every rank of the place of each peer once.
    fn legs<S: Schedule>(schedule: S) {
        for (domains, each) in [(1, 2), (2, 2), (4, 2), (2, 4), (3, 4)] {
            let world = domains * each;
            for me in (0..world).map(|rank| Member { rank, world }) {
                let pairs = Pairs::of(schedule, each);
                let mut seen = BTreeSet::new();
                for place in 0..each {
                    let peer = me.rank / each * each + place;
                    for other in (1..domains).map(Some).map(|n| n.map(|n| n - 1)).chain([None]) {
                        let leg = pairs.leg(me, peer, other);
                        let step = |k: u32| if S::FOLDS { schedule.to(me, k) } else { schedule.from(me, k) };
                        let known = (1..world).map(step).any(|known| known == leg);
                        assert!(known || leg.peer == me.rank, "{leg:?}");
                        assert_eq!(leg.peer % each, place);
                        let across = other.map(|n| match S::FOLDS {
                            true => Legs::to(&pairs.far, me, n + 1),
                            false => Legs::from(&pairs.far, me, n + 1),
                        });
                        let domain = across.map_or(me.rank, |leg| leg.peer) / each;
                        assert_eq!(leg.peer / each, domain);
                        seen.insert((leg.peer, leg.chunk));
                    }
                }
                assert_eq!(seen.len(), world as usize);
                let own = pairs.leg(me, me.rank, None).chunk;
                assert_eq!(own, schedule.own(me)[usize::from(!S::FOLDS)]);
            }
        }
    }

    #[test]
    fn places_in_domains_are_the_ranks_of_one_step() {
        legs(AllGather);
        legs(ReduceScatter);
        legs(InPlace(AllGather));
        legs(InPlace(ReduceScatter));
    }

    #[test]
    fn a_chunk_goes_once_to_each_of_the_domain_and_of_the_place() {
        for (domains, each) in [(2, 2), (4, 2), (2, 4), (3, 8)] {
            let world = domains * each;
            for me in (0..world).map(|rank| Member { rank, world }) {
                let both = Both(Pairs::of(AllGather, each));
                let to: Vec<u32> = (1..=both.sends(me)).map(|leg| both.to(me, leg).peer).collect();
                let wanted: BTreeSet<u32> = (0..world)
                    .filter(|rank| *rank != me.rank)
                    .filter(|rank| rank / each == me.rank / each || rank % each == me.rank % each)
                    .collect();
                assert_eq!(to.len(), wanted.len());
                assert!(to.into_iter().collect::<BTreeSet<_>>() == wanted, "rank {} of {world}", me.rank);
            }
        }
    }
}
