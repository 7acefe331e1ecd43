//! Schedules in which ranks send or receive the same chunk, over a world in plain memory, against a reference of a line.

#[macro_use]
#[path = "schedules/hooks.rs"]
#[allow(dead_code)]
mod hooks;
#[path = "schedules/folds.rs"]
#[allow(dead_code)]
mod folding;
#[path = "common/world.rs"]
mod world;

use folding::{AsIs, Becomes, Folding, tree};
use fusewire_device::{
    args::{Lent, Out, Packs},
    ctx::{Consume, Produce},
    element::{Bf16, Element},
    hooks::Hooks,
    launch::{Grid, Params, Shape, Unpack, share_packs},
    ops::{Direct, Ops},
    pack::Pack,
    protocol::{
        Bulk, Host, HostTwoShot, Ll, Ll128, Ll128TwoShot, Local, Protocol, Simple, Store, TwoShot, exchange,
    },
    schedule::{
        AllGather, AllReduce, Broadcast, First, Gather, Member, NOBODY, Reduce, ReduceScatter, Scatter,
        Schedule, Second,
    },
    wait::Flow,
};
use hooks::{Aligned, Args, ByElement, ByPack, Raw, Tiled};
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Noise, World};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Simple,
    Ll,
    Ll128,
    Local,
    Store,
    Bulk { first: u64 },
    Host,
    TwoShot,
    HostTwoShot,
    Ll128TwoShot,
}

#[derive(Clone, Copy)]
struct Launch {
    channels: u32,
    own: u32,
    rows: usize,
}

/// Blocks of a rank's grid: see `fusewire_device::protocol`.
fn blocks<S: Schedule>(way: Way, schedule: &S, me: Member, launch: Launch) -> u32 {
    let Launch { channels, own, .. } = launch;
    let (sends, receives) = (schedule.sends(me) > 0, schedule.receives(me) > 0);
    let own_chunk = schedule.own(me)[0] != NOBODY;
    let produces = sends || S::ONCE && own_chunk;
    let ends = (u32::from(produces) + u32::from(receives)) * channels;
    let legs = if S::ONCE && !matches!(way, Way::Bulk { .. }) || sends || receives { channels } else { 0 };
    match way {
        Way::Host | Way::HostTwoShot | Way::Ll128TwoShot => channels,
        Way::TwoShot => {
            let (first, second) = (First(*schedule), Second(*schedule));
            let kinds = [first.sends(me), first.receives(me), second.receives(me)];
            channels * kinds.into_iter().filter(|legs| *legs > 0).count() as u32
        }
        Way::Local => own,
        Way::Ll if S::FOLDS && S::MUTUAL => channels,
        Way::Simple | Way::Ll if S::FOLDS => (u32::from(sends) + u32::from(own_chunk)) * channels,
        Way::Simple if S::ONCE => ends,
        Way::Simple => ends + own,
        Way::Ll | Way::Ll128 if S::MUTUAL && (S::ONCE || S::FOLDS) => channels,
        Way::Ll | Way::Ll128 if S::MUTUAL => legs + own,
        Way::Ll | Way::Ll128 if S::ONCE => ends,
        Way::Ll | Way::Ll128 => ends + own,
        Way::Store if S::ONCE => legs,
        Way::Store | Way::Bulk { .. } => legs + own,
    }
}

/// The schedule as a rank knows it. Not a type of its own for each call: every protocol would be compiled for each.
type Of<'a, S> = &'a (dyn Fn(u32) -> S + Sync);

