//! A panic whose payload's drop panics with a payload of the same kind, for ever: it is left where it is.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod endless {
    pub struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb)
        }
    }
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub armed: u32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        if args.armed == 1 {
            std::panic::panic_any(Bomb)
        }
        args.input[ctx.index()]
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let mut output = device.buffer::<u32>(64)?;
    let kernel = endless::all_to_all(&shm)?;
    for armed in [1, 0, 1, 0] {
        let args = endless::Launch { input: input.view(), output: output.view_mut(), armed };
        kernel.launch(&stream, args)?;
        let outcome = stream.synchronize();
        crate::ensure(outcome.is_err() == (armed == 1), || format!("{outcome:?}"))?;
        if armed == 1 {
            shm.renew()?;
        }
    }
    let got = output.read(&stream)?;
    crate::ensure(got == vec![7; 64], || format!("{got:?}"))
}
