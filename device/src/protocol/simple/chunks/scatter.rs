//! What every rank contributes to every rank's chunk, folded.

use super::super::channel::Ring;
use super::super::fold::{Folds, produce_into};
use super::super::relay::take;
use super::super::turns::{self, Ends, Pass, Rounds, Turn, Turns, Work};
use super::Chunks;
use crate::arch;
use crate::ctx::Consume;
use crate::fold::{Contributions, Partials};
use crate::hooks::Hooks;
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::schedule::{Across, Domain, Legs, Member, Of, Schedule};
use crate::tile::{Kept, Team, Then};
use crate::wait::Flow;
use core::cell::Cell;

/// Packs of accumulators for one of the wire at most: of 8 bytes for one.
const MOST: usize = 8;

impl<O: Ops, S: Schedule> Chunks<'_, O, S> {
    /// Sends each peer of the domain what this rank contributes to its chunk, or to those of its place in the `others`.
    ///
    /// # Safety
    /// This block alone works the sending ends of that channel in the domain; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn contribute<H: Unpack>(&self, others: bool, args: &H::Args<'_>) -> Flow {
        let (near, rounds) = self.near(others);
        let (near, turns) = (near.turned(), rounds.turns.one_by_one());
        let work = Contributes::<O, S, H> { chunks: self, near: &near, rounds, others, args };
        // SAFETY: the caller's contract.
        unsafe { turns::send(turns, &near, &work) }
    }

    /// Folds what the domain contributes to the chunks of this rank's place in other domains, and sends it across.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the second channel in the domain, and the sending ends across; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn fold<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let ((near, rounds), (far, crossing)) = (self.near(true), self.far(H::PARTIALS));
        let folds = Folds { ends: &near, turns: rounds.turns, share: self.share, kept: Kept::HERE, args };
        let work = Crosses::<O, S, H> { chunks: self, far: &far, crossing, rounds, folds };
        // SAFETY: the caller's contract.
        unsafe { turns::relay([rounds.turns, crossing], (&near, &far), &work) }
    }

    /// Folds what the domain contributes to this rank's chunk, joins it with what crosses, and takes the result.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the first channel in the domain, and those across; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn join<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let ((near, rounds), (far, one_by_one)) = (self.near(false), self.far(H::PARTIALS));
        let crossed = one_by_one.all();
        let kept = self.site.kept(&self.pairs.schedule);
        let folds = Folds { ends: &near, turns: rounds.turns, share: self.share, kept, args };
        let nowhere = None::<(Turns, &Ends<'_, O, Across>)>;
        let work = Joins::<O, S, H> { chunks: self, far: &far, crossed, rounds, folds };
        // SAFETY: the caller's contract.
        unsafe { turns::meet([rounds.turns, crossed], (&near, &far), nowhere, &work) }
    }
}

struct Contributes<'k, 'a, O, S, H: Unpack> {
    chunks: &'k Chunks<'k, O, S>,
    near: &'k Ends<'k, O, Of<S, Domain>>,
    rounds: Rounds,
    others: bool,
    args: &'k H::Args<'a>,
}

impl<O: Ops, S: Schedule, H: Unpack> Work for Contributes<'_, '_, O, S, H> {
    const COLS: usize = 0;
    #[inline(always)]
    fn turn(&self, turn: Turn, team: Team) {
        let Contributes { chunks, near, rounds, others, args } = self;
        let (number, (first, count, payload)) = rounds.packs(turn);
        let place = chunks.place(near.sent(turn.leg).peer, others.then_some(number));
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let ring = unsafe { near.to(turn.leg) }.ring(payload);
        // SAFETY: the turn's packs have their places there.
        unsafe { produce_into::<H>(team, &place, (chunks.share.first + first, count), args, ring) };
    }
}

struct Crosses<'k, 'a, O, S, H: Unpack> {
    chunks: &'k Chunks<'k, O, S>,
    far: &'k Ends<'k, O, Across>,
    crossing: Turns,
    rounds: Rounds,
    folds: Folds<'k, 'a, O, Of<S, Domain>, H, true>,
}

impl<O: Ops, S: Schedule, H: Unpack> Pass for Crosses<'_, '_, O, S, H> {
    const BY_LEG: [bool; 2] = [false, true];
    #[inline(always)]
    fn turn(&self, from: Turn, to: Turn, team: Team) {
        let Crosses { chunks, far, crossing, rounds, folds } = self;
        let (number, packs) = rounds.packs(from);
        let (_, _, sent) = crossing.packs(to);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let ring = unsafe { far.to(to.leg) }.ring(sent);
        let place = chunks.place(chunks.site.me.rank, Some(number));
        folds.each_at::<true>(place, packs, team, &Partial(ring));
    }
}

/// What was folded in a turn is stored for the rank of the chunk, or of the part.
pub(in super::super) struct Partial(pub Ring);

