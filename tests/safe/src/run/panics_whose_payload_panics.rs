//! A panic whose payload panics when it is dropped: a fault, and the next launch runs.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
pub mod bomb {
    /// Whether its drop panics with another.
    pub struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 {
                std::panic::panic_any(Bomb(true))
            }
            panic!("while the payload is dropped")
        }
    }
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        /// 0: not; 2: with one whose drop panics with another, for ever.
        pub armed: u32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        if args.armed > 0 {
            std::panic::panic_any(Bomb(args.armed == 2))
        }
        args.input[ctx.index()]
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 4096])?;
    let mut output = device.buffer::<u32>(4096)?;
    let kernel = bomb::all_to_all(&shm)?;
    for channels in [1, 4] {
        let options = LaunchOptions::default().protocol(Protocol::Simple).channels(channels);
        for armed in [1, 0] {
            let args = bomb::Launch { input: input.view(), output: output.view_mut(), armed };
            kernel.launch_with(&stream, args, &options)?;
            let outcome = stream.synchronize();
            crate::ensure(outcome.is_err() == (armed == 1), || format!("{outcome:?}"))?;
            if armed == 1 {
                shm.renew()?;
            }
        }
        let got = output.read(&stream)?;
        crate::ensure(got == vec![7; 4096], || "zeros".into())?;
        let zeros = vec![0; 4096];
        output = device.buffer_from(&zeros)?;
    }
    Ok(())
}
