//! The shipped schedules over a world in plain memory, against references of a few lines.

#[path = "schedules/hooks.rs"]
mod hooks;
#[path = "common/world.rs"]
mod world;

use fusewire_device::{
    args::{Lent, Out},
    ctx::{Consume, Produce},
    element::{Bf16, Element, F8E4M3, Float},
    hooks::{Hooks, consume_each},
    launch::{Grid, Params, Shape, Unpack, share_packs},
    pack::Pack,
    protocol::simple::channel::CUT,
    protocol::{Bulk, Ll, Ll128, Simple, Store, exchange, ll},
    schedule::{AllToAll, NOBODY, SendRecv},
    tile::transpose as tiles,
    wait::{Flow, kind, operation},
};
use hooks::{Aligned, Any, Args, ByElement, ByPack, Halved, Narrow, Raw, Tiled};
use world::{Noise, Peers, World};

#[derive(Clone, Copy)]
struct Launch {
    channels: u32,
    self_copy: u32,
    chunk: u64,
    /// Rows of a chunk, where it has a shape.
    rows: usize,
}

/// A block of an all-to-all.
type Block<'a> = dyn Fn(Grid, &Params<Peers, AllToAll, Raw>) -> Flow + Sync + 'a;

const DEADLINE_MS: u64 = 30_000;

fn shape(elements: usize, lanes: usize, launch: Launch) -> Shape {
    let Launch { channels, self_copy, chunk, rows } = launch;
    let (n, packs) = (elements as u64, elements.div_ceil(lanes) as u64);
    let cols = elements / rows;
    // Rows that are not whole packs go in the chunk's order.
    let whole = cols.is_multiple_of(lanes);
    let tiles = if whole {
        rows.div_ceil(tiles::ROWS as usize) * cols.div_ceil(tiles::ACROSS as usize * lanes)
    } else {
        0
    };
    let shape = Shape {
        elements: n,
        rows: rows as u64,
        cols: cols as u64,
        chunk,
        kernel: 42,
        share: share_packs(packs, channels),
        own_share: share_packs(packs, self_copy),
        first: 0,
        outputs: 0,
        output_offset: 0,
        input: 0,
        tiles: tiles as u64,
        channels,
        self_copy,
        flags: 0,
        allocation: 0,
        cut: 0,
    };
    shape.name_cut(0, 0, None)
}

/// One `all_to_all` on every rank: inputs and outputs by rank.
fn all_to_all<H, I, O>(
    world: &World,
    way: Way,
    launch: Launch,
    n: usize,
    inputs: &mut [Aligned<I>],
    outputs: &mut [Aligned<O>],
) where
    H: Unpack<Raw = Raw>,
    I: Element,
    O: Element,
{
    let raws: Vec<Raw> =
        inputs.iter_mut().zip(outputs).map(|(i, o)| Raw { input: i.raw(), output: o.raw() }).collect();
    let ends = if world.layout.world == 1 { 0 } else { launch.channels };
    let lanes = Pack::<H::Wire>::LANES;
    let run = |blocks: u32, kernel: &Block<'_>, outputs: u64| {
        let flows = world.run(blocks, |rank, grid| {
            let (ops, control) = (world.ops(rank), world.control(rank, DEADLINE_MS));
            let shape = Shape { outputs, ..shape(n, lanes, launch) };
            kernel(grid, &Params { ops, control, shape, raw: raws[rank as usize], schedule: AllToAll })
        });
        assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{:?}", world.record(0));
    };
    // SAFETY: every block of the grid runs it with slices made above, and outputs that hold every chunk.
    unsafe {
        match way {
            Way::Simple => run(2 * ends + launch.self_copy, &|g, p| exchange::<_, Simple, _, H>(g, p), 0),
            Way::Shared => {
                // As many as peers, or fewer, evenly or not.
                let ends = ends * (world.layout.world - 1).min(3);
                run(2 * ends + launch.self_copy, &|g, p| exchange::<_, Simple, _, H>(g, p), 0);
            }
            Way::Ll128 => run(ends + launch.self_copy, &|g, p| exchange::<_, Ll128, _, H>(g, p), 0),
            Way::Ll => run(ends + launch.self_copy, &|g, p| exchange::<_, Ll, _, H>(g, p), 0),
            Way::Bulk { first } => {
                let table: Vec<u64> = raws.iter().map(|raw| raw.output.0).collect();
                let bulk = |grid: Grid, params: &Params<Peers, AllToAll, Raw>| {
                    let own_share = share_packs(first, launch.self_copy);
                    let shape = Shape { first, own_share, input: params.raw.input.0, ..params.shape };
                    exchange::<_, Bulk, _, H>(grid, &Params { shape, ..*params })
                };
                run(ends + launch.self_copy, &bulk, table.as_ptr() as u64);
            }
            Way::Direct => {
                let table: Vec<u64> = raws.iter().map(|raw| raw.output.0).collect();
                let direct = |g: Grid, p: &Params<Peers, AllToAll, Raw>| exchange::<_, Store, _, H>(g, p);
                run(ends + launch.self_copy, &direct, table.as_ptr() as u64);
            }
        }
    }
}

