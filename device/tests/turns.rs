//! The schedules of CPU threads over a world in plain memory: staged, and read from the sender's memory.

#[path = "common/world.rs"]
mod world;

use fusewire_device::args::{Lent, Out, Packs, RawSlice};
use fusewire_device::ctx::{Consume, Produce};
use fusewire_device::element::Element;
use fusewire_device::hooks::{Hooks, consume_each, produce_each};
use fusewire_device::launch::{Params, Shape, Unpack, share_packs};
use fusewire_device::pack::Pack;
use fusewire_device::protocol::{Host, exchange};
use fusewire_device::schedule::AllToAll;
use fusewire_device::wait::{Flow, kind};
use std::marker::PhantomData;
use std::time::{Duration, Instant};
use world::{Noise, World};

#[derive(Clone, Copy)]
#[repr(C)]
struct Raw<T> {
    input: RawSlice<T>,
    output: RawSlice<T>,
}

#[derive(Clone, Copy)]
struct Args<'a, T> {
    input: &'a [T],
    output: Out<'a, T>,
}

/// What is to be copied in one piece; element by element it would be wrong.
struct AsIs<T>(PhantomData<T>);

/// The same by hooks.
struct ByElement<T>(PhantomData<T>);

/// Sends as it is, receives by hook.
struct Half<T>(PhantomData<T>);

macro_rules! hooks {
    ($name:ident, $produce:expr, $consume:expr, { $($as_is:tt)* }) => {
        impl<T: Element> Hooks for $name<T> {
            type Args<'a> = Args<'a, T>;
            type Wire = T;
            type Folded = T;
            const UNROLL: usize = 4;
            fn produce(ctx: &Produce, args: &Args<'_, T>) -> Pack<T> {
                let produce: fn(&Produce, &Args<'_, T>) -> Pack<T> = $produce;
                produce(ctx, args)
            }
            fn consume(ctx: &Consume, args: &Args<'_, T>, value: Pack<T>) {
                let consume: fn(&Consume, &Args<'_, T>, Pack<T>) = $consume;
                consume(ctx, args, value);
            }
            $($as_is)*
        }
        // SAFETY: the tests make `Raw` from vectors that outlive the launch and are lent to it alone.
        unsafe impl<T: Element> Unpack for $name<T> {
            type Raw = Raw<T>;
            unsafe fn unpack<'a>(raw: &Raw<T>) -> Args<'a, T> {
                let lent = Lent::<'a>::named();
                // SAFETY: as above.
                unsafe { Args { input: raw.input.slice(lent), output: Out::from_raw(raw.output, lent) } }
            }
        }
    };
}
hooks!(AsIs, |_, _| Pack::ZERO, |_, _, _| {}, {
    fn sends_as_is<'a>(args: &Self::Args<'a>) -> Option<&'a [T]> {
        Some(args.input)
    }
    fn keeps_as_is<'a>(args: &Self::Args<'a>) -> Option<Out<'a, T>> {
        Some(args.output)
    }
});
hooks!(
    ByElement,
    |ctx, args| produce_each(ctx, |ctx| args.input[ctx.index()]),
    |ctx, args, v| consume_each(ctx, v, |ctx, v| args.output.at(ctx).set(v)),
    {}
);
hooks!(Half, |ctx, args| args.input.pack(ctx), |ctx, args, v| args.output.at(ctx).set_pack(v), {
    fn sends_as_is<'a>(args: &Self::Args<'a>) -> Option<&'a [T]> {
        Some(args.input)
    }
});

/// A launch on every rank: `n(rank)` elements to each peer, in chunks of `chunk` stream bytes. What each rank's blocks came to.
fn launch<H: Unpack<Raw = Raw<T>>, T: Element>(
    world: &World,
    (channels, chunk): (u32, u64),
    n: impl Fn(u32) -> usize + Sync,
    inputs: &mut [Vec<T>],
    outputs: &mut [Vec<T>],
) -> Vec<Vec<Flow>> {
    let raw = |v: &mut Vec<T>| RawSlice::new(v.as_mut_ptr() as u64, v.len());
    let raws: Vec<Raw<T>> =
        inputs.iter_mut().zip(outputs).map(|(i, o)| Raw { input: raw(i), output: raw(o) }).collect();
    world.run(channels, |rank, grid| {
        let elements = n(rank) as u64;
        let share = share_packs(elements.div_ceil(Pack::<H::Wire>::LANES as u64), channels);
        let shape = Shape {
            elements,
            rows: 1,
            cols: elements,
            chunk,
            kernel: 7,
            share,
            own_share: 0,
            first: 0,
            outputs: 0,
            output_offset: 0,
            input: 0,
            tiles: 0,
            channels,
            self_copy: 0,
            flags: 0,
            allocation: 0,
            cut: 0,
        };
        let (ops, control) = (world.ops(rank), world.control(rank, 20_000));
        let params = Params { ops, control, shape, raw: raws[rank as usize], schedule: AllToAll };
        // SAFETY: every block of the grid runs it, with slices that hold what the shape says.
        unsafe { exchange::<_, Host, _, H>(grid, &params) }
    })
}

