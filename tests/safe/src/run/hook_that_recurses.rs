//! A hook that calls itself without end: no process survives that, and this one says which kernel it was.
//! Ends: signal 6
//! Says: a hook of `fusewire_safe::run::hook_that_recurses::deep`
//! Says: hook_that_recurses.rs
//! Says: on rank 0, block 0

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
pub mod deep {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    #[allow(unconditional_recursion)]
    fn down(value: u32) -> u32 {
        core::hint::black_box(down(core::hint::black_box(value + 1)) + 1)
    }
    /// With frames that are larger than a guard page.
    #[allow(unconditional_recursion)]
    #[inline(never)]
    fn far_down(value: u32) -> u32 {
        let large = core::hint::black_box([value; 2048]);
        far_down(value + 1) + core::hint::black_box(large)[7]
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        match args.input[ctx.index()] {
            0 => far_down(0),
            value => down(value),
        }
    }
}

pub fn run() -> crate::Ended {
    launch(7, 1)
}

/// Large frames for 0.
pub fn launch(value: u32, blocks: u32) -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[value; 4096])?;
    let mut output = device.buffer::<u32>(4096)?;
    let options = LaunchOptions::default().protocol(Protocol::Simple).channels(1).self_copy(blocks);
    let args = deep::Launch { input: input.view(), output: output.view_mut() };
    deep::all_to_all(&shm)?.launch_with(&stream, args, &options)?;
    stream.synchronize()?;
    Ok(())
}
