//! A hook that calls itself without end: no process survives that, and this one says which kernel it was.
//! Ends: signal 6
//! Says: a hook of `fusewire_safe::run::hook_that_recurses::deep`
//! Says: hook_that_recurses.rs
//! Says: on rank 0, block 0

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod deep {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    #[allow(unconditional_recursion)]
    fn down(value: u32) -> u32 {
        core::hint::black_box(down(core::hint::black_box(value + 1)) + 1)
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        down(args.input[ctx.index()])
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let mut output = device.buffer::<u32>(64)?;
    let options = LaunchOptions::default().protocol(Protocol::Staged).channels(1);
    let args = deep::Launch { input: input.view(), output: output.view_mut() };
    deep::all_to_all(&shm)?.launch_with(&stream, args, &options)?;
    stream.synchronize()?;
    Ok(())
}
