//! Schedules of which every rank has a chunk: each crosses to another domain once.

use super::folding::{Becomes, Bytes, Folding, Settled, tree};
use super::hooks::{Aligned, Args, ByElement, ByPack, Raw, Tiled};
use super::world::Noise;
use super::{Ground, Way, by_domains};
use fusewire_device::{
    args::{InOut, Lent, Out, Packs},
    ctx::{Consume, Produce},
    element::{Bf16, Element},
    fold::{self, Contributions, Partials, Sum},
    hooks::{Hooks, consume_each, produce_each},
    launch::Unpack,
    pack::Pack,
    protocol::{Protocol, Simple},
    schedule::{AllGather, InPlace, ReduceScatter, Schedule},
};
use std::thread::sleep;
use std::time::Duration;

/// Sends words, and chains what calls bring, so that each element must be taken once. Says who it is from.
pub struct Chained;

/// Of the worlds here: hooks hear of no others, whatever a call uses.
pub const MOST_CHANNELS: usize = 2;

impl Hooks for Chained {
    type Args<'a> = Args<'a, u16, u32>;
    type Wire = u16;
    type Folded = u16;
    const UNROLL: usize = 2;
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<u16> {
        assert!(ctx.channel < MOST_CHANNELS);
        // Who passes on must wait for one that takes its time.
        if ctx.rank == 1 && ctx.pos % 512 == 256 {
            sleep(Duration::from_millis(1));
        }
        args.input.pack(ctx)
    }
    fn consume(ctx: &Consume, args: &Self::Args<'_>, value: Pack<u16>) {
        assert!(ctx.channel < MOST_CHANNELS);
        // And for one that has no room.
        if ctx.rank == 0 && ctx.pos.is_multiple_of(512) {
            sleep(Duration::from_millis(1));
        }
        consume_each(ctx, value, |ctx, value| {
            args.output.at(ctx).update(|old| chained(old, ctx.peer as u32, value));
        });
    }
}

unpack! { Chained }

pub fn chained(old: u32, from: u32, value: u16) -> u32 {
    old.wrapping_mul(31).wrapping_add(1 + from + 64 * u32::from(value))
}

/// Hooks that fold as [`Folding`], and put what it comes to in place of the output: the expressions are what `produce` gives and what `take` does first.
macro_rules! folds_anew {
    ($(#[$doc:meta])* $name:ident, |$produce:ident, $args:ident| $value:expr, |$take:ident| $first:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl Hooks for $name {
            type Args<'a> = Args<'a, u16, u32>;
            type Wire = u16;
            type Folded = u32;
            const UNROLL: usize = 1;
            const FOLDS: bool = true;
            const RELAYS: usize = Folding::RELAYS;
            const PARTIALS: usize = Folding::PARTIALS;
            fn produce($produce: &Produce, $args: &Self::Args<'_>) -> Pack<u16> {
                $value
            }
            fn consume(_: &Consume, _: &Self::Args<'_>, _: Pack<u16>) {
                unreachable!("nothing but the fold takes values");
            }
            fn partial(ranks: u32, of: &impl Contributions<u16>, put: &impl Fn(usize, [u32; 4])) -> bool {
                Folding::partial(ranks, of, put)
            }
            fn join(ranks: (u32, u32), of: &impl Partials, put: &impl Fn(usize, Pack<u32>)) {
                Folding::join(ranks, of, put);
            }
            fn take($take: &Consume, args: &Self::Args<'_>, folded: Pack<u32>) {
                $first;
                consume_each($take, folded, |ctx, value| args.output.at(ctx).set(value));
            }
        }

        unpack! { $name }

        impl Becomes for $name {
            fn becomes(_: u32, folded: u32) -> u32 {
                folded
            }
        }
    };
}
pub(super) use folds_anew;

folds_anew! {
    /// Writes whom each element is for into what it sends.
    Told,
    |ctx, args| produce_each(ctx, |ctx| told(args.input[ctx.index()], ctx.peer as u32)),
    |ctx| {}
}

fn told(value: u16, to: u32) -> u16 {
    value.wrapping_mul(64).wrapping_add(to as u16)
}

pub fn vectors<T: Element>(ranks: u32, len: usize, mut value: impl FnMut() -> T) -> Vec<Aligned<T>> {
    (0..ranks).map(|_| Aligned::new(len, |_| value())).collect()
}

pub fn raws<I: Element, O: Element>(inputs: &mut [Aligned<I>], outputs: &mut [Aligned<O>]) -> Vec<Raw> {
    inputs.iter_mut().zip(outputs).map(|(i, o)| Raw { input: i.raw(), output: o.raw() }).collect()
}

