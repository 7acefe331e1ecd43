//! Three steps in one kernel, by domains of ranks that reach each other by better links: [`TwoShot`](super::TwoShot) within each domain, and between its steps one across.
//!
//! 1. A rank sends each peer of its domain one part of its chunk, and folds its own part of what the domain's ranks contribute.
//! 2. It exchanges that with the ranks of the same place in the other domains, and folds what all domains have.
//! 3. It passes the result on to the peers of its domain.
//!
//! With `d` domains of `l` ranks, `(d - 1) / l` chunks of each rank leave its domain, where two steps among all ranks send about two to the ranks of other domains. What crosses
//! is accumulators, not rounded, and folds follow a tree of which each domain is a node: so the bits are those of one step.
//!
//! The three kinds of blocks are those of two steps. Those that pass on do the second step as well ([`turns::cross`]). This rank's own accumulators are kept where they are
//! stored for the first peer of another domain: staging that nobody else writes until they are joined. The second step is between other ranks than the first, and uses the
//! same channels.

use super::channel::{Call, Ring};
use super::chunks;
use super::fold::Folds;
use super::relay::{Steps, take, within};
use super::turns::{self, Cross, Ends, Everybody, Turn, Turns};
use crate::arch;
use crate::ctx::Consume;
use crate::fold::{Contributions, Partials};
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::protocol::{Protocol, Share, by_domains};
use crate::schedule::{Across, Among, Domain, Homes, Legs, Schedule};
use crate::tile::{self, Kept, Team, Then};
use crate::wait::Flow;

/// The protocol, as a type: on transports with aligned domains ([`Ops::domain`]), for schedules of [two steps](Schedule::TWO_STEPS), mutual ones that fold and those with a root
/// (`simple::homes`), and for those of [all pairs](Schedule::ALL_PAIRS) that fold or produce once (`simple::chunks`). Folds are of hooks that can split them ([`Hooks::PARTIALS`]).
///
/// Grid: `channels` blocks of each kind, of which there are three, or four of all pairs, or with a root two, and of folds a third at the root; the transport has twice as many
/// channels.
#[derive(Debug)]
pub struct Hierarchical;

// SAFETY: each step is as `Simple`'s; every element of the chunk is in one part, which has one rank in each domain, and whose fold all ranks get; of all
// pairs each chunk crosses to each domain once, or what the domain contributes to it does.
unsafe impl<O: Ops> Protocol<O> for Hierarchical {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        const { by_domains::<S, H>() };
        let each = params.ops.domain();
        // SAFETY: the caller's contract.
        unsafe {
            match const { (S::TWO_STEPS, S::MUTUAL) } {
                (true, true) => Steps::exchange::<H>(grid, params, Domain(each)),
                (true, false) => Steps::exchange::<H>(grid, params, Homes(each)),
                (false, _) => chunks::exchange::<O, S, H>(grid, params, each),
            }
        }
    }
}

impl<O: Ops, S: Schedule, A: Among> Steps<'_, O, S, A> {
    /// Folds this rank's part in its domain, then across domains, and passes it on.
    ///
    /// # Safety
    /// This block alone works the receiving ends of the first step's channel, both ends of the second's, and the sending ends of the third's; all its threads call.
    #[inline(always)]
    pub(super) unsafe fn cross<H: Unpack>(&self, args: &H::Args<'_>) -> Flow {
        let (near, to) = (&self.first, &self.second);
        let (site, part) = (near.site, self.own_part());
        let across = Across(self.among.size(site.me.world));
        let call = Call { payload: near.call.payload * H::PARTIALS as u64, ..near.call };
        let far =
            Ends { site, schedule: &across, watch: near.watch, channel: near.channel, call, begins: None };
        let first = self.turns(near.schedule.receives(site.me));
        let turns = [
            first,
            self.turns(across.sends(site.me)).times(H::PARTIALS as u32),
            self.turns_of_second::<H>(to.schedule.sends(site.me)),
        ];
        let folds = Folds { ends: near, turns: first, share: part, kept: Kept::HERE, args };
        let work = Crosses::<O, S, A, H> { steps: self, far: &far, turns, part, folds };
        // SAFETY: the caller's contract.
        unsafe { turns::cross(turns, near, &far, to, &work) }
    }
}