impl<H: Hooks> Then<H> for Partial {
    #[inline(always)]
    fn fold(
        &self,
        s: u32,
        _ctx: &Consume,
        _args: &H::Args<'_>,
        ranks: u32,
        of: &impl Contributions<H::Wire>,
    ) {
        H::partial(ranks, of, &|number: usize, words: [u32; 4]| {
            // SAFETY: the ring's place of the pack, reserved for this block; each pack is one thread's.
            unsafe { arch::store_16(self.0.pack(s * H::PARTIALS as u32 + number as u32), words) };
        });
    }
}

struct Joins<'k, 'a, O, S, H: Unpack> {
    chunks: &'k Chunks<'k, O, S>,
    far: &'k Ends<'k, O, Across>,
    crossed: Turns,
    rounds: Rounds,
    folds: Folds<'k, 'a, O, Of<S, Domain>, H, true>,
}

impl<O: Ops, S: Schedule, H: Unpack> Pass for Joins<'_, '_, O, S, H> {
    #[inline(always)]
    fn turn(&self, here: Turn, there: Turn, team: Team) {
        let Joins { chunks, far, crossed, rounds, folds } = self;
        let (_, packs) = rounds.packs(here);
        let (_, _, payload) = crossed.packs(there);
        let place = chunks.place(chunks.site.me.rank, None);
        let (domain, ranks) = (far.schedule.member(far.site.me), far.site.me.world);
        folds.each_at::<false>(
            place,
            packs,
            team,
            &Joined { domain, ranks, others: Arrived { far, payload }, then: Taken },
        );
    }
}

/// What other domains have of a turn's packs.
pub(in crate::protocol) trait Others {
    /// Pack `at` of the accumulators of domain `domain`.
    fn of(&self, domain: u32, at: u32) -> [u32; 4];
}

pub(in super::super) struct Arrived<'k, 'e, O> {
    pub far: &'e Ends<'k, O, Across>,
    /// Where the turn's packs begin in each stream.
    pub payload: u64,
}

impl<O: Ops> Others for Arrived<'_, '_, O> {
    #[inline(always)]
    fn of(&self, domain: u32, at: u32) -> [u32; 4] {
        let Arrived { far, payload } = self;
        // SAFETY: the turn's packs have arrived, and are not given back before it is over.
        let ring = unsafe { far.from(far.schedule.rank(far.site.me, domain)) }.ring(*payload);
        // SAFETY: as above.
        unsafe { arch::load_16_once(ring.pack(at)) }
    }
}

/// What becomes of a pack that all domains' were joined to.
pub(in crate::protocol) trait Onward<H: Hooks> {
    /// Pack `number` of what was folded for pack `s` of the turn, which is the one at `ctx`.
    fn put(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, number: usize, pack: Pack<H::Folded>);
}

/// This rank takes it.
pub(in crate::protocol) struct Taken;

impl<H: Hooks> Onward<H> for Taken {
    #[inline(always)]
    fn put(&self, _s: u32, ctx: &Consume, args: &H::Args<'_>, number: usize, pack: Pack<H::Folded>) {
        take::<H>(ctx, args, number, pack);
    }
}

/// What this rank's domain contributes is folded, and joined with what the others have.
pub(in crate::protocol) struct Joined<D, T> {
    /// This rank's domain, and how many there are.
    pub domain: Member,
    /// Ranks that contribute in all.
    pub ranks: u32,
    pub others: D,
    pub then: T,
}

impl<D: Others, T: Onward<H>, H: Hooks> Then<H> for Joined<D, T> {
    #[inline(always)]
    fn fold(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, ranks: u32, of: &impl Contributions<H::Wire>) {
        const { assert!(H::PARTIALS <= MOST, "accumulators have 8 bytes at most") };
        let own = [const { Cell::new([0; 4]) }; MOST];
        H::partial(ranks, of, &|number: usize, words: [u32; 4]| own[number].set(words));
        let Joined { domain, ranks, others, then } = self;
        let all = All { own: &own, domain: domain.rank, others, first: s * H::PARTIALS as u32 };
        H::join((domain.world, *ranks), &all, &|number: usize, pack: Pack<H::Folded>| {
            then.put(s, ctx, args, number, pack);
        });
    }
}

/// What all domains have of a pack: this rank's own here, the others' where it has arrived.
struct All<'d, D> {
    own: &'d [Cell<[u32; 4]>; MOST],
    /// This rank's.
    domain: u32,
    others: &'d D,
    /// The first pack's number in the turn.
    first: u32,
}

impl<D: Others> Partials for All<'_, D> {
    #[inline(always)]
    fn of(&self, domain: u32, number: usize) -> [u32; 4] {
        match domain == self.domain {
            true => self.own[number].get(),
            false => self.others.of(domain, self.first + number as u32),
        }
    }
}