/// One launch on every rank.
fn launch<H, S>(world: &World, way: Way, launch: Launch, n: usize, of: Of<S>, raws: &[Raw])
where
    H: Unpack<Raw = Raw>,
    S: Schedule,
{
    let lanes = Pack::<H::Wire>::LANES;
    let packs = n.div_ceil(lanes) as u64;
    let table: Vec<u64> = raws.iter().map(|raw| raw.output.0).collect();
    let ranks = world.layout.world;
    let grids: Vec<u32> =
        (0..ranks).map(|rank| blocks(way, &of(rank), Member { rank, world: ranks }, launch)).collect();
    let flows = world.run(grids.iter().copied().max().unwrap(), |rank, grid| {
        let own = rank as usize;
        if grid.block >= grids[own] {
            return Ok(());
        }
        let (first, raw) = (if let Way::Bulk { first } = way { first } else { 0 }, raws[own]);
        let shape = Shape {
            elements: n as u64,
            rows: launch.rows as u64,
            cols: (n / launch.rows) as u64,
            // What was folded takes twice as much, and a ring holds four turns.
            chunk: if matches!(way, Way::TwoShot | Way::HostTwoShot) { 256 } else { 384 },
            kernel: 42,
            share: share_packs(packs, launch.channels),
            own_share: share_packs(if first > 0 { first } else { packs }, launch.own),
            first,
            outputs: table.as_ptr() as u64,
            output_offset: 0,
            input: raw.input.0,
            tiles: 0,
            channels: launch.channels,
            self_copy: match way {
                Way::Local | Way::Bulk { .. } => launch.own,
                _ if S::FOLDS || S::ONCE => 0,
                _ => launch.own,
            },
            flags: 0,
            allocation: 0,
            cut: 0,
        };
        let (ops, control, schedule) = (world.ops(rank), world.control(rank, 3_000), of(rank));
        let params = Params { ops, control, shape: shape.name_cut(0, 0, None), raw, schedule };
        let grid = Grid { blocks: grids[own], ..grid };
        // SAFETY: every block of the grid runs it, with slices of as many chunks as the schedule says.
        unsafe { exchanged::<_, S, H>(way, grid, &params) }
    });
    for rank in 0..ranks {
        assert!(
            flows[rank as usize].iter().all(|flow| flow.is_ok()),
            "{way:?}, {}, {n}, rank {rank} of {ranks}: {:?}",
            S::NAME,
            world.record(rank)
        );
    }
}

/// A block of a launch. What a schedule is never asked to do here is not compiled for it.
unsafe fn exchanged<O: Direct, S: Schedule, H: Unpack<Raw = Raw>>(
    way: Way,
    grid: Grid,
    params: &Params<O, S, Raw>,
) -> Flow {
    // SAFETY: the caller's contract.
    unsafe {
        match way {
            Way::Simple => exchange::<_, Simple, _, H>(grid, params),
            Way::Ll => exchange::<_, Ll, _, H>(grid, params),
            Way::Local => exchange::<_, Local, _, H>(grid, params),
            Way::Ll128 => exchange::<_, Ll128, _, H>(grid, params),
            Way::Host => exchange::<_, Host, _, H>(grid, params),
            _ => {
                if const { !S::FOLDS } {
                    match way {
                        Way::Store => return exchange::<_, Store, _, H>(grid, params),
                        Way::Bulk { .. } => return exchange::<_, Bulk, _, H>(grid, params),
                        _ => {}
                    }
                }
                // For no other schedule.
                if const { S::FOLDS && S::MUTUAL } && way == Way::Ll128TwoShot {
                    return Ll128TwoShot::exchange::<AllReduce, H>(grid, &with(params, AllReduce));
                }
                match way {
                    Way::HostTwoShot => in_two_steps::<HostTwoShot, _, _, H>(grid, params),
                    _ => in_two_steps::<TwoShot, _, _, H>(grid, params),
                }
            }
        }
    }
}

/// A launch of a schedule of two steps, as which it is known here.
unsafe fn in_two_steps<P: Protocol<O>, O: Ops, S: Schedule, H: Unpack<Raw = Raw>>(
    grid: Grid,
    params: &Params<O, S, Raw>,
) -> Flow {
    let root = params.schedule.root();
    // SAFETY: the caller's contract.
    unsafe {
        if const { S::FOLDS && S::MUTUAL } {
            return P::exchange::<_, H>(grid, &with(params, AllReduce));
        }
        if const { S::FOLDS && !S::MUTUAL } {
            return P::exchange::<_, H>(grid, &with(params, Reduce { root: root.unwrap() }));
        }
        if const { S::ONCE && !S::MUTUAL } {
            return P::exchange::<_, H>(grid, &with(params, Broadcast { root: root.unwrap() }));
        }
    }
    unreachable!("{} has one step", S::NAME)
}