/// How the bytes of a test travel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Simple,
    /// Staged, by several blocks at each end of a channel.
    Shared,
    Ll128,
    Ll,
    Direct,
    /// By bulk copies, but for so many packs that each chunk begins with: those go in lines.
    Bulk {
        first: u64,
    },
}

const WAYS: [Way; 5] = [Way::Simple, Way::Direct, Way::Shared, Way::Ll128, Way::Ll];
const SIZES: [usize; 8] = [0, 1, 3, 16, 127, 128, 1000, 2501];

fn all_to_all_is_a_transpose<H: Unpack<Raw = Raw>, T: Element>(ranks: u32, launch: Launch) {
    let world = World::new(ranks, launch.channels, 2048);
    let mut noise = Noise(u64::from(ranks) << 8 | T::CODE);
    // In turn on one world: each leaves lines and positions from which the others go on.
    for (way, n) in SIZES.into_iter().flat_map(|n| WAYS.map(|way| (way, n))) {
        let total = ranks as usize * n;
        let make = |noise: &mut Noise| Aligned::new(total, |_| T::from_bits64(noise.next()));
        let mut inputs: Vec<Aligned<T>> = (0..ranks).map(|_| make(&mut noise)).collect();
        let mut outputs: Vec<Aligned<T>> = (0..ranks).map(|_| make(&mut noise)).collect();
        all_to_all::<H, T, T>(&world, way, launch, n, &mut inputs, &mut outputs);
        is_a_transpose(&inputs, &outputs, n, &format!("{way:?}"));
    }
}

fn is_a_transpose<T: Element>(inputs: &[Aligned<T>], outputs: &[Aligned<T>], n: usize, about: &str) {
    let ranks = inputs.len();
    for (to, output) in outputs.iter().enumerate() {
        for (from, input) in inputs.iter().enumerate() {
            for k in 0..n {
                let (got, want) = (output.all()[from * n + k], input.all()[to * n + k]);
                let (got, want) = (got.to_bits64(), want.to_bits64());
                assert_eq!(
                    got,
                    want,
                    "{about}, {ranks} ranks, {n} x {}: {from} to {to}, element {k}",
                    T::NAME
                );
            }
        }
    }
}

