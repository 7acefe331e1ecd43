//! Kernels in groups of a world: each group has a transport of its own, and its ranks are numbered apart.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

/// Adds up.
#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, u64))]
mod sum {
    pub struct Args<'a> {
        pub input: &'a [u64],
        pub output: Out<'a, u64>,
    }
}

/// Says from whom an element came, beside it.
#[comm_kernel(transports(Shm), schedules(all_to_all))]
mod exchange {
    pub struct Args<'a> {
        pub input: &'a [u64],
        pub output: Out<'a, u64>,
        pub from: Out<'a, u64>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u64) {
        args.output.at(ctx).set(value);
        args.from.at(ctx).set(ctx.peer as u64 * 10 + ctx.rank as u64);
    }
}

/// Elements of a chunk: some turns of staging.
const CHUNK: usize = 3000;
const RANKS: usize = 4;

/// What rank `me` of the world has at `index` in a round.
fn value(me: usize, round: usize, index: usize) -> u64 {
    (1 << (16 * me)) * (1 + (round * 31 + index) % 1000) as u64
}

fn input(me: usize, round: usize, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(me, round, index)).collect()
}

/// One rank of a group whose members these are, by the world's numbers.
fn rank(world: &World, group: &World, members: &[usize]) -> fusewire::Result<()> {
    let (me, here, n) = (world.rank(), group.rank(), members.len());
    assert_eq!((group.size(), members[here]), (n, me));
    let shm = Shm::rendezvous(group, 1 << 16)?;
    let (device, stream, other) = (Device::of(&shm), Device::of(&shm).stream()?, Device::of(&shm).stream()?);
    let (sum, exchange) = (sum::all_reduce(&shm)?, exchange::all_to_all(&shm)?);
    let (mut total, mut output) = (device.buffer(CHUNK)?, device.buffer(n * CHUNK)?);
    let mut from = device.buffer(n * CHUNK)?;
    // All groups run from here on at once.
    world.barrier()?;
    for round in 0..8 {
        let chunk = device.buffer_from(&input(me, round, CHUNK))?;
        let chunks = device.buffer_from(&input(me, round, n * CHUNK))?;
        sum.launch(&stream, sum::Launch { input: chunk.view(), output: total.view_mut() })?;
        let args =
            exchange::Launch { input: chunks.view(), output: output.view_mut(), from: from.view_mut() };
        exchange.launch(&other, args)?;
        let sums: Vec<u64> =
            (0..CHUNK).map(|index| members.iter().map(|&m| value(m, round, index)).sum()).collect();
        assert_eq!(total.read(&stream)?, sums, "the sum of round {round} in {members:?}");
        let sent =
            |m: &usize| (here * CHUNK..(here + 1) * CHUNK).map(|index| value(*m, round, index)).collect();
        let arrived: Vec<Vec<u64>> = members.iter().map(sent).collect();
        assert_eq!(output.read(&other)?, arrived.concat(), "what came in round {round} in {members:?}");
        let peers: Vec<u64> = (0..n * CHUNK).map(|at| (at / CHUNK * 10 + here) as u64).collect();
        assert_eq!(from.read(&other)?, peers, "peers of round {round} in {members:?}");
    }
    Ok(shm.close()?)
}

/// Splits a world of four by `color` and `key`, and runs all groups at once.
fn split(color: fn(usize) -> u64, key: fn(usize) -> u64) {
    let ranks = World::threads(RANKS, |world| {
        let me = world.rank();
        let group = world.split(color(me), key(me))?;
        let mut members: Vec<usize> = (0..RANKS).filter(|&rank| color(rank) == color(me)).collect();
        members.sort_by_key(|&rank| key(rank));
        rank(&world, &group, &members)
    });
    ranks.unwrap().into_iter().for_each(Result::unwrap);
}

#[test]
fn two_groups_of_two() {
    split(|rank| rank as u64 / 2, |_| 0);
}

#[test]
fn groups_interleaved_and_numbered_backwards() {
    split(|rank| rank as u64 % 2, |rank| 10 - rank as u64);
}

#[test]
fn groups_of_three_and_of_one() {
    split(|rank| u64::from(rank == 2), |_| 0);
}
