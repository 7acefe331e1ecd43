//! By domains, of schedules by which every rank sends to every other one ([`Schedule::ALL_PAIRS`]): a chunk is one rank's, and crosses to each other domain once.
//!
//! *Gathering*, a rank sends its chunk to the peers of its domain, and across to the rank of its place in each other domain, which passes it on to the peers of its own.
//! *Scattering* is the same backwards: a rank of each domain folds what the domain's ranks contribute to a chunk, and sends that across to the chunk's rank, which joins it
//! with what its own domain's ranks contribute. What crosses is accumulators, as in an all-reduce by domains. Of `d` domains of `l` ranks, `d - 1` chunks of each rank
//! cross, where one step sends `(d - 1) l`.
//!
//! Channels `0..c` within a domain are for chunks of its own ranks, channels `c..2c` for those of the others: of each peer `d - 1` chunks in one stream, round by round
//! ([`Rounds`]). Channels `0..c` across domains are for one chunk each way.
//!
//! Blocks are of four kinds, `c` of each:
//!
//! | | gathering | waits for | scattering | waits for |
//! |---|---|---|---|---|
//! | 0 | sends its chunk | room at 1 and 2 | sends what is other domains' | room at 1 |
//! | 1 | passes on what crosses | bytes of 0, room at 3 | folds that, and sends it across | bytes of 0, room at 3 |
//! | 2 | takes what its peers send | bytes of 0 | sends what is its own domain's | room at 3 |
//! | 3 | takes what they pass on | bytes of 1 | joins both | bytes of 1 and 2 |
//!
//! # Why nobody waits in a circle
//!
//! Blocks take turns in one order: round by round, and in a round chunk by chunk. While the leader waits for a turn, the turn before may not have been handed over or given
//! back; all before that have. A ring holds three turns and a header, so who waits for room in turn `t` needs turn `t - 3` given back. With `m = d - 1` chunks in a round, turn
//! `t` of a stream of several chunks is of round `t / m`.
//!
//! Give each wait a number. Gathering, block 0 for room in round `k` has `k m`, block 1 in turn `t` has `t + 3m / 2`, block 2 for round `k` has `k m + 3m / 2`, and block 3 for turn
//! `t` has `t + 3m / 2 + 3 / 2`. Block 0 in round `k` waits for blocks 2 in round `k - 2` or before, and for blocks 1 in the first turn of that or before. Those wait for bytes of
//! their round for blocks 0 in the next or before. Block 1 in turn `t` waits for room for blocks 3 in turn `t - 2` or before, block 3 in turn `t` for blocks 1 in turn `t + 1` or
//! before. So who waits has a greater number than who it waits for. Scattering, the numbers of blocks 0, 1, 2 and 3 are `t - 3 / 2`, `t`, `k m` and `(k + 1) m + 1 / 2`.
//!
//! One block for two of the kinds would have to take turns of both by turns. If it took all that its peers send before what they pass on, blocks 1 would wait for room until it was
//! done, the blocks 0 of other domains for them, and it for blocks 0 of its own, which send to both.

mod gather;
mod scatter;

pub(super) use scatter::{Arrived, Partial};
pub(in crate::protocol) use scatter::{Joined, Onward};
#[cfg(not(target_arch = "nvptx64"))]
pub(in crate::protocol) use scatter::{Others, Taken};

use super::channel::Call;
use super::turns::{Ends, Rounds, Turns};
use crate::ctx::Ctx;
use crate::group::Block;
use crate::launch::{Grid, Params, Unpack};
use crate::ops::Ops;
use crate::protocol::{Share, Site, arguments};
use crate::schedule::{Across, Domain, Legs, Of, Pairs, Schedule};
use crate::wait::{Flow, Watch};