#[test]
fn what_bulk_copies_begin_with_goes_in_lines() {
    for (ranks, channels, self_copy) in [(1, 1, 2), (2, 3, 1), (2, 2, 3), (3, 1, 2), (5, 2, 1)] {
        let launch = Launch { channels, self_copy, chunk: 384, rows: 1 };
        let world = World::new(ranks, channels.max(self_copy), 2048);
        let mut noise = Noise(u64::from(ranks));
        for packs in [0, 1, 8, 25, 241, 1000u64] {
            // Lines of other calls come in between.
            let ways = [0, 1, packs / 3, packs].map(|first| Way::Bulk { first: first.min(packs) });
            for way in ways.into_iter().chain([Way::Ll128]) {
                let n = 4 * packs as usize;
                let mut make = || Aligned::new(ranks as usize * n, |_| f32::from_bits64(noise.next()));
                let mut inputs: Vec<_> = (0..ranks).map(|_| make()).collect();
                let mut outputs: Vec<_> = (0..ranks).map(|_| make()).collect();
                all_to_all::<ByPack<f32>, _, _>(&world, way, launch, n, &mut inputs, &mut outputs);
                is_a_transpose(&inputs, &outputs, n, &format!("{way:?}"));
            }
        }
    }
}

/// One of them would wait for lines that the other does not send, and that one would miss what it did not get.
#[test]
fn ranks_that_send_other_parts_in_lines_are_told() {
    others_are_told([(24, 24), (0, 0)], 1);
    // As many, but to two blocks, and to three: rows would be taken for others.
    others_are_told([(24, 16), (24, 8)], 3);
}

/// Whether what the ranks left behind says that they cut chunks of `bytes` in different ways: as channels name their calls, by the whole
/// chunk or by a share.
fn cuts_are_told(world: &World, bytes: Option<u64>) {
    let records = [0, 1].map(|rank| world.record(rank));
    let told = records.iter().find(|r| r.kind == kind::MISMATCH).unwrap_or_else(|| panic!("{records:?}"));
    assert_eq!(told.operation, operation::HEADER, "{told:?}");
    assert_ne!(told.expected / CUT, told.seen / CUT, "{told:?}");
    if let Some(bytes) = bytes {
        assert_eq!([told.expected % CUT, told.seen % CUT], [bytes; 2]);
    }
}

/// A pack that one rank takes for another's place would be wrong data without a fault. With staging and 40 packs, channel 2 of three has as
/// many as channel 1 of two.
#[test]
fn ranks_that_cut_chunks_otherwise_are_told() {
    let ways =
        [Way::Simple, Way::Ll, Way::Ll128, Way::Direct, Way::Bulk { first: 0 }, Way::Bulk { first: 24 }];
    for way in ways {
        for channels in [[2, 3], [3, 2], [1, 2]] {
            let (n, world) = (160, World::new(2, 3, 2048));
            let mut vectors: Vec<Aligned<f32>> = (0..4).map(|_| Aligned::new(2 * n, |k| k as f32)).collect();
            let raws: Vec<Any> = vectors.iter_mut().map(Aligned::raw).collect();
            let table = [raws[2].0, raws[3].0];
            let launch = |own: usize| Launch { channels: channels[own], self_copy: 1, chunk: 384, rows: 1 };
            let flows = world.run(7, |rank, grid| {
                let (ops, control, own) = (world.ops(rank), world.control(rank, 2000), rank as usize);
                let first = if let Way::Bulk { first } = way { first } else { 0 };
                let (outputs, input) = (table.as_ptr() as u64, raws[own].0);
                let given = shape(n, 4, launch(own));
                let own_share = if first > 0 { first } else { given.own_share };
                let shape = Shape { first, own_share, outputs, input, ..given }.name_cut(0, 0, None);
                let params = Params {
                    ops,
                    control,
                    shape,
                    raw: Raw { input: raws[own], output: raws[2 + own] },
                    schedule: AllToAll,
                };
                let (staged, blocks) = (matches!(way, Way::Simple), channels[own]);
                let blocks = if staged { 2 * blocks + 1 } else { blocks + 1 };
                if grid.block >= blocks {
                    return Ok(());
                }
                let grid = Grid { blocks, ..grid };
                // SAFETY: all blocks run it, with slices of two chunks.
                unsafe {
                    match way {
                        Way::Simple | Way::Shared => exchange::<_, Simple, _, ByPack<f32>>(grid, &params),
                        Way::Ll => exchange::<_, Ll, _, ByPack<f32>>(grid, &params),
                        Way::Ll128 => exchange::<_, Ll128, _, ByPack<f32>>(grid, &params),
                        Way::Direct => exchange::<_, Store, _, ByPack<f32>>(grid, &params),
                        Way::Bulk { .. } => exchange::<_, Bulk, _, ByPack<f32>>(grid, &params),
                    }
                }
            });
            for rank in flows {
                assert!(rank.iter().any(|flow| flow.is_err()), "{way:?}, {channels:?}: a rank ended well");
            }
            cuts_are_told(&world, (!matches!(way, Way::Simple)).then_some(640));
        }
    }
}

