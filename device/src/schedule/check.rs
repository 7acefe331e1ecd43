//! Whether the ranks' values of a schedule fit each other.

use super::{InPlace, Leg, Member, NOBODY, Schedule};
use std::collections::BTreeSet;
use std::format;
use std::string::String;

/// Follows every transfer of a launch in a world of `world` ranks, of which rank `r` has the schedule `of(r)`.
///
/// # Errors
/// The first thing that breaks the contract of [`Schedule`], with ranks, legs and chunks.
pub fn check<S: Schedule>(world: u32, of: impl Fn(u32) -> S) -> Result<(), String> {
    follow(world, &of)?;
    if S::APART {
        let in_place = |rank| InPlace(of(rank));
        follow(world, &in_place)
            .and_then(|()| apart(world, &in_place))
            .map_err(|what| format!("in place: {what}"))?;
    }
    Ok(())
}

/// What is sent and stored to, where input and output are one buffer.
fn apart<S: Schedule>(world: u32, of: &impl Fn(u32) -> InPlace<S>) -> Result<(), String> {
    for rank in 0..world {
        let (me, schedule) = (Member { rank, world }, of(rank));
        let sent: BTreeSet<u32> = (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg).chunk).collect();
        let own = if S::OWN { schedule.own(me)[0] } else { NOBODY };
        let received = (1..=schedule.receives(me)).map(|leg| schedule.from(me, leg).chunk);
        // What is produced once is kept by the thread that has sent it.
        let free = |chunk: u32| chunk == own && S::ONCE && !S::FOLDS;
        if let Some(chunk) = received.chain([own]).find(|chunk| sent.contains(chunk) && !free(*chunk)) {
            return Err(format!("rank {rank}: chunk {chunk} is sent and stored to, but `APART`"));
        }
    }
    Ok(())
}

fn follow<S: Schedule>(world: u32, of: &impl Fn(u32) -> S) -> Result<(), String> {
    let members = || (0..world).map(|rank| (Member { rank, world }, of(rank)));
    let mut sent = BTreeSet::new();
    for (me, schedule) in members() {
        let (rank, [inputs, _]) = (me.rank, schedule.chunks(me));
        for number in 1..=schedule.sends(me) {
            let leg = known::<S>(me, number, schedule.to(me, number), inputs)?;
            if !sent.insert((rank, leg.chunk, leg.peer, leg.theirs)) {
                return Err(format!("rank {rank}, leg {number}: {leg:?} is sent twice"));
            }
        }
    }
    for (me, schedule) in members() {
        let (rank, [inputs, outputs]) = (me.rank, schedule.chunks(me));
        let mut filled = BTreeSet::new();
        let [from, to] = if S::OWN { schedule.own(me) } else { [NOBODY; 2] };
        let none = from == NOBODY && to == NOBODY;
        if !none {
            if from >= inputs || to >= outputs {
                return Err(format!(
                    "rank {rank}: the self copy is of chunk {from} to chunk {to}, of {inputs} to {outputs}"
                ));
            }
            filled.insert(to);
        }
        if S::OWN && !S::OWN_MOVES && (none || from != to) {
            return Err(format!("rank {rank}: the self copy is of {from} to {to}, but not `OWN_MOVES`"));
        }
        let folds = S::FOLDS && schedule.receives(me) > 0;
        if folds && (none || schedule.receives(me) != world - 1) {
            return Err(format!("rank {rank}: it is `FOLDS`, but not every rank contributes"));
        }
        if S::ONCE {
            let odd = (1..=schedule.sends(me)).map(|number| schedule.to(me, number));
            if let Some(leg) = odd.into_iter().find(|leg| [leg.chunk, leg.theirs] != [from, to]) {
                return Err(format!("rank {rank}: {leg:?} is not of the self copy's chunks, but `ONCE`"));
            }
        }
        for number in 1..=schedule.receives(me) {
            let leg = known::<S>(me, number, schedule.from(me, number), outputs)?;
            if folds && (leg.peer != me.down(number) || leg.chunk != to) {
                return Err(format!(
                    "rank {rank}, leg {number}: {leg:?} is not from {number} ranks down to chunk {to}, but `FOLDS`"
                ));
            }
            if !folds && !filled.insert(leg.chunk) {
                return Err(format!("rank {rank}, leg {number}: chunk {} is received twice", leg.chunk));
            }
            if !sent.remove(&(leg.peer, leg.theirs, rank, leg.chunk)) {
                return Err(format!("rank {rank}, leg {number}: {leg:?} is received, but never sent"));
            }
        }
        if S::ALL_PAIRS {
            let wrong = (1..world).find(|step| {
                schedule.to(me, *step).peer != me.up(*step) || schedule.from(me, *step).peer != me.down(*step)
            });
            if wrong.is_some() || [schedule.sends(me), schedule.receives(me)] != [world - 1; 2] {
                return Err(format!(
                    "rank {rank}: it is `ALL_PAIRS`, but leg `k` is not between ranks `k` apart"
                ));
            }
        }
        let peers = |legs: u32, leg: fn(&S, Member, u32) -> Leg| -> BTreeSet<u32> {
            (1..=legs).map(|number| leg(&schedule, me, number).peer).collect()
        };
        let (sends, receives) = (schedule.sends(me), schedule.receives(me));
        if S::MUTUAL && (sends != receives || peers(sends, S::to) != peers(receives, S::from)) {
            return Err(format!("rank {rank}: it is `MUTUAL`, but sends to others than it receives from"));
        }
    }
    sent.first().map_or(Ok(()), |(rank, chunk, peer, theirs)| {
        Err(format!(
            "rank {rank}: chunk {chunk} is sent to chunk {theirs} of rank {peer}, which does not receive it"
        ))
    })
}

