//! Eight threads with streams of their own on one transport and one output: launches take turns.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod add {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub sum: Accumulate<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.sum.add(ctx.index(), value);
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let device = Device::of(&shm);
    let (kernel, input) = (add::all_to_all(&shm)?, device.buffer_from(&[1u32; 1000])?);
    let sum = std::sync::Mutex::new(device.buffer::<u32>(1000)?);
    let options = LaunchOptions::default().elements(1000);
    std::thread::scope(|threads| -> crate::Ended {
        let one = || -> fusewire::Result<()> {
            let stream = device.stream()?;
            for _ in 0..25 {
                let mut sum = sum.lock().unwrap();
                let args = add::Launch { input: input.view(), sum: sum.view_mut() };
                kernel.launch_with(&stream, args, &options)?;
            }
            stream.synchronize()
        };
        let all: Vec<_> = (0..8).map(|_| threads.spawn(one)).collect();
        for thread in all {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    let stream = device.stream()?;
    let got = sum.into_inner().unwrap().read(&stream)?;
    crate::ensure(got == vec![200; 1000], || format!("{:?}", &got[..8]))
}
