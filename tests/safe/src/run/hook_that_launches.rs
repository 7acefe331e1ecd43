//! A hook that launches on its own transport and waits for its own stream: refused or given up, and never for ever.
//! Ends: well

use fusewire::prelude::*;
use std::sync::Mutex;
use std::time::Duration;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

/// What the hook has in reach.
static HELD: Mutex<Option<(Stream, Shm)>> = Mutex::new(None);

#[comm_kernel(transports(Shm))]
mod launching {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        if ctx.pos == 0 {
            super::launch();
        }
        args.input[ctx.index()]
    }
}

fn launch() {
    let held = HELD.lock().unwrap();
    let Some((stream, shm)) = &*held else { return };
    let device = Device::of(shm);
    let (Ok(input), Ok(mut output)) = (device.buffer_from(&[1u32; 64]), device.buffer::<u32>(64)) else {
        return;
    };
    if let Ok(kernel) = copy::all_to_all(shm) {
        let _ = kernel.launch(stream, copy::Launch { input: input.view(), output: output.view_mut() });
    }
    let late = stream.synchronize_within(Duration::from_millis(200));
    assert!(late.is_err(), "the stream ended before the hook that waits for it");
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let mut output = device.buffer::<u32>(64)?;
    let kernel = launching::all_to_all(&shm)?;
    *HELD.lock().unwrap() = Some((stream.clone(), shm));
    kernel.launch(&stream, launching::Launch { input: input.view(), output: output.view_mut() })?;
    stream.synchronize()?;
    let got = output.read(&stream)?;
    crate::ensure(got == vec![7; 64], || format!("{got:?}"))?;
    drop(HELD.lock().unwrap().take());
    Ok(())
}
