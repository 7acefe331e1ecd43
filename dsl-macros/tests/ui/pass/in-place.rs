//! In place: without hooks, with both, of other wires, and what is gathered.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub gradients: InOut<'a, Bf16>,
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce(average, f32))]
mod step {
    pub struct Args<'a> {
        pub gradients: &'a [f32],
        pub weights: InOut<'a, f32>,
        pub rate: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.weights.get(ctx) - args.rate * args.gradients[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.weights.at(ctx).update(|old| (old + value) / 2.0);
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce(max, f32))]
mod by_pack {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<Bf16> {
        let [low, high] = args.values.packs::<2>(ctx);
        Pack::from_f32s(|k| if k < 4 { low.get(k) } else { high.get(k - 4) })
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_gather, broadcast))]
mod gather {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
        pub bias: &'a [f32],
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.values.get(ctx) + args.bias[ctx.pos]
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_gather))]
mod beside {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
        pub seen: Out<'a, u8>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.values.get(ctx)
    }
}

// Names that mean a buffer elsewhere.
#[comm_kernel(transports(Shm, Nvl), schedules(all_gather))]
mod named {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
        pub input: f32,
        pub output: f32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.values.get(ctx) + args.input
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.values.at(ctx).set(value + args.output);
    }
}

fn rank(world: &World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(world, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let mut gradients = device.buffer_from(&[1.5, -2.0, 3.0].map(Bf16::from_f32))?;
    sum::all_reduce(&shm)?.launch(&stream, sum::Launch { gradients: gradients.view_mut() })?;
    assert_eq!(gradients.read(&stream)?, [3.0, -4.0, 6.0].map(Bf16::from_f32));

    let (gradients, mut weights) = (device.buffer_from(&[2.0f32; 9])?, device.buffer_from(&[5.0f32; 9])?);
    let step = step::all_reduce(&shm)?;
    for _ in 0..2 {
        let args = step::Launch { gradients: gradients.view(), weights: weights.view_mut(), rate: 0.5 };
        step.launch(&stream, args)?;
    }
    assert_eq!(weights.read(&stream)?, [4.0; 9]);

    let mut values = device.buffer_from(&[1.0 + 2f32.powi(-20); 21])?;
    by_pack::all_reduce(&shm)?.launch(&stream, by_pack::Launch { values: values.view_mut() })?;
    assert_eq!(values.read(&stream)?, [1.0; 21]);

    let me = world.rank();
    let mut values = device.buffer_from(&if me == 0 { [1.0, 2.0, -1.0, -1.0] } else { [-1.0, -1.0, 3.0, 4.0] })?;
    let bias = device.buffer_from(&[0.5, 0.25])?;
    gather::all_gather(&shm)?.launch(&stream, gather::Launch { values: values.view_mut(), bias: bias.view() })?;
    assert_eq!(values.read(&stream)?, [1.5, 2.25, 3.5, 4.25]);

    // Symmetric memory that nobody is to store to.
    let mut seen = Buffer::<u8>::symmetric(&shm, 4)?;
    let beside = beside::all_gather(&shm)?;
    beside.launch(&stream, beside::Launch { values: values.view_mut(), seen: seen.view_mut() })?;
    assert_eq!((values.read(&stream)?, seen.read(&stream)?), (vec![1.5, 2.25, 3.5, 4.25], vec![0; 4]));

    let args = named::Launch { values: values.view_mut(), input: 1.0, output: 0.5 };
    named::all_gather(&shm)?.launch(&stream, args)?;
    assert_eq!(values.read(&stream)?, [3.0, 3.75, 5.0, 5.75]);
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(2, |world| rank(&world))?.into_iter().collect()
}