/// A leg that names a rank and a chunk that there are.
fn known<S: Schedule>(me: Member, number: u32, leg: Leg, chunks: u32) -> Result<Leg, String> {
    let Member { rank, world } = me;
    if number > S::MOST_LEGS {
        return Err(format!("rank {rank}: leg {number}, but there are {} at most", S::MOST_LEGS));
    }
    if leg.peer >= world || leg.peer == rank || leg.chunk >= chunks {
        return Err(format!("rank {rank}, leg {number}: {leg:?}, of {world} ranks and {chunks} chunks"));
    }
    Ok(leg)
}

#[cfg(test)]
mod tests {
    use super::super::{
        AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter, SendRecv,
    };
    use super::*;

    /// From one buffer to another and in place.
    fn both<S: Schedule>(world: u32, schedule: S) {
        check(world, |_| schedule).unwrap();
        check(world, |_| InPlace(schedule)).unwrap();
    }

    #[test]
    fn every_chunk_of_the_shipped_schedules_is_sent_and_received_once() {
        for world in 1..=64 {
            both(world, AllToAll);
            both(world, AllGather);
            both(world, ReduceScatter);
            both(world, AllReduce);
            for root in [0, world / 2, world - 1] {
                both(world, Broadcast { root });
                both(world, Scatter { root });
                both(world, Gather { root });
                both(world, Reduce { root });
            }
            // A ring, and a send alone.
            let me = |rank| Member { rank, world };
            if world > 1 {
                check(world, |rank| SendRecv { to: me(rank).up(1), from: me(rank).down(1) }).unwrap();
            }
            let last = world - 1;
            let only = |other: bool, peer| if other && world > 1 { peer } else { NOBODY };
            check(world, |rank| SendRecv { to: only(rank == 0, last), from: only(rank == last, 0) }).unwrap();
        }
    }

    /// An all-to-all with one thing wrong.
    #[derive(Clone, Copy)]
    struct Wrong(u32);