/// Calls of many sizes follow each other on one world; each is a transpose.
fn transposes<H: Unpack<Raw = Raw<T>>, T: Element>(world: &World, cut: (u32, u64), sizes: &[usize]) {
    let ranks = world.layout.world as usize;
    let mut noise = Noise(T::CODE << 8 | ranks as u64);
    for &n in sizes {
        let mut make = || (0..ranks * n).map(|_| T::from_bits64(noise.next())).collect::<Vec<T>>();
        let (mut inputs, mut outputs): (Vec<_>, Vec<_>) = (0..ranks).map(|_| (make(), make())).unzip();
        let flows = launch::<H, T>(world, cut, |_| n, &mut inputs, &mut outputs);
        assert!(flows.iter().flatten().all(Result::is_ok), "{n}: {:?}", world.record(0));
        for (to, output) in outputs.iter().enumerate() {
            for (from, input) in inputs.iter().enumerate() {
                let bits = |v: &[T]| v.iter().map(|e| e.to_bits64()).collect::<Vec<_>>();
                let (got, want) = (&output[from * n..][..n], &input[to * n..][..n]);
                assert!(bits(got) == bits(want), "{ranks} ranks, {cut:?}, {n} x {}: {from} to {to}", T::NAME);
            }
        }
    }
}

const SMALL: [usize; 9] = [0, 1, 3, 16, 31, 128, 1000, 2501, 7];

#[test]
fn staged_chunks_reach_every_rank() {
    for (ranks, channels, chunk) in [(1, 1, 512), (2, 1, 128), (2, 3, 1024), (3, 2, 384), (5, 1, 640)] {
        let world = World::new(ranks, channels, 2048);
        transposes::<AsIs<u8>, u8>(&world, (channels, chunk), &SMALL);
        transposes::<AsIs<u64>, u64>(&world, (channels, chunk), &SMALL);
        transposes::<ByElement<u16>, u16>(&world, (channels, chunk), &SMALL);
        transposes::<Half<f32>, f32>(&world, (channels, chunk), &SMALL);
    }
}

#[test]
fn what_is_not_staged_reaches_every_rank() {
    for (ranks, channels) in [(1, 1), (2, 1), (2, 3), (3, 2), (5, 1)] {
        let world = World::new(ranks, channels, 2048).of_processes(std::process::id());
        // Around the size from which on peers read, and staged calls between.
        let sizes = [4095, 4096, 5, 4097, 30_001, 12_288, 1];
        transposes::<AsIs<u32>, u32>(&world, (channels, 512), &sizes);
        transposes::<Half<u32>, u32>(&world, (channels, 512), &sizes);
        transposes::<AsIs<u8>, u8>(&world, (channels, 512), &[16_384, 16_383, 50_000]);
    }
}

#[test]
fn sizes_that_differ_are_told_at_once() {
    for processes in [None, Some(std::process::id())] {
        let staged = World::new(2, 1, 2048);
        let world = match processes {
            Some(id) => staged.of_processes(id),
            None => staged,
        };
        let start = Instant::now();
        let n = |rank: u32| if rank == 0 { 5000 } else { 6000 };
        let mut inputs = [vec![1u32; 10_000], vec![2u32; 12_000]];
        let mut outputs = inputs.clone();
        let flows = launch::<AsIs<u32>, u32>(&world, (1, 512), n, &mut inputs, &mut outputs);
        assert!(flows.iter().flatten().all(Result::is_err), "{flows:?}");
        let records = [world.record(0), world.record(1)];
        let told = records.iter().find(|r| r.kind == kind::MISMATCH).unwrap_or_else(|| panic!("{records:?}"));
        let sizes = [20_000, 24_000];
        assert!(sizes.contains(&told.expected) && sizes.contains(&told.seen), "{told:?}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn memory_that_cannot_be_read_ends_the_kernel() {
    // No process has this number.
    let world = World::new(2, 1, 2048).of_processes(0x7fff_fff0);
    let start = Instant::now();
    let (mut inputs, mut outputs) =
        ([vec![1u32; 10_000], vec![2; 10_000]], [vec![3; 10_000], vec![3; 10_000]]);
    let flows = launch::<AsIs<u32>, u32>(&world, (1, 512), |_| 5000, &mut inputs, &mut outputs);
    assert!(flows.iter().flatten().all(Result::is_err), "{flows:?}");
    assert!(
        [0, 1].iter().any(|r| world.record(*r).kind == kind::EXPIRED && world.record(*r).expected == 20_000)
    );
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!([0, 1].iter().all(|r| world.abort_word(*r) != 0));
}
