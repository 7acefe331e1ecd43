//! A hook without an end: `synchronize_within` returns, what it uses is refused to others, and the process can leave `main`.
//! Ends: well

use fusewire::prelude::*;
use std::time::{Duration, Instant};

#[comm_kernel(transports(Shm))]
mod endless {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub end: u32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        let mut value = args.input[ctx.index()];
        while value != args.end {
            value = core::hint::black_box(value);
        }
        value
    }
}

pub fn run() -> crate::Ended {
    let begun = Instant::now();
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let mut output = device.buffer::<u32>(64)?;
    let kernel = endless::all_to_all(&shm)?;
    kernel.launch(&stream, endless::Launch { input: input.view(), output: output.view_mut(), end: 8 })?;
    for _ in 0..2 {
        let waited = stream.synchronize_within(Duration::from_millis(200));
        crate::ensure(waited.is_err(), || "an endless hook ended".into())?;
    }
    // Not for ever either.
    let other = device.stream()?;
    let read = output.read(&other);
    crate::ensure(read.is_err(), || "a buffer that a kernel writes was read".into())?;
    let args = endless::Launch { input: input.view(), output: output.view_mut(), end: 7 };
    let launched = kernel.launch(&other, args);
    crate::ensure(launched.is_err(), || "a second kernel on the transport".into())?;
    crate::ensure(shm.renew().is_err(), || "renewed under a kernel".into())?;
    drop((input, output, kernel, stream, other, shm));
    crate::ensure(begun.elapsed() < Duration::from_secs(20), || format!("{:?}", begun.elapsed()))
}
