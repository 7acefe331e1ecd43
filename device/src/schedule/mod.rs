//! Schedules: who exchanges which chunk with whom, in which order.
//!
//! A schedule is arithmetic. It knows neither how bytes travel ([`protocol`](crate::protocol)) nor over what ([`ops`](crate::ops)), and runs
//! in tests on the host as it is: [`check`] follows every chunk of a world.
//!
//! | schedule | what it does |
//! |---|---|
//! | [`AllToAll`] | one chunk to and from every rank |
//! | [`AllGather`] | each rank's chunk to every rank |
//! | [`Broadcast`] | one rank's chunk to every rank |
//! | [`Scatter`] | from one rank a chunk to every rank |
//! | [`Gather`] | each rank's chunk to one rank |
//! | [`SendRecv`] | one chunk to a peer and one from a peer, or either alone |
//! | [`ReduceScatter`] | a chunk for every rank, each folded with what the others have for that rank |
//! | [`AllReduce`] | each rank's chunk, folded, on every rank |
//! | [`Reduce`] | each rank's chunk, folded, on one rank |
//!
//! A function over [`Kernel`](crate::kernel::Kernel) is a schedule too, for what no table of legs can say.

mod all_gather;
mod all_to_all;
mod among;
#[cfg(not(target_arch = "nvptx64"))]
mod check;
mod homes;
mod in_place;
mod pairs;
mod reduce;
mod rooted;
mod sendrecv;
mod steps;

pub use all_gather::AllGather;
pub use all_to_all::AllToAll;
pub(crate) use among::{Across, Among, Domain, Everyone, Legs, Of};
#[cfg(not(target_arch = "nvptx64"))]
pub use check::check;
pub(crate) use homes::{Homes, is_home};
pub use in_place::InPlace;
pub(crate) use pairs::{Both, Pairs};
pub use reduce::{AllReduce, Reduce, ReduceScatter};
pub use rooted::{Broadcast, Gather, Scatter};
pub use sendrecv::SendRecv;
pub(crate) use steps::Relays;
pub use steps::{First, Second};

use crate::ops::Ops;

/// No peer.
pub const NOBODY: u32 = u32::MAX;

/// A rank, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The rank.
    pub rank: u32,
    /// Ranks.
    pub world: u32,
}

impl Member {
    #[inline(always)]
    pub(crate) fn of<O: Ops>(ops: &O) -> Self {
        Member { rank: ops.rank(), world: ops.world() }
    }

    /// The rank `step` ranks up, of fewer than there are.
    #[inline(always)]
    pub fn up(self, step: u32) -> u32 {
        let peer = self.rank + step;
        if peer >= self.world { peer - self.world } else { peer }
    }

    /// The rank `step` ranks down, of fewer than there are.
    #[inline(always)]
    pub fn down(self, step: u32) -> u32 {
        if step > self.rank { self.rank + self.world - step } else { self.rank - step }
    }

    /// How many ranks up `rank` is.
    #[inline(always)]
    pub(crate) fn steps_to(self, rank: u32) -> u32 {
        Member { rank, ..self }.down(self.rank)
    }
}

/// One end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The rank at the other end.
    pub peer: u32,
    /// The chunk of this rank that it is about: what `produce` is asked for, or what `consume` gets.
    pub chunk: u32,
    /// The chunk of the peer that it is about. Both ends name the same transfer: one's `chunk` is the other's `theirs`.
    pub theirs: u32,
}

