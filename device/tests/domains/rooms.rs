//! Rings that an earlier launch has left full: what comes behind it waits for room in its first turn.

use super::folding::{Becomes, Bytes, Folding, Settled, tree};
use super::hooks::{Aligned, ByPack, Raw};
use super::pairs::{raws, vectors};
use super::world::Noise;
use super::{Ground, Way, by_domains};
use fusewire_device::{
    element::Element,
    launch::Unpack,
    protocol::{Host, Protocol},
    schedule::{AllGather, AllReduce, Broadcast, Member, Schedule},
};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;

fn wait(ended: &AtomicBool) {
    let waits = (0..10_000).take_while(|_| !ended.load(SeqCst));
    assert!(waits.map(|_| sleep(Duration::from_millis(1))).count() < 10_000, "a broadcast has not ended");
}

/// A broadcast of rank 0 that fills its rings, and at once behind it a collective on the same channel. The other domain begins both long after rank 0 has
/// ended the broadcast, so that rank 0 finds no room across. Both come to what they should; of the collective that is `want` of all inputs and a place.
fn behind_a_broadcast<S: Schedule, H: Unpack<Raw = Raw>, I: Element, O: Element>(
    schedule: S,
    way: &Way<S>,
    n: usize,
    want: impl Fn(&[Aligned<I>], usize) -> O,
) {
    let ground = Ground::new(2, 2, 1);
    let (world, ranks) = (&ground.world, ground.ranks());
    let mut noise = Noise(n as u64);
    // All that a ring has room for behind the header.
    let bytes = world.layout.window as usize - 128;
    let mut sent = vectors(ranks, bytes, || noise.next() as u8);
    let mut told = vectors(ranks, bytes, || 0u8);
    let chunks = schedule.chunks(Member { rank: 0, world: ranks }).map(|chunks| chunks as usize * n);
    let mut inputs = vectors(ranks, chunks[0], || I::from_bits64(noise.next()));
    let mut outputs = vectors(ranks, chunks[1], || O::from_bits64(0));
    let (first, second) = (raws(&mut sent, &mut told), raws(&mut inputs, &mut outputs));

    let broadcast = Way("broadcast", Host::exchange::<_, ByPack<u8>>, 1);
    let ended: Vec<AtomicBool> = (0..ranks).map(|_| AtomicBool::new(false)).collect();
    let flows = world.run(way.2, |rank, grid| {
        if grid.block > 0 {
            // A launch begins when the one before has ended.
            wait(&ended[rank as usize]);
        } else {
            if rank >= ground.each {
                wait(&ended[0]);
                sleep(Duration::from_millis(100));
            }
            let (root, raw) = (Broadcast { root: 0 }, first[rank as usize]);
            let flow = ground.block::<_, ByPack<u8>>(&broadcast, root, [bytes, 1], raw, 5_000, (rank, grid));
            ended[rank as usize].store(true, SeqCst);
            flow?;
        }
        ground.block::<S, H>(way, schedule, [n, 1], second[rank as usize], 5_000, (rank, grid))
    });
    let faults: Vec<_> = (0..ranks).map(|rank| world.record(rank).kind).collect();
    for (rank, flows) in flows.iter().enumerate() {
        assert!(flows.iter().all(|flow| flow.is_ok()), "{} {}: {faults:?}", S::NAME, way.0);
        assert_eq!(told[rank].all(), sent[0].all(), "broadcast before {} {}, rank {rank}", S::NAME, way.0);
        for (at, got) in outputs[rank].all().iter().enumerate() {
            let want = want(&inputs, at).to_bits64();
            assert_eq!(got.to_bits64(), want, "{} {}: element {at} of rank {rank}", S::NAME, way.0);
        }
    }
}

const N: usize = 2500;

#[test]
fn a_gather_waits_for_what_nobody_has_taken() {
    for way in by_domains::<_, ByPack<u8>>() {
        behind_a_broadcast::<_, ByPack<u8>, u8, u8>(AllGather, &way, N, |inputs, at| {
            inputs[at / N].all()[at % N]
        });
    }
}

/// Of accumulators that take as much room as what crosses the wire, twice as much, and four times as much.
fn reduces<H: Becomes>() {
    for way in by_domains::<_, H>() {
        behind_a_broadcast::<_, H, u16, u32>(AllReduce, &way, N, |inputs, at| {
            H::becomes(0, tree(0, inputs.len() as u32, &|rank| H::sent(inputs[rank as usize].all()[at])))
        });
    }
}

#[test]
fn a_reduction_waits_for_what_nobody_has_taken() {
    reduces::<Folding>();
    reduces::<Settled>();
    reduces::<Bytes>();
}
