//! Elements by aliases, shadowed names and constants that both sides understand alike: all of it is data of one type.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl))]
mod aliases {
    pub type Real = f32;
    pub type Pair = [Index; LEN];
    pub type Index = u32;
    pub const LEN: usize = 1 + size_of::<u8>();
    pub struct Args<'a> {
        pub input: &'a [Real],
        pub output: Out<'a, Real>,
        pub pair: Pair,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Real {
        args.input[ctx.index()] + args.pair[1] as Real
    }
    pub fn consume(ctx: &Consume, args: &Args, value: Real) {
        args.output.at(ctx).set(value);
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[1.0f32; 1000])?;
    let mut output = device.buffer::<f32>(1000)?;
    let args = aliases::Launch { input: input.view(), output: output.view_mut(), pair: [1, 2] };
    aliases::all_to_all(&shm)?.launch(&stream, args)?;
    stream.synchronize()?;
    let got = output.read(&stream)?;
    crate::ensure(got.iter().all(|v| *v == 3.0), || format!("{got:?}"))
}
