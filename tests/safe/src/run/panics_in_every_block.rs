//! A panic in every block of a launch, again and again: the first fault is told, and the stream goes on behind `renew`.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn bad<O: Ops>(kernel: &Kernel<O>, input: &[u32], go: u32) -> Flow {
    assert!(go > 0, "block {} does not go on", kernel.block());
    let _ = input[kernel.block()];
    Ok(())
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let kernel = bad::on(&shm)?;
    for _ in 0..20 {
        kernel.launch(&stream, 7, bad::Launch { input: input.view(), go: 0 })?;
        let text = stream.synchronize().map_or_else(|e| e.to_string(), |()| String::new());
        crate::ensure(text.contains("does not go on"), || text)?;
        shm.renew()?;
        kernel.launch(&stream, 7, bad::Launch { input: input.view(), go: 1 })?;
        stream.synchronize()?;
    }
    Ok(())
}