struct Crosses<'k, 'a, O, S: Schedule, A: Among, H: Unpack> {
    steps: &'k Steps<'k, O, S, A>,
    far: &'k Ends<'k, O, Across>,
    turns: [Turns; 3],
    part: Share,
    folds: Folds<'k, 'a, O, A::First<S>, H, true>,
}

impl<O: Ops, S: Schedule, A: Among, H: Unpack> Cross for Crosses<'_, '_, O, S, A, H> {
    #[inline(always)]
    fn partial(&self, from: Turn, to: Turn, team: Team) {
        let (first, count, payload) = self.turns[0].packs(from);
        let (_, _, sent) = self.turns[1].packs(to);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { self.far.everybody(sent) };
        let packs = (first, within(self.part.packs, first, count), payload);
        self.folds.each(packs, team, &Partial(peers));
    }

    #[inline(always)]
    fn join(&self, from: Turn, to: Turn, team: Team) {
        let Crosses { steps, far, turns, part, folds } = self;
        let me = far.site.me;
        let (domain, domains) = (far.schedule.member(me).rank, far.schedule.member(me).world);
        let (first, count, payload) = turns[1].packs(from);
        let (first, count) = (first / H::PARTIALS, count / H::PARTIALS as u32);
        let (_, _, passed) = turns[2].packs(to);
        // SAFETY: the turn's bytes are reserved, and not handed over before it is over.
        let peers = unsafe { steps.second.everybody(passed) };
        // SAFETY: this rank's own turn was stored there, and nothing is stored there anew before it is joined.
        let own = unsafe { far.to(1) }.ring(payload);
        let (place, lanes) = (steps.place(), Pack::<H::Wire>::LANES);
        let (count, first) = (within(part.packs, first, count), part.first + first);
        let whole = tile::whole_until(&place, lanes, first, count);
        let mut s = team.lane;
        while s < count {
            let ctx = Kept::HERE.at::<H>(tile::any(&place, lanes, first + s as usize, s < whole));
            let first = s * H::PARTIALS as u32;
            let of = Joined { far, own, domain, payload, first };
            H::join((domains, me.world), &of, &|number: usize, pack: Pack<H::Folded>| {
                // SAFETY: each pack is one thread's.
                unsafe { peers.store(s * H::RELAYS as u32 + number as u32, pack.words()) };
                take::<H>(&ctx, folds.args, number, pack);
            });
            s += team.lanes;
        }
    }
}

/// What the domains have of a pack: this rank's own where it stored it for the others, theirs where it has arrived.
struct Joined<'k, 'e, O> {
    far: &'e Ends<'k, O, Across>,
    own: Ring,
    /// This rank's.
    domain: u32,
    /// Where the turn's packs begin in each stream.
    payload: u64,
    /// The first pack's number in the turn.
    first: u32,
}

impl<O: Ops> Partials for Joined<'_, '_, O> {
    #[inline(always)]
    fn of(&self, domain: u32, number: usize) -> [u32; 4] {
        let Joined { far, own, payload, .. } = *self;
        let ring = match domain == self.domain {
            true => own,
            // SAFETY: the turn's packs have arrived, and are not given back before it is over.
            false => unsafe { far.from(far.schedule.rank(far.site.me, domain)) }.ring(payload),
        };
        // SAFETY: as above; this rank's own were stored before a barrier, and nothing is stored there anew before they are joined.
        unsafe { arch::load_16_once(ring.pack(self.first + number as u32)) }
    }
}

/// What was folded in a turn is stored for the ranks of the same place in other domains.
struct Partial<'k, O>(Everybody<'k, O, Across>);

impl<O: Ops, H: Hooks> Then<H> for Partial<'_, O> {
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
            // SAFETY: each pack is one thread's.
            unsafe { self.0.store(s * H::PARTIALS as u32 + number as u32, words) };
        });
    }
}