/// The same launch of a schedule by another name.
fn with<O: Copy, S, T, R: Copy>(params: &Params<O, S, R>, schedule: T) -> Params<O, T, R> {
    let Params { ops, control, shape, raw, .. } = *params;
    Params { ops, control, shape, raw, schedule }
}

/// Launches with fresh values, and compares: chunk `c` of rank `to` is what `from(to, c)` names, a rank and a chunk of its input.
fn runs<H: Unpack<Raw = Raw>, T: Element, S: Schedule>(
    world: &World,
    way: Way,
    geometry: Launch,
    n: usize,
    of: Of<S>,
    from: impl Fn(u32, u32) -> (u32, u32),
) {
    let ranks = world.layout.world;
    let mut noise = Noise(u64::from(ranks) << 20 | n as u64);
    let chunks = |rank: u32| of(rank).chunks(Member { rank, world: ranks });
    let mut make = |chunks: u32| Aligned::new(chunks as usize * n, |_| T::from_bits64(noise.next()));
    let mut inputs: Vec<Aligned<T>> = (0..ranks).map(|rank| make(chunks(rank)[0])).collect();
    let mut outputs: Vec<Aligned<T>> = (0..ranks).map(|rank| make(chunks(rank)[1])).collect();
    let raws: Vec<Raw> =
        inputs.iter_mut().zip(&mut outputs).map(|(i, o)| Raw { input: i.raw(), output: o.raw() }).collect();
    launch::<H, S>(world, way, geometry, n, of, &raws);
    for to in 0..ranks {
        for chunk in 0..chunks(to)[1] {
            let (rank, sent) = from(to, chunk);
            for k in 0..n {
                // As the input is read where hooks transpose.
                let (rows, cols) = (geometry.rows, n / geometry.rows);
                let at = if H::TRANSPOSED { k % cols * rows + k / cols } else { k };
                let got = outputs[to as usize].all()[chunk as usize * n + k].to_bits64();
                let want = inputs[rank as usize].all()[sent as usize * n + at].to_bits64();
                assert_eq!(
                    got,
                    want,
                    "{way:?}, {} of {n} x {}, {ranks} ranks: chunk {chunk} of rank {to}, element {k}",
                    S::NAME,
                    T::NAME
                );
            }
        }
    }
}

const SIZES: [usize; 7] = [0, 1, 3, 16, 127, 1000, 2501];

fn everything<H: Unpack<Raw = Raw>, T: Element>(ranks: u32, geometry: Launch) {
    // In turn on one world: each leaves lines and positions from which the others go on.
    let world = World::new(ranks, geometry.channels.max(geometry.own), 2048);
    for n in SIZES.into_iter().filter(|n| n.is_multiple_of(geometry.rows)) {
        for way in [Way::Simple, Way::Ll, Way::Ll128, Way::Store, Way::Host] {
            runs::<H, T, _>(&world, way, geometry, n, &|_| AllGather, |_, chunk| (chunk, 0));
        }
        for (way, root) in
            [Way::Simple, Way::Ll128, Way::Host, Way::Ll, Way::Ll].into_iter().zip((0..ranks).cycle())
        {
            runs::<H, T, _>(&world, way, geometry, n, &|_| Broadcast { root }, |_, _| (root, 0));
            runs::<H, T, _>(&world, way, geometry, n, &|_| Scatter { root }, |to, _| (root, to));
            runs::<H, T, _>(&world, way, geometry, n, &|_| Gather { root }, |_, chunk| (chunk, 0));
        }
        for root in (0..ranks).filter(|_| ranks > 2) {
            for way in [Way::TwoShot, Way::HostTwoShot] {
                runs::<H, T, _>(&world, way, geometry, n, &|_| Broadcast { root }, |_, _| (root, 0));
            }
        }
    }
}

const GEOMETRIES: [(u32, u32, u32); 5] = [(1, 1, 2), (2, 3, 1), (3, 2, 1), (4, 1, 2), (5, 2, 1)];

