//! One transport from two streams, and one output from both: kernels take turns, and a read waits for the writer.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod add {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.output.at(ctx).add(value);
    }
}

fn rank(world: World) -> fusewire::Result<bool> {
    let shm = Shm::rendezvous(&world, 1 << 16)?;
    let device = Device::of(&shm);
    let streams = [device.stream()?, device.stream()?];
    let input = device.buffer_from(&[1u32; 10_000])?;
    let mut output = device.buffer::<u32>(10_000)?;
    let kernel = add::all_to_all(&shm)?;
    for k in 0..60 {
        let args = add::Launch { input: input.view(), output: output.view_mut() };
        kernel.launch(&streams[k % 2], args)?;
    }
    let got = output.read(&streams[1])?;
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok(got == vec![60; 10_000])
}

pub fn run() -> crate::Ended {
    for outcome in World::threads(3, |world| if world.size() == 3 { small(world) } else { rank(world) })? {
        let right = outcome?;
        crate::ensure(right, || "sums are wrong".into())?;
    }
    for outcome in World::threads(2, rank)? {
        let right = outcome?;
        crate::ensure(right, || "sums are wrong".into())?;
    }
    Ok(())
}

/// Nothing but the two streams' ends.
fn small(world: World) -> fusewire::Result<bool> {
    let shm = Shm::rendezvous(&world, 1 << 16)?;
    let device = Device::of(&shm);
    let (a, b) = (device.stream()?, device.stream()?);
    a.synchronize()?;
    drop(a);
    b.synchronize()?;
    Ok(true)
}
