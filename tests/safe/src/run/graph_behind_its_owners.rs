//! A graph replayed after buffers and transport were dropped: it keeps what it uses.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 4096])?;
    let mut output = device.buffer::<u32>(4096)?;
    let kernel = copy::all_to_all(&shm)?;
    let graph = stream.capture(|| {
        kernel.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })
    })?;
    drop((input, output, kernel, shm));
    let other = device.stream()?;
    for _ in 0..20 {
        graph.launch(&stream)?;
        graph.launch(&other)?;
    }
    drop(stream);
    other.synchronize()?;
    drop(graph);
    Ok(())
}
