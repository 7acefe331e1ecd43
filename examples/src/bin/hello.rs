//! The ten lines of the README: each rank sends every rank a chunk, doubled; receivers add it to what they have.

use fusewire::prelude::*;

/// Sends each chunk doubled; the receiver adds it to what it has.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod double_add {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        2.0 * args.input[ctx.index()]
    }

    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).add(value);
    }
}

fn rank(world: World) -> fusewire::Result<Vec<f32>> {
    let shm = Shm::rendezvous(&world, 1 << 20)?; // or `Nvl`, on GPUs
    let all_to_all = double_add::all_to_all(&shm)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[world.rank() as f32; 8])?;
    let mut output = device.buffer::<f32>(8)?;
    all_to_all.launch(&stream, double_add::Launch { input: input.view(), output: output.view_mut() })?;
    output.read(&stream)
}

fn main() -> fusewire::Result<()> {
    for (rank, output) in World::threads(4, rank)?.into_iter().enumerate() {
        let output = output?;
        println!("rank {rank}: {output:?}");
        assert_eq!(output, [0.0, 0.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0]);
    }
    Ok(())
}
