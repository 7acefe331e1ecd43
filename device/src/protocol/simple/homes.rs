//! By domains, of schedules of two steps with a root: a chunk has a part for each place in a domain, and each part crosses to or from each other domain once, between ranks of its
//! place. *Home* is the root's domain.
//!
//! *From the root*, the ranks at home get a part each. They pass it on to the others at home and to the ranks of their place elsewhere, who pass it on in their domains. The part of
//! its own place the root passes on itself.
//!
//! *To the root*, the ranks of each domain fold a part each of what the domain contributes. That goes to the rank of the place at home as accumulators, which joins what all domains
//! have and sends the root the result. The part of its own place the root joins itself.
//!
//! | blocks | from the root | to the root |
//! |---|---|---|
//! | 0 | of the root: send the others at home their parts | send the others of the domain what this rank contributes to their parts |
//! | 1 | pass on this rank's part | fold this rank's part, and send it home; at home join it |
//! | 2 | of all but the root: take what the others of the domain pass on | of the root: take what those at home have joined |
//!
//! There are as many of each kind as channels. Channels `0..c` are for what blocks 0 send, channels `c..2c` for what blocks 1 do: between the root and another rank at home are both.
//!
//! # Why nobody waits in a circle
//!
//! Give blocks a level. From the root, blocks 0 have level 0, blocks 1 at home level 1, blocks 1 elsewhere and blocks 2 at home level 2, blocks 2 elsewhere level 3. To the root,
//! blocks 0 elsewhere have level 0, blocks 1 elsewhere and blocks 0 at home level 1, blocks 1 at home level 2, blocks 2 level 3. Every stream is from a level to the next, and all have
//! as many turns.
//!
//! A block of level `v` waits in turn `t` for bytes of level `v - 1`, whose blocks wait in turn `t + 1` or before, or for room at level `v + 1`, whose blocks have not given turn
//! `t - 3` back and so wait in turn `t - 2` or before. So who waits has a greater `t + 3v / 2` than who it waits for.

use super::chunks::{Arrived, Joined, Onward, Partial};
use super::fold::Folds;
use super::relay::{Steps, take, within};
use super::turns::{self, Ends, Everybody, Pass, Turn, Turns};
use super::{channel::Call, channel::HEADER, once};
use crate::ctx::Consume;
use crate::hooks::Hooks;
use crate::launch::Unpack;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::protocol::Share;
use crate::schedule::{Across, Among, Legs, Schedule, is_home};
use crate::tile::{Kept, Team};
use crate::wait::Flow;

impl<O: Ops, S: Schedule, A: Among> Steps<'_, O, S, A> {
    /// Sends the part of the root's own place to all that take it or pass it on.
    ///
    /// # Safety
    /// This rank is the root. This block alone works the sending ends of the second step's channel; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn spread<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let (to, part) = (Ends { ..self.second }, self.own_part());
        let turns = self.turns(to.schedule.sends(to.site.me)).of_packs(part.packs);
        // SAFETY: the caller's contract.
        unsafe { once::send_by::<O, _, H>(to, turns, Kept::HERE, part, args) }
    }

    /// Folds this rank's part of what its domain contributes, and sends it home; at home joins it with what other domains have.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the first step's channel, and the sending ends of the second's; at home also the receiving ends across of that.
    /// All its threads call.
    #[inline(always)]
    pub(super) unsafe fn gather_home<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let (near, to, part) = (&self.first, &self.second, self.own_part());
        let (site, me) = (near.site, near.site.me);
        let turns = self.turns(near.schedule.receives(me));
        let folds = Folds { ends: near, turns, share: part, kept: Kept::HERE, args };
        let crossing = |legs| self.turns(legs).times(H::PARTIALS as u32);
        let call = Call { payload: near.call.payload * H::PARTIALS as u64, ..near.call };
        if !is_home(me, to.schedule.root(), self.among.size(me.world)) {
            let (to, turns) = (Ends { call, ..*to }, [turns, crossing(1)]);
            let work = Crosses::<O, S, A, H> { to: &to, crossing: turns[1], part, folds };
            // SAFETY: the caller's contract.
            return unsafe { turns::relay(turns, (near, &to), &work) };
        }
        let across = Across(self.among.size(me.world));
        let far =
            Ends { site, schedule: &across, watch: near.watch, channel: to.channel, call, begins: None };
        let crossed = crossing(across.receives(me));
        let sends = to.schedule.sends(me);
        let onward = Some((self.turns_of_second::<H>(sends), to));
        let work = Joins::<O, S, A, H> { to, far: &far, crossed, part, takes: sends == 0, folds };
        // SAFETY: the caller's contract.
        unsafe { turns::meet([turns, crossed], (near, &far), onward, &work) }
    }
}

struct Crosses<'k, 'a, O, S: Schedule, A: Among, H: Unpack> {
    to: &'k Ends<'k, O, A::Second<S>>,
    crossing: Turns,
    part: Share,
    folds: Folds<'k, 'a, O, A::First<S>, H, true>,
}

impl<O: Ops, S: Schedule, A: Among, H: Unpack> Pass for Crosses<'_, '_, O, S, A, H> {
    #[inline(always)]
    fn turn(&self, from: Turn, to: Turn, team: Team) {
        let (first, count, payload) = self.folds.turns.packs(from);
        let (_, _, sent) = self.crossing.packs(to);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let ring = unsafe { self.to.to(1) }.ring(sent);
        let packs = (first, within(self.part.packs, first, count), payload);
        self.folds.each(packs, team, &Partial(ring));
    }
}

struct Joins<'k, 'a, O, S: Schedule, A: Among, H: Unpack> {
    to: &'k Ends<'k, O, A::Second<S>>,
    far: &'k Ends<'k, O, Across>,
    crossed: Turns,
    part: Share,
    /// Whether this rank is the root.
    takes: bool,
    folds: Folds<'k, 'a, O, A::First<S>, H, true>,
}

impl<O: Ops, S: Schedule, A: Among, H: Unpack> Pass for Joins<'_, '_, O, S, A, H> {
    #[inline(always)]
    fn turn(&self, here: Turn, there: Turn, team: Team) {
        let Joins { to, far, crossed, part, takes, folds } = self;
        let (first, count, here) = folds.turns.packs(here);
        let (_, _, payload) = crossed.packs(there);
        let packs = (first, within(part.packs, first, count), here);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { to.everybody(HEADER + (16 * first * H::RELAYS) as u64) };
        let place = far.site.only(to.schedule, to.channel);
        let (domain, ranks) = (far.schedule.member(far.site.me), far.site.me.world);
        let (others, then) = (Arrived { far, payload }, Settled { peers, takes: *takes });
        folds.each_at::<false>(place, packs, team, &Joined { domain, ranks, others, then });
    }
}

/// What all ranks come to is taken by the root, or stored for it.
struct Settled<'k, O, S> {
    peers: Everybody<'k, O, S>,
    takes: bool,
}

impl<O: Ops, S: Legs, H: Hooks> Onward<H> for Settled<'_, O, S> {
    #[inline(always)]
    fn put(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, number: usize, pack: Pack<H::Folded>) {
        if self.takes {
            return take::<H>(ctx, args, number, pack);
        }
        // SAFETY: each pack is one thread's.
        unsafe { self.peers.store(s * H::RELAYS as u32 + number as u32, pack.words()) };
    }
}
