//! The same hooks on the same inputs over shared memory, over adapters, and over both at once: equal to the bit.

use fusewire::kernel::HookSet;
use fusewire::nic::Emulated;
use fusewire::nic::emulated::Behaviour;
use fusewire::prelude::*;
use fusewire::schedule::AllToAllLauncher;
use std::sync::Arc;

/// Copies.
#[comm_kernel(transports(Shm, Ibgda, ShmMesh), schedules(all_to_all))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// Transposes each chunk on the way.
#[comm_kernel(transports(Shm, Ibgda, ShmMesh), schedules(all_to_all))]
mod transpose {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub rows: usize,
        pub cols: usize,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let (row, col) = (ctx.pos % args.rows, ctx.pos / args.rows);
        args.input[ctx.chunk_start + row * args.cols + col]
    }

    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).set(value);
    }
}

/// Scales what is sent and adds what arrives.
#[comm_kernel(transports(Shm, Ibgda, ShmMesh), schedules(all_to_all))]
mod scale_add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub scale: f32,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.input.pack(ctx).map(|x| x * args.scale)
    }

    pub fn consume(ctx: &Consume, args: &Args, value: Pack<f32>) {
        args.output.at(ctx).update_pack(|old| old.zip(value, |a, b| a + b));
    }
}

/// Sends eight bits of each element.
#[comm_kernel(transports(Shm, Ibgda, ShmMesh), schedules(all_to_all))]
mod quantise {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> F8E4M3 {
        F8E4M3::from_f32(args.input[ctx.index()])
    }

    pub fn consume(ctx: &Consume, args: &Args, value: F8E4M3) {
        args.output.at(ctx).add(value.to_f32());
    }
}

const ROWS: usize = 37;
const COLS: usize = 21;
const CHUNK: usize = ROWS * COLS;

fn input(rank: usize, n: usize) -> Vec<f32> {
    (0..n).map(|k| ((rank * 7919 + k * 104_729) % 10_007) as f32 * 0.173 - 800.0).collect()
}

/// Three calls that add up, by each of the four hooks: the bits of every output.
fn outputs<X: Transport>(transport: &X) -> fusewire::Result<Vec<u32>>
where
    copy::Hooks: fusewire::kernel::Supports<fusewire::schedule::AllToAll, X>,
    transpose::Hooks: fusewire::kernel::Supports<fusewire::schedule::AllToAll, X>,
    scale_add::Hooks: fusewire::kernel::Supports<fusewire::schedule::AllToAll, X>,
    quantise::Hooks: fusewire::kernel::Supports<fusewire::schedule::AllToAll, X>,
{
    let (device, n) = (Device::of(transport), CHUNK * transport.world_size());
    let stream = device.stream()?;
    let input = device.buffer_from(&input(transport.rank(), n))?;
    let mut bits = Vec::new();
    let mut keep = |output: &Buffer<f32>| -> fusewire::Result<()> {
        bits.extend(output.read(&stream)?.into_iter().map(f32::to_bits));
        Ok(())
    };
    let mut output = device.buffer::<f32>(n)?;
    let run = AllToAllLauncher::<X, copy::Hooks>::new(transport)?;
    run.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
    keep(&output)?;
    let run = AllToAllLauncher::<X, transpose::Hooks>::new(transport)?;
    let args = transpose::Launch { input: input.view(), output: output.view_mut(), rows: ROWS, cols: COLS };
    run.launch(&stream, args)?;
    keep(&output)?;
    let run = AllToAllLauncher::<X, scale_add::Hooks>::new(transport)?;
    for k in 0..3 {
        let args =
            scale_add::Launch { input: input.view(), output: output.view_mut(), scale: 0.1 + k as f32 * 1.7 };
        run.launch(&stream, args)?;
    }
    keep(&output)?;
    let run = AllToAllLauncher::<X, quantise::Hooks>::new(transport)?;
    for _ in 0..3 {
        run.launch(&stream, quantise::Launch { input: input.view(), output: output.view_mut() })?;
    }
    keep(&output)?;
    Ok(bits)
}

/// In domains of two ranks.
fn all(ranks: usize) {
    let name = <scale_add::Hooks as HookSet>::NAME;
    World::threads(ranks, |world| {
        let options = || Options::per_peer(16 << 10).channels(4);
        let shm = outputs(&Shm::rendezvous(&world, options()).unwrap()).unwrap();
        let ibgda = outputs(&Ibgda::emulated(&world, options()).unwrap()).unwrap();
        let adapter = Emulated::new(Behaviour { seed: world.rank() as u64, ..Behaviour::default() }).unwrap();
        let domain = world.rank() as u64 / 2;
        let mesh = ShmMesh::rendezvous(&world, domain, Arc::new(adapter), options()).unwrap();
        let both = outputs(&mesh).unwrap();
        assert!(shm.iter().any(|bits| *bits != 0), "{name}");
        assert!(
            shm == ibgda,
            "rank {} of {ranks}: adapters give other bits than shared memory",
            world.rank()
        );
        assert!(shm == both, "rank {} of {ranks}: a mesh gives other bits than shared memory", world.rank());
    })
    .unwrap();
}

#[test]
fn in_two_domains() {
    all(4);
}

#[test]
fn in_four_domains() {
    all(8);
}

#[test]
fn in_a_domain_and_a_half() {
    all(3);
}