#[test]
fn packs_reach_every_rank() {
    for (ranks, channels, own) in GEOMETRIES {
        let geometry = Launch { channels, own, rows: 1 };
        everything::<ByPack<f32>, f32>(ranks, geometry);
        everything::<ByPack<u8>, u8>(ranks, geometry);
    }
}

#[test]
fn elements_reach_every_rank() {
    for (ranks, channels, own) in GEOMETRIES {
        everything::<ByElement<u16>, u16>(ranks, Launch { channels, own, rows: 1 });
    }
}

#[test]
fn tiles_reach_every_rank() {
    for (ranks, channels, own) in GEOMETRIES {
        everything::<Tiled<Bf16>, Bf16>(ranks, Launch { channels, own, rows: 8 });
    }
}

#[test]
fn bulk_copies_reach_every_rank() {
    for (ranks, channels, own) in GEOMETRIES {
        let world = World::new(ranks, channels.max(own), 2048);
        for packs in [0usize, 1, 25, 241] {
            for first in [0, packs as u64 / 3] {
                let (way, geometry) = (Way::Bulk { first }, Launch { channels, own, rows: 1 });
                runs::<ByPack<f32>, f32, _>(&world, way, geometry, 4 * packs, &|_| AllGather, |_, c| (c, 0));
            }
        }
    }
}

/// Two launches with fresh values: chunk 0 of each rank's output is the fold of chunk `part(rank)` of all ranks' inputs.
fn folds<H: Becomes, S: Schedule>(
    world: &World,
    way: Way,
    geometry: Launch,
    n: usize,
    of: Of<S>,
    part: impl Fn(u32) -> usize,
) {
    let ranks = world.layout.world;
    let mut noise = Noise(u64::from(ranks) << 24 | n as u64);
    let chunks = |rank: u32| of(rank).chunks(Member { rank, world: ranks }).map(|chunks| chunks as usize);
    let mut outputs: Vec<Aligned<u32>> =
        (0..ranks).map(|rank| Aligned::new(chunks(rank)[1] * n, |_| 0)).collect();
    let mut wanted: Vec<Vec<u32>> = (0..ranks).map(|rank| vec![0; chunks(rank)[1] * n]).collect();
    for _ in 0..2 {
        let mut make = |chunks: usize| Aligned::new(chunks * n, |_| noise.next() as u16);
        let mut inputs: Vec<Aligned<u16>> = (0..ranks).map(|rank| make(chunks(rank)[0])).collect();
        let raws: Vec<Raw> = inputs
            .iter_mut()
            .zip(&mut outputs)
            .map(|(i, o)| Raw { input: i.raw(), output: o.raw() })
            .collect();
        launch::<H, S>(world, way, geometry, n, of, &raws);
        for (rank, wanted) in wanted.iter_mut().enumerate() {
            let at = part(rank as u32) * n;
            for (k, old) in wanted.iter_mut().enumerate() {
                let folded = tree(0, ranks, &|rank| inputs[rank as usize].all()[at + k]);
                *old = H::becomes(*old, folded);
            }
        }
    }
    for (rank, (got, wanted)) in outputs.iter().zip(&wanted).enumerate() {
        assert_eq!(got.all(), wanted, "{way:?}, {} of {n}, rank {rank} of {ranks}", S::NAME);
    }
}

#[test]
fn a_rank_alone_does_it_all() {
    for own in [1, 3] {
        let (world, geometry) = (World::new(1, own, 2048), Launch { channels: 1, own, rows: 1 });
        for n in SIZES {
            runs::<ByPack<u32>, u32, _>(&world, Way::Local, geometry, n, &|_| AllGather, |_, _| (0, 0));
            runs::<ByElement<u64>, u64, _>(
                &world,
                Way::Local,
                geometry,
                n,
                &|_| Scatter { root: 0 },
                |_, _| (0, 0),
            );
            folds::<Folding, _>(&world, Way::Local, geometry, n, &|_| ReduceScatter, |_| 0);
            folds::<Folding, _>(&world, Way::Local, geometry, n, &|_| AllReduce, |_| 0);
        }
        let tiles = Launch { rows: 10, ..geometry };
        runs::<Tiled<f32>, f32, _>(&world, Way::Local, tiles, 700, &|_| AllGather, |_, _| (0, 0));
    }
}

