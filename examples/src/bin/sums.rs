//! Sums that do not move: a gradient averaged over all ranks, and a fold of one's own. The bits depend on what ranks contribute, and on nothing else.

use fusewire::LaunchOptions;
use fusewire::prelude::*;

/// The mean gradient of all ranks, and a step of the weights: bfloat16 on the wire, added up in f32, rounded nowhere between.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce(average, f32))]
mod step {
    pub struct Args<'a> {
        pub gradient: &'a [Bf16],
        pub weights: Out<'a, f32>,
        pub rate: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        args.gradient[ctx.index()]
    }
    // Once for each element, with the mean.
    pub fn consume(ctx: &Consume, args: &Args, mean: f32) {
        args.weights.at(ctx).update(|weight| weight - args.rate * mean);
    }
}

/// Each rank gets a part of what is farthest from zero among all ranks.
#[comm_kernel(transports(Shm, Nvl), schedules(reduce_scatter), reduce(Farthest))]
mod farthest {
    use fusewire::device::fold::Fold;

    pub struct Farthest;
    impl Fold<f32> for Farthest {
        type Acc = f32;
        fn lift(value: f32) -> f32 {
            value
        }
        fn fold(left: f32, right: f32) -> f32 {
            if right.abs() > left.abs() { right } else { left }
        }
    }

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

const N: usize = 10_007;

/// What rank `rank` contributes: of many magnitudes, so that another order would give other bits.
fn gradient(rank: usize, i: usize) -> Bf16 {
    let bits = (i * 7919 + rank * 104_729) % 65_521;
    Bf16::from_f32((bits as f32 - 32_000.0) * 2f32.powi((bits % 31) as i32 - 15))
}

fn rank(world: World) -> fusewire::Result<Vec<u32>> {
    let shm = Shm::rendezvous(&world, 1 << 20)?; // or `Nvl`, on GPUs
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let (me, ranks) = (world.rank(), world.size());

    let own: Vec<Bf16> = (0..N).map(|i| gradient(me, i)).collect();
    let own = device.buffer_from(&own)?;
    let kernel = step::all_reduce(&shm)?;
    let mut bits: Vec<Vec<u32>> = Vec::new();
    // However the launch is cut.
    for options in [LaunchOptions::default(), LaunchOptions::default().channels(1).chunk(256)] {
        let mut weights = device.buffer_from(&vec![1.0f32; N])?;
        let args = step::Launch { gradient: own.view(), weights: weights.view_mut(), rate: 0.01 };
        kernel.launch_with(&stream, args, &options)?;
        bits.push(weights.read(&stream)?.iter().map(|w| w.to_bits()).collect());
    }
    assert_eq!(bits[0], bits[1], "the bits depend on how the launch is cut");

    let input: Vec<f32> = (0..N * ranks).map(|i| gradient(me, i).to_f32()).collect();
    let input = device.buffer_from(&input)?;
    let mut output = device.buffer::<f32>(N)?;
    let kernel = farthest::reduce_scatter(&shm)?;
    kernel.launch(&stream, farthest::Launch { input: input.view(), output: output.view_mut() })?;
    for (i, got) in output.read(&stream)?.into_iter().enumerate() {
        let most = (0..ranks).map(|r| gradient(r, me * N + i).to_f32().abs()).fold(0.0, f32::max);
        assert_eq!(got.abs(), most, "element {i} at rank {me}");
    }
    Ok(bits.swap_remove(0))
}

fn main() -> fusewire::Result<()> {
    let ranks: Vec<Vec<u32>> = World::threads(4, rank)?.into_iter().collect::<fusewire::Result<_>>()?;
    assert!(ranks.iter().all(|bits| *bits == ranks[0]), "ranks differ");
    // ((0 1) (2 3)), as the tree says.
    for (i, got) in ranks[0].iter().enumerate() {
        let of = |rank| gradient(rank, i).to_f32();
        let mean = ((of(0) + of(1)) + (of(2) + of(3))) / 4.0;
        assert_eq!(*got, (1.0 - 0.01 * mean).to_bits(), "element {i}");
    }
    println!("{N} weights have the same bits on 4 ranks, and those of the tree");
    Ok(())
}