/// Every chunk as it is, of hooks that change nothing.
fn gathers<H: Unpack<Raw = Raw>, T: Element>(ground: &Ground, way: &Way<AllGather>, [n, rows]: [usize; 2]) {
    let ranks = ground.ranks();
    let mut noise = Noise(u64::from(ranks) << 21 | n as u64);
    let mut inputs = vectors(ranks, n, || T::from_bits64(noise.next()));
    let mut outputs = vectors(ranks, n * ranks as usize, || T::from_bits64(0));
    let raws = raws(&mut inputs, &mut outputs);
    ground.runs::<_, H>(way, AllGather, [n, rows], &raws);
    for (rank, output) in outputs.iter().enumerate() {
        for (at, got) in output.all().iter().enumerate() {
            let (from, k) = (at / n, at % n);
            let cols = n / rows;
            let k = if H::TRANSPOSED { k % cols * rows + k / cols } else { k };
            let want = inputs[from].all()[k];
            assert_eq!(
                got.to_bits64(),
                want.to_bits64(),
                "{} of {n}, domains of {}: element {at} of rank {rank} of {ranks}",
                way.0,
                ground.each
            );
        }
    }
}

/// Two launches of hooks that count, and see who it is from.
fn chains(ground: &Ground, way: &Way<AllGather>, n: usize) {
    let ranks = ground.ranks();
    let mut noise = Noise(u64::from(ranks) << 22 | n as u64);
    let mut outputs = vectors(ranks, n * ranks as usize, || 0u32);
    let mut wanted = vec![0; n * ranks as usize];
    for _ in 0..2 {
        let mut inputs = vectors(ranks, n, || noise.next() as u16);
        let raws = raws(&mut inputs, &mut outputs);
        ground.runs::<_, Chained>(way, AllGather, [n, 1], &raws);
        for (at, old) in wanted.iter_mut().enumerate() {
            *old = chained(*old, (at / n) as u32, inputs[at / n].all()[at % n]);
        }
    }
    for (rank, output) in outputs.iter().enumerate() {
        assert_eq!(output.all(), wanted, "{} of {n}, domains of {}, rank {rank}", way.0, ground.each);
    }
}

const SIZES: [usize; 6] = [0, 1, 16, 127, 1000, 2501];

/// Domains, ranks of each, and channels. Of eight domains a round is longer than a ring.
const WORLDS: [(u32, u32, u32); 6] = [(2, 2, 2), (4, 2, 1), (2, 4, 1), (3, 2, 2), (5, 4, 1), (8, 2, 1)];

#[test]
fn chunks_cross_once_and_reach_every_rank() {
    for (domains, each, channels) in WORLDS {
        let ground = Ground::new(domains, each, channels);
        for n in SIZES {
            for way in 0..2 {
                chains(&ground, &by_domains::<_, Chained>()[way], n);
                gathers::<ByPack<f32>, f32>(&ground, &by_domains::<_, ByPack<f32>>()[way], [n, 1]);
                gathers::<ByElement<u8>, u8>(&ground, &by_domains::<_, ByElement<u8>>()[way], [n, 1]);
                if n % 8 == 0 {
                    let tiled = &by_domains::<_, Tiled<Bf16>>()[way];
                    gathers::<Tiled<Bf16>, Bf16>(&ground, tiled, [n, 8]);
                }
            }
            // On the same channels, from where the others have left them.
            let one = Way("in one step", Simple::exchange::<_, ByPack<u8>>, 2);
            gathers::<ByPack<u8>, u8>(&ground, &one, [n, 1]);
        }
    }
}

/// Two launches with fresh values: each rank's output is the fold of all ranks' inputs for it. `told`: what is sent of an element to a rank.
fn scatters<H: Becomes>(ground: &Ground, way: &Way<ReduceScatter>, n: usize, told: impl Fn(u16, u32) -> u16) {
    let ranks = ground.ranks();
    let mut noise = Noise(u64::from(ranks) << 23 | n as u64);
    let mut outputs = vectors(ranks, n, || 0u32);
    let mut wanted = vec![vec![0; n]; ranks as usize];
    for _ in 0..2 {
        let mut inputs = vectors(ranks, n * ranks as usize, || noise.next() as u16);
        let raws = raws(&mut inputs, &mut outputs);
        ground.runs::<_, H>(way, ReduceScatter, [n, 1], &raws);
        for (to, wanted) in wanted.iter_mut().enumerate() {
            for (k, old) in wanted.iter_mut().enumerate() {
                let of = |rank: u32| H::sent(told(inputs[rank as usize].all()[to * n + k], to as u32));
                *old = H::becomes(*old, tree(0, ranks, &of));
            }
        }
    }
    for (rank, (got, wanted)) in outputs.iter().zip(wanted).enumerate() {
        assert_eq!(got.all(), wanted, "{} of {n}, domains of {}, rank {rank}", way.0, ground.each);
    }
}

