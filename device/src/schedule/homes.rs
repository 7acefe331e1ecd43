//! The two steps of a schedule that has a [root](Schedule::root), by domains of ranks. *Home* is the root's domain.
//!
//! A chunk has a part for each place in a domain. To the root, part `p` goes by way of the rank of place `p` in each domain, then of that at home; from the root it goes the
//! same way back. Only ranks of one place are between domains, and each byte is there once for each domain that is not home.

use super::among::{Across, Among, Domain, Legs};
use super::{First, Leg, Member, NOBODY, Relays, Schedule, Second};
use core::marker::PhantomData;

/// The ranks of this rank's domain, of so many ranks each, by a schedule with a root.
#[derive(Clone, Copy)]
pub(crate) struct Homes(pub u32);

impl Among for Homes {
    const ACROSS: bool = true;
    const ROOTED: bool = true;
    type First<S: Schedule> = AtHome<First<S>>;
    type Second<S: Schedule> = AtHome<Second<S>>;

    #[inline(always)]
    fn steps<S: Schedule>(self, schedule: S) -> (AtHome<First<S>>, AtHome<Second<S>>) {
        let root = schedule.root().unwrap_or(NOBODY);
        (AtHome { each: self.0, root, step: PhantomData }, AtHome { each: self.0, root, step: PhantomData })
    }
    #[inline(always)]
    fn relays<S: Schedule>(self, _schedule: &S, _me: Member) -> Relays {
        Relays::all(self.0)
    }
    #[inline(always)]
    fn size(self, _world: u32) -> u32 {
        self.0
    }
    #[inline(always)]
    fn member(self, me: Member) -> Member {
        Domain(self.0).member(me)
    }
    #[inline(always)]
    fn rank(self, me: Member, number: u32) -> u32 {
        Domain(self.0).rank(me, number)
    }
}

/// Whether a rank is in the root's domain, of so many ranks.
#[inline(always)]
pub(crate) fn is_home(me: Member, root: Option<u32>, each: u32) -> bool {
    root.is_some_and(|root| (me.rank ^ root) < each)
}

/// Step `T` by domains: the [`First`] or the [`Second`].
#[derive(Clone, Copy)]
pub(crate) struct AtHome<T> {
    each: u32,
    root: u32,
    step: PhantomData<T>,
}

impl<T: Copy> AtHome<T> {
    #[inline(always)]
    fn is_root(&self, me: Member) -> bool {
        me.rank == self.root
    }

    #[inline(always)]
    fn is_home(&self, me: Member) -> bool {
        is_home(me, Some(self.root), self.each)
    }

    /// Ranks of a domain but one.
    #[inline(always)]
    fn others(&self) -> u32 {
        self.each - 1
    }

    /// The place of a rank in its domain, and so the part that it passes on.
    #[inline(always)]
    fn place(&self, rank: u32) -> u32 {
        rank & (self.each - 1)
    }

    /// The rank of the domain so many places up, by part `part` if not by its own.
    #[inline(always)]
    fn near(&self, me: Member, place: u32, part: Option<u32>) -> Leg {
        let peer = Domain(self.each).rank(me, place);
        let part = part.unwrap_or(place);
        Leg { peer, chunk: part, theirs: part }
    }

    /// Up from this rank.
    #[inline(always)]
    fn up(&self, me: Member, leg: u32) -> u32 {
        Domain(self.each).member(me).up(leg)
    }

    /// Down from this rank.
    #[inline(always)]
    fn down(&self, me: Member, leg: u32) -> u32 {
        Domain(self.each).member(me).down(leg)
    }

    /// Towards the root: at home the root itself, elsewhere the rank of the same place at home. About this rank's part.
    #[inline(always)]
    fn homeward(&self, me: Member) -> Leg {
        let part = self.place(me.rank);
        let there = (self.root & !(self.each - 1)) + part;
        Leg { peer: if self.is_home(me) { self.root } else { there }, chunk: part, theirs: part }
    }