/// Who exchanges which chunk with whom. A value is plain data, this rank's, and goes to its kernels.
///
/// What a rank sends and what it receives are legs, numbered from 1 on each. Blocks take them in order, and a rank that is both sends leg `k`
/// while it receives leg `k`: links carry one peer's data each way at a time if pairs rotate. Where they send to several peers by turns, each channel begins with
/// another one.
///
/// # Safety
/// All ranks' values of one launch fit each other, as [`check`] finds out: what a rank sends, its peer receives, with the same chunks; no
/// chunk is received twice; chunks are below those that [`Schedule::chunks`] names. What is said by constants is so. Protocols store into
/// peers' memory by nothing else.
pub unsafe trait Schedule: Copy + Send + Sync + 'static {
    /// Name in messages and tuning tables.
    const NAME: &'static str;
    /// Whether ranks bring a chunk from their `produce` to their `consume`: the self copy.
    const OWN: bool;
    /// Whether the self copy goes to another chunk than it comes from, or is not of every rank.
    const OWN_MOVES: bool = false;
    /// Whether `produce` is called once for all legs and the self copy: they are all of the chunks that [`Schedule::own`] names. A rank that
    /// sends has a self copy then.
    const ONCE: bool = false;
    /// Whether `consume` gets one value for each element, of what all ranks contribute to it (see [`fold`](crate::fold)). A rank that receives
    /// then receives by leg `k` from the rank `k` down, from each once, and has a self copy; all of these are of one chunk of its output.
    const FOLDS: bool = false;
    /// Whether each rank, in every launch, sends to and receives from the same ranks, in as many legs each way. Then a rank that has received
    /// knows that its peer is done with the launch before, and LL and LL128 need no credits. All schedules of a transport that say so name the same ranks:
    /// every other one.
    const MUTUAL: bool;
    /// Whether no chunk that a rank receives is one that it sends, save the self copy's, once input and output are one buffer ([`InPlace`]).
    /// Then [`Schedule::own`] is right for other ranks, too.
    const APART: bool = false;
    /// Whether it may go in two steps ([`First`], then [`Second`]): an input has one chunk at most and so has an output, all of them number 0, and every
    /// output gets the same, of a root alone or folded of what all ranks contribute. Every rank but a root then passes a part on. Kernels for that are made of
    /// shipped schedules.
    const TWO_STEPS: bool = false;
    /// Whether every rank sends to every other one, by leg `k` to the rank `k` up, and receives by leg `k` from the rank `k` down. With [`Schedule::ONCE`] or
    /// [`Schedule::FOLDS`] it may then go by domains ([`Hierarchical`](crate::protocol::Hierarchical)).
    const ALL_PAIRS: bool = false;
    /// Legs each way at most, where that is known to the compiler.
    const MOST_LEGS: u32 = u32::MAX;

    /// Legs that this rank sends.
    fn sends(&self, me: Member) -> u32;
    /// Legs that it receives.
    fn receives(&self, me: Member) -> u32;
    /// Leg number `leg` of those that it sends, from 1 on.
    fn to(&self, me: Member, leg: u32) -> Leg;
    /// Leg number `leg` of those that it receives.
    fn from(&self, me: Member, leg: u32) -> Leg;
    /// The chunks of the self copy, of the input and of the output; [`NOBODY`] twice on a rank that has none.
    fn own(&self, me: Member) -> [u32; 2];
    /// Chunks that this rank's input has, and its output.
    fn chunks(&self, me: Member) -> [u32; 2];
    /// The rank that all others send to or receive from, if there is one: the same on all ranks. Ranks whose roots differ are told so.
    fn root(&self) -> Option<u32> {
        None
    }
}

/// Legs of whichever way has more.
#[inline(always)]
pub(crate) fn legs<S: Schedule>(schedule: &S, me: Member) -> u32 {
    if S::MUTUAL { schedule.sends(me) } else { schedule.sends(me).max(schedule.receives(me)) }
}

/// Whether this rank has a self copy.
#[inline(always)]
pub(crate) fn has_own<S: Schedule>(schedule: &S, me: Member) -> bool {
    S::OWN && (!S::OWN_MOVES || schedule.own(me)[0] != NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_receives_in_a_step_is_who_is_sent_to() {
        for world in 1..9 {
            for rank in 0..world {
                for step in 1..world {
                    let to = Member { rank, world }.up(step);
                    assert!(to < world && to != rank);
                    assert_eq!(Member { rank: to, world }.down(step), rank);
                    assert_eq!(Member { rank, world }.steps_to(to), step);
                }
            }
        }
    }
}