/// Both ranks name how many packs go in lines, and how many of them with a block.
fn others_are_told(parts: [(u64, u64); 2], blocks: u32) {
    let (n, world) = (400, World::new(2, blocks, 2048));
    let mut vectors: Vec<Aligned<f32>> = (0..4).map(|_| Aligned::new(2 * n, |k| k as f32)).collect();
    let raws: Vec<Any> = vectors.iter_mut().map(Aligned::raw).collect();
    let table = [raws[2].0, raws[3].0];
    let launch = Launch { channels: 1, self_copy: blocks, chunk: 384, rows: 1 };
    let flows = world.run(1 + blocks, |rank, grid| {
        let (ops, control, own) = (world.ops(rank), world.control(rank, DEADLINE_MS), rank as usize);
        let (first, own_share) = parts[own];
        let (outputs, input) = (table.as_ptr() as u64, raws[own].0);
        let shape = Shape { first, own_share, outputs, input, ..shape(n, 4, launch) }.name_cut(0, 0, None);
        let raw = Raw { input: raws[own], output: raws[2 + own] };
        // SAFETY: all blocks run it, with slices of two chunks.
        unsafe {
            exchange::<_, Bulk, _, ByPack<f32>>(
                grid,
                &Params { ops, control, shape, raw, schedule: AllToAll },
            )
        }
    });
    assert!(flows.iter().flatten().any(|flow| flow.is_err()));
    cuts_are_told(&world, Some(1600));
}

#[test]
fn packs_reach_every_rank() {
    for (ranks, channels, self_copy, chunk) in
        [(1, 1, 2, 512), (2, 1, 1, 128), (2, 3, 2, 512), (3, 2, 1, 384), (5, 2, 1, 512), (8, 1, 1, 256)]
    {
        let launch = Launch { channels, self_copy, chunk, rows: 1 };
        all_to_all_is_a_transpose::<ByPack<u8>, u8>(ranks, launch);
        all_to_all_is_a_transpose::<ByPack<Bf16>, Bf16>(ranks, launch);
        all_to_all_is_a_transpose::<ByPack<f32>, f32>(ranks, launch);
        all_to_all_is_a_transpose::<ByPack<u64>, u64>(ranks, launch);
    }
}

#[test]
fn elements_reach_every_rank() {
    for (ranks, channels, self_copy, chunk) in
        [(1, 1, 1, 512), (2, 2, 1, 256), (3, 1, 3, 512), (5, 1, 1, 384)]
    {
        let launch = Launch { channels, self_copy, chunk, rows: 1 };
        all_to_all_is_a_transpose::<ByElement<F8E4M3>, F8E4M3>(ranks, launch);
        all_to_all_is_a_transpose::<ByElement<i16>, i16>(ranks, launch);
        all_to_all_is_a_transpose::<ByElement<u32>, u32>(ranks, launch);
        all_to_all_is_a_transpose::<ByElement<f64>, f64>(ranks, launch);
    }
}

