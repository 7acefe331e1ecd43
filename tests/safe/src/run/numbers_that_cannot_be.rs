//! Every option of a launch and of a rendezvous at its ends: refused in words, or it runs; nothing panics.
//! Ends: well

use fusewire::prelude::*;
use std::time::Duration;

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

pub fn run() -> crate::Ended {
    let world = World::single()?;
    for window in [0, 1, 1000, 1 << 40, usize::MAX] {
        let _ = Shm::rendezvous(&world, window);
    }
    let shm = Shm::rendezvous(&world, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[1u32; 640])?;
    let mut output = device.buffer::<u32>(640)?;
    let kernel = copy::all_to_all(&shm)?;
    let none = LaunchOptions::default;
    let numbers = [0u32, 1, 3, 128, 1 << 20, u32::MAX - 1, u32::MAX];
    let mut all: Vec<LaunchOptions> = Vec::new();
    for n in numbers {
        all.extend([none().channels(n), none().self_copy(n), none().threads(n), none().blocks(n), none().unroll(n)]);
        all.extend([none().chunk(n as usize), none().chunk(usize::MAX), none().shape(n as usize, usize::MAX)]);
        all.push(none().deadline(Duration::from_nanos(n.into())));
    }
    all.push(none().deadline(Duration::MAX));
    for protocol in Protocol::ALL {
        all.extend(numbers.map(|n| none().protocol(protocol).channels(n).chunk(n as usize)));
    }
    let mut ran = 0;
    for options in all {
        let args = copy::Launch { input: input.view(), output: output.view_mut() };
        let outcome = kernel.launch_with(&stream, args, &options);
        ran += u32::from(outcome.is_ok());
        if outcome.and_then(|()| stream.synchronize()).is_err() {
            shm.renew()?;
        }
    }
    crate::ensure(ran > 0, || "nothing ran".into())
}