/// One block's part.
///
/// # Safety
/// As for [`Protocol::exchange`](crate::protocol::Protocol::exchange); domains are of so many ranks each; the schedule is [`Schedule::ALL_PAIRS`], and either
/// [`Schedule::ONCE`] or [`Schedule::FOLDS`].
#[inline(always)]
pub(super) unsafe fn exchange<O: Ops, S: Schedule, H: Unpack>(
    grid: Grid,
    params: &Params<O, S, H::Raw>,
    each: u32,
) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let watch = unsafe { Watch::begin(&Block, params.control, ops.rank(), grid.block) };
    // SAFETY: the caller's contract.
    let args = unsafe { arguments::<H>(&params.raw) };
    let args = args.now(watch.behind());
    let site = Site::of(grid, params);
    let (mut channel, mut kind) = (grid.block, 0);
    while channel >= shape.channels {
        (channel, kind) = (channel - shape.channels, kind + 1);
    }
    let share = Share::of::<H>(shape.elements, shape.share, channel);
    if const { H::FOLDS && (H::PARTIALS == 0 || H::RELAYS == 0) } || share.packs == 0 {
        return Ok(());
    }
    let chunks = Chunks { site, watch: &watch, channel, share, pairs: Pairs::of(params.schedule, each) };
    // SAFETY: each block has its own channel ends; all its threads call.
    unsafe {
        if const { S::FOLDS } {
            match kind {
                1 => chunks.fold::<H>(args),
                3 => chunks.join::<H>(args),
                _ => chunks.contribute::<H>(kind == 0, args),
            }
        } else {
            match kind {
                0 => chunks.send::<H>(args),
                1 => chunks.forward::<H>(args),
                _ => chunks.take::<H>(kind == 3, args),
            }
        }
    }
}

/// What the blocks of a channel have in common.
struct Chunks<'k, O, S> {
    site: Site<'k, O>,
    watch: &'k Watch,
    channel: u32,
    share: Share,
    pairs: Pairs<S>,
}

impl<O: Ops, S: Schedule> Chunks<'_, O, S> {
    #[inline(always)]
    fn ends<'e, L: Legs>(&'e self, legs: &'e L, channel: u32, payload: u64) -> Ends<'e, O, L> {
        let call = Call { payload, ..self.share.call(self.site.shape) };
        Ends { site: &self.site, schedule: legs, watch: self.watch, channel, call, begins: None }
    }

    /// Turns of a stream of one chunk, with so many legs.
    #[inline(always)]
    fn turns(&self, legs: u32) -> Turns {
        Turns::of(&self.site, self.share, legs, false)
    }

    /// The ends in this rank's domain, and their turns, of all legs: for chunks of the domain's own ranks, or of the `others`.
    #[inline(always)]
    fn near(&self, others: bool) -> (Ends<'_, O, Of<S, Domain>>, Rounds) {
        let (site, Pairs { near, far, .. }) = (&self.site, &self.pairs);
        let each = self.turns(near.sends(site.me));
        let rounds = if others { Rounds::of(each, far.sends(site.me)) } else { Rounds::one(each) };
        let channel = self.channel + if others { site.shape.channels } else { 0 };
        (self.ends(near, channel, rounds.turns.payload()), rounds)
    }

    /// The ends across domains, and their turns, one leg after the other, in which a pack takes `times` the room.
    #[inline(always)]
    fn far(&self, times: usize) -> (Ends<'_, O, Across>, Turns) {
        // Whole lines, so that there are as many turns whatever a pack takes.
        let share = self.share.longest(1, 8);
        let turns = Turns::of(&self.site, share, self.pairs.far.sends(self.site.me), true);
        let turns = if times > 1 { turns.times(times as u32) } else { turns };
        (self.ends(&self.pairs.far, self.channel, turns.payload()), turns)
    }

    /// Where hooks are: see [`Pairs::leg`].
    #[inline(always)]
    fn place(&self, peer: u32, other: Option<u32>) -> Ctx {
        self.site.at(self.pairs.leg(self.site.me, peer, other), self.channel)
    }
}
