//! Schedules with a root: each part of a chunk crosses to or from each other domain once.

use super::folding::{Becomes, Bytes, Folding, Settled, tree};
use super::hooks::{Args, ByElement, ByPack, Raw, Tiled};
use super::pairs::{Adds, Chained, Stays, chained, folds_anew, raws, vectors};
use super::world::Noise;
use super::{Ground, Way, by_domains};
use fusewire_device::{
    args::{Lent, Out, Packs},
    ctx::{Consume, Produce},
    element::{Bf16, Element},
    fold::{Contributions, Partials},
    hooks::{Hooks, consume_each},
    launch::Unpack,
    pack::Pack,
    protocol::{Protocol, Simple},
    schedule::{Broadcast, Reduce},
};
use std::thread::sleep;
use std::time::Duration;

/// Sizes at which parts are empty, not whole, or of many turns.
const SIZES: [usize; 7] = [0, 1, 16, 127, 1000, 2501, 10_001];

/// Domains, ranks of each, and channels.
const WORLDS: [(u32, u32, u32); 5] = [(2, 2, 2), (4, 2, 1), (2, 4, 1), (3, 2, 1), (3, 4, 1)];

/// The root's chunk as it is, of hooks that change nothing.
fn tells<H: Unpack<Raw = Raw>, T: Element>(
    ground: &Ground,
    way: &Way<Broadcast>,
    root: u32,
    [n, rows]: [usize; 2],
) {
    let ranks = ground.ranks();
    let mut noise = Noise(u64::from(root) << 21 | n as u64);
    let mut inputs = vectors(ranks, n, || T::from_bits64(noise.next()));
    let mut outputs = vectors(ranks, n, || T::from_bits64(0));
    let raws = raws(&mut inputs, &mut outputs);
    ground.runs::<_, H>(way, Broadcast { root }, [n, rows], &raws);
    let cols = n / rows;
    let at = |k: usize| if H::TRANSPOSED { k % cols * rows + k / cols } else { k };
    for (rank, output) in outputs.iter().enumerate() {
        for (k, got) in output.all().iter().enumerate() {
            let want = inputs[root as usize].all()[at(k)].to_bits64();
            assert_eq!(
                got.to_bits64(),
                want,
                "{} of {n}, domains of {}: element {k} of rank {rank} of {ranks}, from {root}",
                way.0,
                ground.each
            );
        }
    }
}

/// Two launches of hooks that count, and see who it is from.
fn chains(ground: &Ground, way: &Way<Broadcast>, root: u32, n: usize) {
    let ranks = ground.ranks();
    let mut noise = Noise(u64::from(ranks) << 22 | n as u64);
    let mut outputs = vectors(ranks, n, || 0u32);
    let mut wanted = vec![0; n];
    for _ in 0..2 {
        let mut inputs = vectors(ranks, n, || noise.next() as u16);
        let raws = raws(&mut inputs, &mut outputs);
        ground.runs::<_, Chained>(way, Broadcast { root }, [n, 1], &raws);
        for (at, old) in wanted.iter_mut().enumerate() {
            *old = chained(*old, root, inputs[root as usize].all()[at]);
        }
    }
    for (rank, output) in outputs.iter().enumerate() {
        assert_eq!(output.all(), wanted, "{} of {n}, domains of {}, rank {rank}", way.0, ground.each);
    }
}

/// Every root of a world, and every size: of the larger worlds, every third root and every other size.
fn every(run: impl Fn(&Ground, u32, usize)) {
    for (domains, each, channels) in WORLDS {
        let ground = Ground::new(domains, each, channels);
        for root in 0..domains * each {
            for (k, n) in SIZES.into_iter().enumerate() {
                if ground.ranks() < 12 || (root + k as u32).is_multiple_of(3) {
                    run(&ground, root, n);
                }
            }
        }
    }
}

#[test]
fn parts_of_the_root_reach_every_rank() {
    every(|ground, root, n| {
        for way in 0..2 {
            chains(ground, &by_domains::<_, Chained>()[way], root, n);
            tells::<ByPack<f32>, f32>(ground, &by_domains::<_, ByPack<f32>>()[way], root, [n, 1]);
            tells::<ByElement<u8>, u8>(ground, &by_domains::<_, ByElement<u8>>()[way], root, [n, 1]);
            if n % 8 == 0 {
                let tiled = &by_domains::<_, Tiled<Bf16>>()[way];
                tells::<Tiled<Bf16>, Bf16>(ground, tiled, root, [n, 8]);
            }
        }
        // On the same channels, from where the others have left them.
        let one = Way("in one step", Simple::exchange::<_, ByPack<u8>>, 1);
        tells::<ByPack<u8>, u8>(ground, &one, root, [n, 1]);
    });
}