    #[inline(always)]
    fn own_by_root(&self, me: Member) -> [u32; 2] {
        if self.is_root(me) { [0; 2] } else { [NOBODY; 2] }
    }
}

/// What both steps have in common.
macro_rules! at_home {
    () => {
        #[inline(always)]
        fn own(&self, me: Member) -> [u32; 2] {
            self.own_by_root(me)
        }
        #[inline(always)]
        fn root(&self) -> Option<u32> {
            Some(self.root)
        }
        #[inline(always)]
        fn member(&self, me: Member) -> Member {
            Domain(self.each).member(me)
        }
        #[inline(always)]
        fn rank(&self, me: Member, number: u32) -> u32 {
            Domain(self.each).rank(me, number)
        }
    };
}

/// To the root, every rank sends its domain's others what it contributes to their parts. From the root, the others of its domain get their parts. Every other rank but the root
/// receives from one rank there.
impl<S: Schedule> Legs for AtHome<First<S>> {
    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        if S::FOLDS || self.is_root(me) { self.others() } else { 0 }
    }
    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        match self.is_root(me) {
            _ if S::FOLDS => self.others(),
            true => 0,
            false => 1,
        }
    }
    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        self.near(me, self.up(me, leg), None)
    }
    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        match S::FOLDS {
            true => self.near(me, self.down(me, leg), Some(self.place(me.rank))),
            false => self.homeward(me),
        }
    }
    at_home!();
}

/// To the root, what was folded goes home, and from home to the root. From the root, each passes its part on to its domain's others but the root, and those at home pass it to the
/// other domains: the root does so with the part of its own place.
impl<S: Schedule> Legs for AtHome<Second<S>> {
    #[inline(always)]
    fn sends(&self, me: Member) -> u32 {
        match (self.is_root(me), self.is_home(me)) {
            (root, _) if S::FOLDS => u32::from(!root),
            (root, true) => self.others() - u32::from(!root) + Across(self.each).sends(me),
            (_, false) => self.others(),
        }
    }
    #[inline(always)]
    fn receives(&self, me: Member) -> u32 {
        if self.is_root(me) == S::FOLDS { self.others() } else { 0 }
    }
    #[inline(always)]
    fn to(&self, me: Member, leg: u32) -> Leg {
        if S::FOLDS {
            return self.homeward(me);
        }
        let skips = self.is_home(me) && !self.is_root(me);
        let here = self.others() - u32::from(skips);
        if leg > here {
            return Across(self.each).to(me, leg - here);
        }
        let root = Domain(self.each).member(me).steps_to(self.place(self.root));
        let leg = leg + u32::from(skips && leg >= root);
        self.near(me, self.up(me, leg), Some(self.place(me.rank)))
    }
    #[inline(always)]
    fn from(&self, me: Member, leg: u32) -> Leg {
        self.near(me, self.down(me, leg), None)
    }
    at_home!();
}

#[cfg(test)]
mod tests {
    use super::super::{Broadcast, Reduce};
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    const WORLDS: [(u32, u32); 6] = [(2, 2), (4, 2), (2, 4), (3, 2), (3, 4), (2, 8)];

    /// From, to, and the part, of all ranks that send.
    fn sent<L: Legs>(world: u32, step: &L) -> Vec<(u32, u32, u32)> {
        let legs = |me: Member| (1..=step.sends(me)).map(move |leg| (me.rank, step.to(me, leg)));
        let all = (0..world).flat_map(|rank| legs(Member { rank, world }));
        all.map(|(rank, leg)| (rank, leg.peer, leg.chunk)).collect()
    }

    /// The same as those have it that receive.
    fn received<L: Legs>(world: u32, step: &L) -> BTreeSet<(u32, u32, u32)> {
        let legs = |me: Member| (1..=step.receives(me)).map(move |leg| (me.rank, step.from(me, leg)));
        let all = (0..world).flat_map(|rank| legs(Member { rank, world }));
        all.map(|(rank, leg)| (leg.peer, rank, leg.chunk)).collect()
    }

