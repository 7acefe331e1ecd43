//! A transport dropped while its kernels are queued: they run to their end.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()]
    }
}

fn rank(world: World) -> fusewire::Result<bool> {
    let shm = Shm::rendezvous(&world, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 40_000])?;
    let mut output = device.buffer::<u32>(40_000)?;
    let kernel = copy::all_to_all(&shm)?;
    for _ in 0..10 {
        kernel.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
    }
    drop((shm, kernel, world));
    stream.synchronize()?;
    Ok(output.read(&stream)? == vec![7; 40_000])
}

pub fn run() -> crate::Ended {
    for outcome in World::threads(2, rank)? {
        let right = outcome?;
        crate::ensure(right, || "data are missing".into())?;
    }
    Ok(())
}