/// Two launches with fresh values: the root's output is the fold of all ranks' inputs, and nobody else's is touched.
fn folds<H: Becomes>(ground: &Ground, way: &Way<Reduce>, root: u32, n: usize) {
    let ranks = ground.ranks();
    let mut noise = Noise(u64::from(root) << 24 | n as u64);
    let mut outputs = vectors(ranks, n, || 0u32);
    let mut wanted = vec![0; n];
    for _ in 0..2 {
        let mut inputs = vectors(ranks, n, || noise.next() as u16);
        let raws = raws(&mut inputs, &mut outputs);
        ground.runs::<_, H>(way, Reduce { root }, [n, 1], &raws);
        for (k, old) in wanted.iter_mut().enumerate() {
            let folded = tree(0, ranks, &|rank| H::sent(inputs[rank as usize].all()[k]));
            *old = H::becomes(*old, folded);
        }
    }
    for (rank, got) in outputs.iter().enumerate() {
        let about = format!("{} of {n} to {root}, domains of {}, rank {rank}", way.0, ground.each);
        match rank == root as usize {
            true => assert_eq!(got.all(), wanted, "{about}"),
            false => assert!(got.all().iter().all(|value| *value == 0), "{about}"),
        }
    }
}

#[test]
fn contributions_come_to_the_root_in_the_order_of_the_tree() {
    every(|ground, root, n| {
        for way in 0..2 {
            folds::<Folding>(ground, &by_domains::<_, Folding>()[way], root, n);
            folds::<Settled>(ground, &by_domains::<_, Settled>()[way], root, n);
            folds::<Bytes>(ground, &by_domains::<_, Bytes>()[way], root, n);
        }
        folds::<Folding>(ground, &Way("in one step", Simple::exchange::<_, Folding>, 1), root, n);
    });
}

#[test]
fn what_comes_of_it_replaces_it_in_place() {
    every(|ground, root, n| {
        let ranks = ground.ranks();
        let mut noise = Noise(u64::from(root) << 24 | n as u64);
        let mut both = vectors(ranks, n, || noise.next() as u32);
        for way in 0..2 {
            let before: Vec<Vec<u32>> = both.iter().map(|both| both.all().to_vec()).collect();
            let place = |both: &mut Vec<super::Aligned<u32>>| -> Vec<Raw> {
                both.iter_mut().map(|b| b.raw()).map(|both| Raw { input: both, output: both }).collect()
            };
            let sums = place(&mut both);
            ground.runs::<_, Adds>(&by_domains::<_, Adds>()[way], Reduce { root }, [n, 1], &sums);
            let sum = |k: usize| before.iter().fold(0, |sum: u32, rank| sum.wrapping_add(rank[k]));
            for (rank, got) in both.iter().enumerate() {
                let at_root = rank == root as usize;
                let want = |k: usize| if at_root { sum(k) } else { before[rank][k] };
                assert!(got.all().iter().enumerate().all(|(k, got)| *got == want(k)), "{n} at rank {rank}");
            }
            let told = place(&mut both);
            ground.runs::<_, Stays>(&by_domains::<_, Stays>()[way], Broadcast { root }, [n, 1], &told);
            for (rank, got) in both.iter().enumerate() {
                let right = got.all().iter().enumerate().all(|(k, got)| *got == sum(k));
                assert!(right, "{n} elements from {root} at rank {rank}");
            }
            both = vectors(ranks, n, || noise.next() as u32);
        }
    });
}

folds_anew! {
    /// Takes its time to take what the fold comes to: who joins must wait for room.
    Slow,
    |ctx, args| args.input.pack(ctx),
    |ctx| if ctx.pos.is_multiple_of(128) {
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_root_that_is_slow_is_waited_for() {
    let ground = Ground::new(2, 2, 1);
    for way in by_domains::<_, Slow>() {
        (0..4).for_each(|root| folds::<Slow>(&ground, &way, root, 10_001));
    }
}