#[test]
fn wires_of_half_the_width() {
    let (ranks, launch) = (2usize, Launch { channels: 2, self_copy: 2, chunk: 256, rows: 1 });
    let world = World::new(2, 2, 1024);
    let value = |rank: usize, k: usize| Bf16::from_f32(((rank * 31 + k) % 29) as f32 / 4.0 - 3.0);
    for n in [1, 7, 8, 9, 15, 16, 17, 31, 500] {
        let mut inputs: Vec<_> = (0..ranks).map(|r| Aligned::new(ranks * n, |k| value(r, k))).collect();
        let mut outputs: Vec<_> =
            (0..ranks).map(|_| Aligned::new(ranks * n, |_| Bf16::from_f32(99.0))).collect();
        all_to_all::<Halved, Bf16, Bf16>(&world, Way::Simple, launch, n, &mut inputs, &mut outputs);
        for (to, output) in outputs.iter().enumerate() {
            for (from, k) in (0..ranks).flat_map(|from| (0..n).map(move |k| (from, k))) {
                let want = F8E4M3::from_f32(value(from, to * n + k).to_f32()).to_f32();
                assert_eq!(output.all()[from * n + k].to_f32(), want, "{n}: {from} to {to}, {k}");
            }
        }
    }
}

fn tiles_transpose<T: Element>(ranks: u32, way: Way, (rows, cols): (usize, usize)) {
    let launch = Launch { channels: 2, self_copy: 3, chunk: 512, rows };
    let world = World::new(ranks, 2, 2048);
    let (n, mut noise) = (rows * cols, Noise(u64::from(ranks) << 8 | T::CODE));
    let share = share_packs(n.div_ceil(Pack::<T>::LANES) as u64, launch.channels);
    if way == Way::Ll && share > ll::PACKS {
        return;
    }
    let mut make = || {
        let all = 0..ranks;
        all.map(|_| Aligned::new(ranks as usize * n, |_| T::from_bits64(noise.next()))).collect::<Vec<_>>()
    };
    let (mut inputs, mut outputs) = (make(), make());
    all_to_all::<Tiled<T>, T, T>(&world, way, launch, n, &mut inputs, &mut outputs);
    for (to, output) in outputs.iter().enumerate() {
        for (from, input) in inputs.iter().enumerate() {
            for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                let got = output.all()[from * n + row * cols + col].to_bits64();
                let want = input.all()[to * n + col * rows + row].to_bits64();
                let about = format!("{way:?}, {ranks} ranks, {rows} x {cols} of {}", T::NAME);
                assert_eq!(got, want, "{about}: {from} to {to}, row {row}, column {col}");
            }
        }
    }
}

#[test]
fn transposed_chunks_reach_every_rank() {
    for way in WAYS {
        for (ranks, shape) in [
            (1, (40, 70)),
            (2, (1, 5)),
            (2, (33, 64)),
            (3, (7, 131)),
            (5, (70, 3)),
            (2, (100, 304)),
            (4, (8, 32)),
        ] {
            tiles_transpose::<u8>(ranks, way, shape);
            tiles_transpose::<Bf16>(ranks, way, shape);
            tiles_transpose::<f32>(ranks, way, shape);
            tiles_transpose::<u64>(ranks, way, shape);
        }
    }
}

#[test]
fn narrow_wires_accumulate() {
    let (ranks, n, launch) = (3usize, 517, Launch { channels: 2, self_copy: 2, chunk: 256, rows: 1 });
    let world = World::new(3, 2, 1024);
    let value = |rank: usize, k: usize| ((rank * 31 + k) % 17) as f32 / 4.0 - 2.0;
    let mut inputs: Vec<_> = (0..ranks).map(|r| Aligned::<f32>::new(ranks * n, |k| value(r, k))).collect();
    let mut outputs: Vec<_> = (0..ranks).map(|_| Aligned::<f32>::new(ranks * n, |k| k as f32)).collect();
    for calls in 1..=5 {
        all_to_all::<Narrow<f32>, f32, f32>(&world, Way::Simple, launch, n, &mut inputs, &mut outputs);
        for (to, output) in outputs.iter().enumerate() {
            for from in 0..ranks {
                for k in 0..n {
                    let want = (from * n + k) as f32
                        + calls as f32 * F8E4M3::from_f32(value(from, to * n + k)).to_f32();
                    assert_eq!(output.all()[from * n + k], want);
                }
            }
        }
    }
}

