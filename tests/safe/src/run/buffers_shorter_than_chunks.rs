//! Launches whose options name more elements than the buffers have: refused, or ended by a fault that names the place.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

#[comm_kernel(transports(Shm))]
mod each {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.output.at(ctx).set(value);
    }
}

#[comm_kernel(transports(Shm), layout(transposed))]
mod transposed {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input.transposed(ctx)
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.output.at(ctx).set(value);
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[1u32; 64])?;
    let mut output = device.buffer::<u32>(64)?;
    let (copy, each, turned) =
        (copy::all_to_all(&shm)?, each::all_to_all(&shm)?, transposed::all_to_all(&shm)?);
    for elements in [65, 4096, 1 << 33, usize::MAX / 2, usize::MAX] {
        let options = LaunchOptions::default().elements(elements).shape(1, elements);
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let outcome = copy.launch_with(&stream, args, &options).and_then(|()| stream.synchronize());
        crate::ensure(outcome.is_err(), || format!("{elements} elements copied"))?;
        let _ = shm.renew();
        let args = each::Launch { input: input.view(), output: output.view_mut() };
        let outcome = each.launch_with(&stream, args, &options).and_then(|()| stream.synchronize());
        crate::ensure(outcome.is_err(), || format!("{elements} elements by hooks"))?;
        let _ = shm.renew();
        let args = transposed::Launch { input: input.view(), output: output.view_mut() };
        let outcome = turned.launch_with(&stream, args, &options).and_then(|()| stream.synchronize());
        crate::ensure(outcome.is_err(), || format!("{elements} elements transposed"))?;
        let _ = shm.renew();
    }
    Ok(())
}
