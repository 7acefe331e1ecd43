//! What the host asks a schedule. The rest of a launch goes without its type, so that it is compiled once.

use super::copy::Chunk;
use super::default::Pattern;
use crate::{Error, Result};
use fusewire_device::schedule::{
    AllGather, AllReduce, AllToAll, Broadcast, Gather, InPlace, Member, NOBODY, Reduce, ReduceScatter,
    Scatter, Schedule,
};
use std::any::TypeId;

/// What a schedule says of a launch, to this rank.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// As peers that wait for it are told.
    pub(super) name: &'static str,
    pub(super) pattern: Pattern,
    /// Chunks of the input and of the output; in place those of the one buffer, twice.
    pub(super) chunks: [u32; 2],
    /// Whether what arrives may be stored into this rank's output: see [`stored`].
    pub(super) stored: bool,
    /// Whether this rank sends, receives or has a chunk of its own.
    pub(super) takes_part: bool,
    /// Whether all ranks launch it, in the same order: see [`collective`].
    pub(super) collective: bool,
}

impl Asked {
    pub(super) fn of<S: Schedule>(schedule: &S, me: Member, in_place: bool) -> Self {
        let [sends, receives] = [schedule.sends(me) > 0, schedule.receives(me) > 0];
        // A send alone is called so.
        let name = match (S::NAME, sends, receives) {
            ("sendrecv", true, false) => "send",
            ("sendrecv", false, true) => "recv",
            (name, ..) => name,
        };
        let chunks = if in_place { InPlace(*schedule).chunks(me) } else { schedule.chunks(me) };
        let stored = stored(schedule, me);
        let takes_part = sends || receives || S::OWN;
        let (pattern, collective) = (Pattern::of(schedule, me), collective::<S>());
        Asked { name, pattern, chunks, stored, takes_part, collective }
    }
}

/// Whether every rank of a transport launches it, in the same order. A `sendrecv` is between some of them, and of a schedule of the user's own nobody
/// knows.
fn collective<S: Schedule>() -> bool {
    [
        TypeId::of::<AllToAll>(),
        TypeId::of::<AllGather>(),
        TypeId::of::<AllReduce>(),
        TypeId::of::<ReduceScatter>(),
        TypeId::of::<Broadcast>(),
        TypeId::of::<Scatter>(),
        TypeId::of::<Gather>(),
        TypeId::of::<Reduce>(),
    ]
    .contains(&TypeId::of::<S>())
}

/// Whether what arrives may be stored into this rank's output: it sends and receives, and nothing is folded, so that plans and rows of tables of folds
/// are the same wherever the output is. Where ranks may send without receiving, those need not have an output, so that both ends agree on storing there
/// only where every rank does both.
fn stored<S: Schedule>(schedule: &S, me: Member) -> bool {
    !S::FOLDS && (S::MUTUAL || (schedule.sends(me) > 0 && schedule.receives(me) > 0))
}

/// The copies of the copy engine: the rank's own chunk first, since another engine copies it; then each peer's, from the next neighbour on.
pub(super) fn copies<S: Schedule>(schedule: &S, me: Member, in_place: bool) -> Vec<Chunk> {
    if !in_place {
        return every_copy(schedule, me);
    }
    let mut chunks = every_copy(&InPlace(*schedule), me);
    // It is there.
    chunks.retain(|chunk| chunk.peer != me.rank as usize);
    chunks
}

fn every_copy<S: Schedule>(schedule: &S, me: Member) -> Vec<Chunk> {
    let own = schedule.own(me).map(|chunk| chunk as usize);
    let own = (S::OWN && own[0] != NOBODY as usize).then(|| Chunk {
        peer: me.rank as usize,
        from: own[0],
        to: own[1],
    });
    let legs = (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg));
    let legs = legs.map(|leg| [leg.peer, leg.chunk, leg.theirs].map(|n| n as usize));
    own.into_iter().chain(legs.map(|[peer, from, to]| Chunk { peer, from, to })).collect()
}

/// Refuses a schedule whose peers are not all other ranks.
pub(super) fn another_ranks<S: Schedule>(schedule: &S, me: Member) -> Result<()> {
    let to = (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg));
    let from = (1..=schedule.receives(me)).map(|leg| schedule.from(me, leg));
    to.chain(from).try_for_each(|leg| another_rank(me, leg.peer as usize))
}

/// Refuses a peer that does not exist, or that is this rank.
pub(super) fn another_rank(me: Member, peer: usize) -> Result<()> {
    let [rank, world] = [me.rank, me.world].map(|n| n as usize);
    if peer >= world {
        return Err(Error::misuse(format!("peer {peer} in a world of {world} ranks")));
    }
    if peer == rank {
        return Err(Error::misuse(format!(
            "rank {peer} cannot send to itself; `all_to_all` copies a rank's own chunk"
        )));
    }
    Ok(())
}