    // SAFETY: it is not; nothing is launched with it.
    unsafe impl Schedule for Wrong {
        const NAME: &'static str = "wrong";
        const OWN: bool = true;
        const MUTUAL: bool = true;
        const MOST_LEGS: u32 = 2;
        fn sends(&self, me: Member) -> u32 {
            if self.0 == 0 || self.0 == 6 { me.world - 2 } else { me.world - 1 }
        }
        fn receives(&self, me: Member) -> u32 {
            if self.0 == 0 || self.0 == 7 { me.world - 2 } else { me.world - 1 }
        }
        fn to(&self, me: Member, number: u32) -> Leg {
            let leg = AllToAll.to(me, number);
            match self.0 {
                1 => Leg { peer: me.up(1), ..leg },
                2 => Leg { chunk: me.world, ..leg },
                3 if me.rank == 0 => Leg { peer: 0, ..leg },
                4 => Leg { theirs: leg.peer, ..leg },
                _ => leg,
            }
        }
        fn from(&self, me: Member, number: u32) -> Leg {
            let leg = AllToAll.from(me, number);
            if self.0 == 5 { Leg { chunk: me.rank, ..leg } } else { leg }
        }
        fn own(&self, me: Member) -> [u32; 2] {
            match self.0 {
                8 => [me.world; 2],
                9 => [NOBODY; 2],
                10 => [me.rank, me.up(1)],
                _ => AllToAll.own(me),
            }
        }
        fn chunks(&self, me: Member) -> [u32; 2] {
            [me.world; 2]
        }
    }

    /// What says that it is apart, whether it is or not.
    #[derive(Clone, Copy)]
    struct Claimed<S>(S);

    // SAFETY: it may not be; nothing is launched with it.
    unsafe impl<S: Schedule> Schedule for Claimed<S> {
        const NAME: &'static str = S::NAME;
        const OWN: bool = S::OWN;
        const OWN_MOVES: bool = S::OWN_MOVES;
        const ONCE: bool = S::ONCE;
        const FOLDS: bool = S::FOLDS;
        const MUTUAL: bool = S::MUTUAL;
        const APART: bool = true;
        fn sends(&self, me: Member) -> u32 {
            self.0.sends(me)
        }
        fn receives(&self, me: Member) -> u32 {
            self.0.receives(me)
        }
        fn to(&self, me: Member, leg: u32) -> Leg {
            self.0.to(me, leg)
        }
        fn from(&self, me: Member, leg: u32) -> Leg {
            self.0.from(me, leg)
        }
        fn own(&self, me: Member) -> [u32; 2] {
            self.0.own(me)
        }
        fn chunks(&self, me: Member) -> [u32; 2] {
            self.0.chunks(me)
        }
    }

    /// What says that leg `k` is between ranks `k` apart, whether it is or not.
    #[derive(Clone, Copy)]
    struct Paired(u32);

    // SAFETY: it may not be; nothing is launched with it.
    unsafe impl Schedule for Paired {
        const NAME: &'static str = "paired";
        const OWN: bool = true;
        const MUTUAL: bool = true;
        const ALL_PAIRS: bool = true;
        fn sends(&self, me: Member) -> u32 {
            if self.0 == 2 { 0 } else { AllToAll.sends(me) }
        }
        fn receives(&self, me: Member) -> u32 {
            self.sends(me)
        }
        fn to(&self, me: Member, leg: u32) -> Leg {
            AllToAll.to(me, if self.0 == 1 { me.world - leg } else { leg })
        }
        fn from(&self, me: Member, leg: u32) -> Leg {
            AllToAll.from(me, if self.0 == 1 { me.world - leg } else { leg })
        }
        fn own(&self, me: Member) -> [u32; 2] {
            AllToAll.own(me)
        }
        fn chunks(&self, me: Member) -> [u32; 2] {
            AllToAll.chunks(me)
        }
    }

    #[test]
    fn pairs_that_are_not_so_far_apart_are_told() {
        assert_eq!(check(4, |_| Paired(0)), Ok(()));
        for wrong in 1..3 {
            assert!(check(4, |_| Paired(wrong)).unwrap_err().contains("ALL_PAIRS"), "{wrong}");
        }
    }