    fn every_root(run: impl Fn(u32, u32, u32)) {
        for (domains, each) in WORLDS {
            (0..domains * each).for_each(|root| run(domains * each, each, root));
        }
    }

    #[test]
    fn each_part_reaches_each_rank_once_and_crosses_once_to_each_domain() {
        every_root(|world, each, root| {
            let (first, second) = Homes(each).steps(Broadcast { root });
            let (out, on) = (sent(world, &first), sent(world, &second));
            let mut reached = BTreeSet::new();
            for (from, to, part) in out.iter().chain(&on) {
                assert!(from != to && reached.insert((*to, *part)), "{part} comes to {to} twice");
                assert!(from / each == to / each || from % each == to % each && *part == from % each);
            }
            let all = (0..world).filter(|rank| *rank != root);
            assert!(reached.into_iter().eq(all.flat_map(|rank| (0..each).map(move |part| (rank, part)))));
            // Who passes on what comes across takes it as what comes from the root.
            let [across, within]: [BTreeSet<_>; 2] = [true, false]
                .map(|far| on.iter().copied().filter(|t| (t.0 / each != t.1 / each) == far).collect());
            let across: BTreeSet<_> = across.into_iter().chain(out).collect();
            assert_eq!(across, received(world, &first));
            assert_eq!(within, received(world, &second));
        });
    }

    #[test]
    fn each_contribution_comes_to_the_root_once() {
        every_root(|world, each, root| {
            let (first, second) = Homes(each).steps(Reduce { root });
            let out = sent(world, &first);
            assert_eq!(out.iter().copied().collect::<BTreeSet<_>>(), received(world, &first));
            assert_eq!(out.len() as u32, world * (each - 1));
            let mut contributed: Vec<Vec<BTreeSet<u32>>> =
                (0..world).map(|rank| (0..each).map(|_| BTreeSet::from([rank])).collect()).collect();
            let mut add = |transfers: &[(u32, u32, u32)]| {
                let before = contributed.clone();
                for (from, to, part) in transfers {
                    let of = &before[*from as usize][*part as usize];
                    assert!(contributed[*to as usize][*part as usize].is_disjoint(of));
                    contributed[*to as usize][*part as usize].extend(of);
                }
                contributed[root as usize].clone()
            };
            let on = sent(world, &second);
            let (across, home): (Vec<_>, Vec<_>) = on.into_iter().partition(|t| t.0 / each != t.1 / each);
            assert_eq!(home.iter().copied().collect::<BTreeSet<_>>(), received(world, &second));
            for (from, to, part) in out.iter().chain(&home) {
                assert!(from / each == to / each && (part == &(to % each) || to == &root));
            }
            let legs =
                |me: Member| (1..=Across(each).receives(me)).map(move |leg| Across(each).from(me, leg));
            for (from, to, part) in &across {
                assert!(part == &(from % each) && to % each == *part && to / each == root / each);
                assert!(legs(Member { rank: *to, world }).any(|leg| leg.peer == *from));
            }
            add(&out);
            add(&across);
            // The root's own contributions to others' parts come back with the rest.
            let mut of_root = vec_of_parts(each, root, &home, &contributed);
            assert!(of_root.all(|ranks| ranks.into_iter().eq(0..world)));
        });
    }

    /// What comes to the root of each part.
    fn vec_of_parts<'a>(
        each: u32,
        root: u32,
        home: &'a [(u32, u32, u32)],
        contributed: &'a [Vec<BTreeSet<u32>>],
    ) -> impl Iterator<Item = BTreeSet<u32>> + 'a {
        (0..each).map(move |part| {
            let from = home.iter().find(|t| t.2 == part).map_or(root, |t| t.0);
            contributed[from as usize][part as usize].clone()
        })
    }
}
