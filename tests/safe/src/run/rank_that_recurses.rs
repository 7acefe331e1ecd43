//! A rank, a process of its own, whose hook overflows its stack: it names the hook, and the rank that waits for it is told that it is lost.
//! Ends: well
//! Says: a hook of `fusewire_safe::run::rank_that_recurses::deep`
//! Says: rank 1 is lost

use fusewire::prelude::*;
use fusewire::world::{Job, launched};
use std::process::Command;

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
        let value = args.input[ctx.index()];
        if ctx.rank == 1 { down(value) } else { value }
    }
}

fn rank() -> crate::Ended {
    let world = World::from_env()?;
    let shm = Shm::rendezvous(&world, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let mut output = device.buffer::<u32>(64)?;
    deep::all_to_all(&shm)?
        .launch(&stream, deep::Launch { input: input.view(), output: output.view_mut() })?;
    let outcome = stream.synchronize();
    println!("rank {}: {outcome:?}", world.rank());
    crate::ensure(outcome.is_err(), || "the rank is there".into())
}

pub fn run() -> crate::Ended {
    if launched() {
        return rank();
    }
    let program = std::env::current_exe()?;
    let job = Job::start(2, |_| {
        let mut command = Command::new(&program);
        command.arg("rank_that_recurses");
        command
    })?;
    let failed: Vec<usize> = job.wait()?.into_iter().map(|(rank, _)| rank).collect();
    crate::ensure(failed == [1], || format!("{failed:?}"))
}