    #[test]
    fn what_is_sent_and_stored_to_is_told() {
        assert_eq!(check(1, |_| Claimed(AllToAll)), Ok(()));
        assert!(check(2, |_| Claimed(AllToAll)).unwrap_err().contains("chunk 1 is sent and stored to"));
        assert!(check(2, |_| Claimed(AllReduce)).unwrap_err().contains("chunk 0 is sent and stored to"));
    }

    #[test]
    fn in_place_the_self_copy_stays_where_it_is() {
        let me = Member { rank: 2, world: 4 };
        let (gather, scatter) = (InPlace(AllGather), InPlace(ReduceScatter));
        assert_eq!((gather.own(me), gather.chunks(me)), ([2; 2], [4; 2]));
        assert_eq!(gather.to(me, 1), Leg { peer: 3, chunk: 2, theirs: 2 });
        assert_eq!(gather.from(me, 1), Leg { peer: 1, chunk: 1, theirs: 1 });
        assert_eq!((scatter.own(me), scatter.chunks(me)), ([2; 2], [4; 2]));
        assert_eq!(scatter.to(me, 1), Leg { peer: 3, chunk: 3, theirs: 3 });
        assert_eq!(scatter.from(me, 1), Leg { peer: 1, chunk: 2, theirs: 2 });
        let scatter = InPlace(Scatter { root: 2 });
        assert_eq!((scatter.own(me), scatter.chunks(me)), ([2; 2], [4; 2]));
        let me = Member { rank: 0, ..me };
        assert_eq!((scatter.own(me), scatter.chunks(me)), ([NOBODY; 2], [1; 2]));
        assert_eq!(scatter.from(me, 1), Leg { peer: 2, chunk: 0, theirs: 0 });
    }

    /// A reduce-scatter with one thing wrong.
    #[derive(Clone, Copy)]
    struct Misfolded(u32);

    // SAFETY: it is not; nothing is launched with it.
    unsafe impl Schedule for Misfolded {
        const NAME: &'static str = "misfolded";
        const OWN: bool = true;
        const OWN_MOVES: bool = true;
        const FOLDS: bool = true;
        const MUTUAL: bool = false;
        fn sends(&self, me: Member) -> u32 {
            if self.0 == 0 { 1 } else { me.world - 1 }
        }
        fn receives(&self, me: Member) -> u32 {
            self.sends(me)
        }
        fn to(&self, me: Member, leg: u32) -> Leg {
            ReduceScatter.to(me, if self.0 == 1 { me.world - leg } else { leg })
        }
        fn from(&self, me: Member, leg: u32) -> Leg {
            ReduceScatter.from(me, if self.0 == 1 { me.world - leg } else { leg })
        }
        fn own(&self, me: Member) -> [u32; 2] {
            if self.0 == 2 { [NOBODY; 2] } else { [me.rank, self.0 / 3] }
        }
        fn chunks(&self, me: Member) -> [u32; 2] {
            [me.world, 2]
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for wrong in 0..=3 {
            assert!(check(4, |_| Misfolded(wrong)).unwrap_err().contains("FOLDS"), "{wrong}");
        }
        for wrong in 0..=10 {
            assert!(check(3, |_| Wrong(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(check(3, |_| Wrong(11)), Ok(()));
        assert!(check(4, |_| Wrong(11)).unwrap_err().contains("2 at most"));
        assert!(check(3, |rank| Broadcast { root: rank.min(1) }).is_err());
        let apart = |rank| SendRecv { to: if rank == 0 { 1 } else { NOBODY }, from: NOBODY };
        assert!(check(2, apart).unwrap_err().contains("does not receive it"));
        let apart = |rank| SendRecv { to: NOBODY, from: if rank == 0 { 1 } else { NOBODY } };
        assert!(check(2, apart).unwrap_err().contains("never sent"));
    }
}