#[test]
fn contributions_cross_folded_and_come_to_what_all_ranks_do() {
    let as_is = |value, _| value;
    for (domains, each, channels) in WORLDS {
        let ground = Ground::new(domains, each, channels);
        for n in SIZES {
            for way in 0..2 {
                scatters::<Folding>(&ground, &by_domains::<_, Folding>()[way], n, as_is);
                scatters::<Settled>(&ground, &by_domains::<_, Settled>()[way], n, as_is);
                scatters::<Bytes>(&ground, &by_domains::<_, Bytes>()[way], n, as_is);
                scatters::<Told>(&ground, &by_domains::<_, Told>()[way], n, told);
            }
            let one = Way("in one step", Simple::exchange::<_, Folding>, 2);
            scatters::<Folding>(&ground, &one, n, as_is);
        }
    }
}

/// What is there goes to all, or is added up, in one buffer. Both hooks read and write the element at hand alone.
macro_rules! in_one_buffer {
    ($name:ident { $($more:item)* }) => {
        pub struct $name;

        impl Hooks for $name {
            type Args<'a> = InOut<'a, u32>;
            type Wire = u32;
            type Folded = u32;
            const UNROLL: usize = 4;
            const IN_PLACE: bool = true;
            fn produce(ctx: &Produce, both: &Self::Args<'_>) -> Pack<u32> {
                assert!(ctx.channel < MOST_CHANNELS);
                both.pack(ctx)
            }
            fn consume(ctx: &Consume, both: &Self::Args<'_>, value: Pack<u32>) {
                both.at(ctx).set_pack(value);
            }
            $($more)*
        }

        // SAFETY: the tests make `Raw` from vectors that outlive the launch and are lent to it alone.
        unsafe impl Unpack for $name {
            type Raw = Raw;
            unsafe fn unpack<'a>(raw: &Raw) -> Self::Args<'a> {
                // SAFETY: as above.
                unsafe { InOut::from_raw(raw.output.of(), Lent::<'a>::named()) }
            }
        }
    };
}

in_one_buffer!(Stays {});
in_one_buffer!(Adds {
    const FOLDS: bool = true;
    const RELAYS: usize = 1;
    const PARTIALS: usize = 1;
    fn partial(ranks: u32, of: &impl Contributions<u32>, put: &impl Fn(usize, [u32; 4])) -> bool {
        fold::partial::<Sum<u32>, u32>(ranks, of, &|number, pack| put(number, pack.words()))
    }
    fn join(ranks: (u32, u32), of: &impl Partials, put: &impl Fn(usize, Pack<u32>)) {
        fold::join::<Sum<u32>, u32, u32>(ranks, of, |sum| sum, put);
    }
    fn take(ctx: &Consume, both: &Self::Args<'_>, folded: Pack<u32>) {
        both.at(ctx).set_pack(folded);
    }
});

/// One buffer, of which a rank's own chunk is what it sends or what it gets. `want`: what becomes of an element of a rank, or `None` of one that stays.
fn in_place<S: Schedule, H: Unpack<Raw = Raw>>(
    schedule: S,
    want: impl Fn(&[Vec<u32>], [usize; 2], usize) -> Option<u32>,
) {
    for (domains, each, channels) in WORLDS {
        let ground = Ground::new(domains, each, channels);
        let ranks = ground.ranks();
        for (n, way) in [1, 127, 1000].into_iter().flat_map(|n| by_domains::<_, H>().map(|way| (n, way))) {
            let mut noise = Noise(u64::from(ranks) << 24 | n as u64);
            let mut both = vectors(ranks, n * ranks as usize, || noise.next() as u32);
            let before: Vec<Vec<u32>> = both.iter().map(|both| both.all().to_vec()).collect();
            let raws: Vec<Raw> = both
                .iter_mut()
                .map(|both| both.raw())
                .map(|both| Raw { input: both, output: both })
                .collect();
            ground.runs::<_, H>(&way, InPlace(schedule), [n, 1], &raws);
            for (rank, both) in both.iter().enumerate() {
                for (at, got) in both.all().iter().enumerate() {
                    let want = want(&before, [rank, at / n], at).unwrap_or(before[rank][at]);
                    assert_eq!(*got, want, "{} {} of {n}, rank {rank} of {ranks}", S::NAME, way.0);
                }
            }
        }
    }
}

#[test]
fn what_is_sent_stays_in_place() {
    in_place::<_, Stays>(AllGather, |before, [_, chunk], at| Some(before[chunk][at]));
    in_place::<_, Adds>(ReduceScatter, |before, [rank, chunk], at| {
        (rank == chunk).then(|| before.iter().fold(0, |sum: u32, rank| sum.wrapping_add(rank[at])))
    });
}