#[test]
fn sendrecv_goes_round_the_ring_and_to_nobody() {
    for ranks in [2u32, 3, 5] {
        let launch = Launch { channels: 2, self_copy: 0, chunk: 256, rows: 1 };
        let world = World::new(ranks, 2, 1024);
        for (n, open) in [(1000, false), (0, false), (333, true), (4096, false), (1, true)] {
            let mut inputs: Vec<_> =
                (0..ranks).map(|r| Aligned::<u16>::new(n, |k| (k as u16) ^ ((r as u16) << 12))).collect();
            let mut outputs: Vec<_> = (0..ranks).map(|_| Aligned::<u16>::new(n, |_| 7)).collect();
            let raws: Vec<Raw> = inputs
                .iter_mut()
                .zip(&mut outputs)
                .map(|(i, o)| Raw { input: i.raw(), output: o.raw() })
                .collect();
            let last = |rank: u32| open && rank == ranks - 1;
            world
                .run(4, |rank, grid| {
                    let shape = shape(n, Pack::<u16>::LANES, launch);
                    // An open ring: the last rank sends to nobody, the first receives from nobody.
                    let to = if last(rank) { NOBODY } else { (rank + 1) % ranks };
                    let previous = (rank + ranks - 1) % ranks;
                    let from = if last(previous) { NOBODY } else { previous };
                    let blocks = [to, from].iter().filter(|peer| **peer != NOBODY).count() as u32;
                    if grid.block >= 2 * blocks {
                        return Ok(());
                    }
                    let (ops, control) = (world.ops(rank), world.control(rank, DEADLINE_MS));
                    let (raw, schedule) = (raws[rank as usize], SendRecv { to, from });
                    let params = Params { ops, control, shape, raw, schedule };
                    // SAFETY: as for `all_to_all`.
                    unsafe { exchange::<_, Simple, _, ByPack<u16>>(grid, &params) }
                })
                .into_iter()
                .flatten()
                .for_each(|flow| flow.unwrap());
            for rank in 0..ranks {
                let previous = (rank + ranks - 1) % ranks;
                let want = |k: usize| if last(previous) { 7 } else { (k as u16) ^ ((previous as u16) << 12) };
                assert!((0..n).all(|k| outputs[rank as usize].all()[k] == want(k)), "{ranks} ranks, {n}");
            }
        }
    }
}

/// A hook that asks for eight bytes' worth of witnesses with an element's context gets one.
#[test]
fn witnesses_do_not_multiply() {
    struct Greedy;
    impl Hooks for Greedy {
        type Args<'a> = Args<'a, f32, u8>;
        type Wire = f32;
        type Folded = f32;
        const UNROLL: usize = 1;
        fn produce(_: &Produce, _: &Self::Args<'_>) -> Pack<f32> {
            Pack::ZERO
        }
        fn consume(ctx: &Consume, args: &Self::Args<'_>, _: Pack<f32>) {
            // 16 elements of u8, but this call owns four.
            consume_each(ctx, Pack::<u8>::ZERO, |ctx, _| args.output.at(ctx).update(|old| old + 1));
        }
    }
    // SAFETY: as for the other hooks.
    unsafe impl Unpack for Greedy {
        type Raw = Raw;
        unsafe fn unpack<'a>(raw: &Raw) -> Args<'a, f32, u8> {
            // SAFETY: as above.
            unsafe {
                Args {
                    input: raw.input.of().slice(Lent::<'a>::named()),
                    output: Out::from_raw(raw.output.of(), Lent::<'a>::named()),
                }
            }
        }
    }
    let world = World::new(1, 1, 1024);
    let mut inputs = [Aligned::<f32>::new(64, |_| 0.0)];
    let mut outputs = [Aligned::<u8>::new(64, |_| 0)];
    let launch = Launch { channels: 1, self_copy: 1, chunk: 256, rows: 1 };
    all_to_all::<Greedy, f32, u8>(&world, Way::Simple, launch, 64, &mut inputs, &mut outputs);
    assert!(outputs[0].all().iter().all(|&count| count == 1), "{:?}", outputs[0].all());
}
