//! The same buffer symmetric, in parts and twice: what is written overlaps nothing, by the compiler's rules or the launch's.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod two {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub first: Out<'a, u32>,
        pub second: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.first.at(ctx).set(value);
        args.second.at(ctx).set(value + 1);
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let (mut first, mut second) = (device.buffer::<u32>(64)?, device.buffer::<u32>(64)?);
    let kernel = two::all_to_all(&shm)?;
    let args = two::Launch { input: input.view(), first: first.view_mut(), second: second.view_mut() };
    kernel.launch_with(&stream, args, &LaunchOptions::default().elements(64))?;
    stream.synchronize()?;
    let got = (first.read(&stream)?, second.read(&stream)?);
    crate::ensure(got == (vec![7; 64], vec![8; 64]), || format!("{got:?}"))
}