/// Everything that folds, one way; and by two steps, if `twice` is theirs.
fn all_folds<H: Becomes>(world: &World, way: Way, twice: Option<Way>, geometry: Launch, n: usize) {
    let ranks = world.layout.world;
    folds::<H, _>(world, way, geometry, n, &|_| ReduceScatter, |rank| rank as usize);
    folds::<H, _>(world, way, geometry, n, &|_| AllReduce, |_| 0);
    if let Some(twice) = twice.filter(|_| ranks > 1) {
        folds::<H, _>(world, twice, geometry, n, &|_| AllReduce, |_| 0);
    }
    for root in [0, ranks - 1] {
        folds::<H, _>(world, way, geometry, n, &|_| Reduce { root }, |_| 0);
        if let Some(twice) = twice.filter(|_| ranks > 2) {
            folds::<H, _>(world, twice, geometry, n, &|_| Reduce { root }, |_| 0);
        }
    }
}

#[test]
fn every_contribution_is_folded_in_its_place() {
    // With one channel two ranks have more rows than they fold at once.
    for (ranks, channels, own) in GEOMETRIES.into_iter().chain([(2, 1, 1), (9, 1, 1)]) {
        let geometry = Launch { channels, own, rows: 1 };
        let world = World::new(ranks, (2 * channels).max(own), 2048);
        for n in SIZES.into_iter().chain([1504]) {
            folds::<Folding, _>(&world, Way::Ll128, geometry, n, &|_| ReduceScatter, |rank| rank as usize);
            folds::<Folding, _>(&world, Way::Ll128, geometry, n, &|_| AllReduce, |_| 0);
            if ranks > 1 {
                folds::<Folding, _>(&world, Way::Ll128TwoShot, geometry, n, &|_| AllReduce, |_| 0);
            }
            all_folds::<Folding>(&world, Way::Simple, Some(Way::TwoShot), geometry, n);
            all_folds::<Folding>(&world, Way::Ll, None, geometry, n);
            all_folds::<Folding>(&world, Way::Host, Some(Way::HostTwoShot), geometry, n);
            all_folds::<AsIs>(&world, Way::Host, Some(Way::HostTwoShot), geometry, n);
        }
    }
}

static PRODUCED: AtomicU64 = AtomicU64::new(0);

/// Counts the elements that it is asked for.
struct Counted;

impl Hooks for Counted {
    type Args<'a> = Args<'a, u32, u32>;
    type Wire = u32;
    type Folded = u32;
    const UNROLL: usize = 4;
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<u32> {
        assert_eq!(ctx.peer, ctx.rank);
        PRODUCED.fetch_add(ctx.valid as u64, Ordering::Relaxed);
        args.input.pack(ctx)
    }
    fn consume(ctx: &Consume, args: &Self::Args<'_>, value: Pack<u32>) {
        args.output.at(ctx).set_pack(value);
    }
}

unpack! { Counted }

/// Whatever the number of peers.
#[test]
fn each_element_is_produced_once() {
    for (ranks, channels, own) in GEOMETRIES {
        let (world, geometry) =
            (World::new(ranks, channels.max(own), 2048), Launch { channels, own, rows: 1 });
        for n in SIZES {
            let produced = |by: u64, about: &str| {
                let found = PRODUCED.swap(0, Ordering::Relaxed);
                assert_eq!(found, by * n as u64, "{about}, {n} elements, {ranks} ranks");
            };
            for way in [Way::Simple, Way::Ll, Way::Ll128, Way::Store, Way::Host] {
                runs::<Counted, u32, _>(&world, way, geometry, n, &|_| AllGather, |_, chunk| (chunk, 0));
                produced(u64::from(ranks), "all_gather");
            }
            for way in [Way::Simple, Way::Ll, Way::Ll128, Way::Host] {
                runs::<Counted, u32, _>(&world, way, geometry, n, &|_| Broadcast { root: 0 }, |_, _| (0, 0));
                produced(1, "broadcast");
            }
        }
    }
}
