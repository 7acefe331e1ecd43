//! Every rank's chunk to every rank.

use super::super::once;
use super::super::relay::Forward;
use super::super::turns::{self, Ends, Pass, Rounds, Turn, Turns, Work};
use super::Chunks;
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::schedule::{Across, Both, Domain, Legs, Of, Schedule};
use crate::tile::{self, Team};
use crate::wait::Flow;

impl<O: Ops, S: Schedule> Chunks<'_, O, S> {
    /// Produces this rank's chunk, sends it to the peers of the domain and across, and takes it.
    ///
    /// # Safety
    /// This block alone works the sending ends of the first channel in the domain, and of that across; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn send<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let both = Both(self.pairs);
        let turns = self.turns(both.sends(self.site.me));
        let ends = self.ends(&both, self.channel, turns.payload());
        let kept = self.site.kept(&self.pairs.schedule);
        // SAFETY: the caller's contract.
        unsafe { once::send_by::<O, _, H>(ends, turns, kept, self.share, args) }
    }

    /// Takes what crosses, and passes it on to the peers of the domain.
    ///
    /// # Safety
    /// This block alone works the receiving ends across, and the sending ends of the second channel in the domain; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn forward<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let ((far, crossed), (near, rounds)) = (self.far(1), self.near(true));
        let work = Forwards::<O, S, H> { chunks: self, far: &far, near: &near, rounds, args };
        // SAFETY: the caller's contract.
        unsafe { turns::relay([crossed, rounds.turns], (&far, &near), &work) }
    }

    /// Takes the chunks of the peers of the domain, or what they pass on of the `others`.
    ///
    /// # Safety
    /// This block alone works the receiving ends of that channel in the domain; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn take<H: Unpack>(&self, others: bool, args: &H::Args<'_>) -> Flow {
        let (near, rounds) = self.near(others);
        let turns: Turns = rounds.turns.one_by_one();
        let work = Takes::<O, S, H> { chunks: self, near: &near, rounds, others, args };
        // SAFETY: the caller's contract.
        unsafe { turns::receive(turns, &near, &work) }
    }
}

struct Forwards<'k, 'a, O, S, H: Unpack> {
    chunks: &'k Chunks<'k, O, S>,
    far: &'k Ends<'k, O, Across>,
    near: &'k Ends<'k, O, Of<S, Domain>>,
    rounds: Rounds,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, H: Unpack> Pass for Forwards<'_, '_, O, S, H> {
    const BY_LEG: [bool; 2] = [true, false];
    #[inline(always)]
    fn turn(&self, from: Turn, to: Turn, team: Team) {
        let Forwards { chunks, far, near, rounds, args } = self;
        let (number, (first, count, passed)) = rounds.packs(to);
        let (me, first) = (chunks.site.me, chunks.share.first + first);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { near.everybody(passed) };
        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
        let input = unsafe { far.from(far.schedule.from(me, from.leg).peer) };
        let payload = from.payload();
        let forward = Forward::<O, _, H> { peers, first, args };
        let place = chunks.place(me.rank, Some(number));
        tile::consume::<tile::UpToTwo<H>, H::Wire, _>(team, &place, first, count, &forward, |s| {
            input.at(payload + 16 * u64::from(s))
        });
    }
}

struct Takes<'k, 'a, O, S, H: Unpack> {
    chunks: &'k Chunks<'k, O, S>,
    near: &'k Ends<'k, O, Of<S, Domain>>,
    rounds: Rounds,
    others: bool,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Takes<'_, '_, O, S, H> {
    const COLS: usize = 0;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Takes { chunks, near, rounds, others, args } = self;
        let (number, (first, count, payload)) = rounds.packs(turn);
        let peer = near.schedule.from(chunks.site.me, turn.leg).peer;
        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
        let input = unsafe { near.from(peer) };
        let place = chunks.place(peer, others.then_some(number));
        tile::consume::<tile::By<H>, H::Wire, _>(
            team,
            &place,
            chunks.share.first + first,
            count,
            &tile::Module::<H>(args),
            |s| input.at(payload + 16 * u64::from(s)),
        );
    }
}
