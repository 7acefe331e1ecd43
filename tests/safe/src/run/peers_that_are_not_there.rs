//! Tiles to and from ranks and channels that there are not: a fault that says what was given, and of how many.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn send<O: Ops>(kernel: &Kernel<O>, input: &[u32], peer: usize) -> Flow {
    kernel.send_tile(peer, kernel.share(input.len()), |ctx| input[ctx.index()])
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let kernel = send::on(&shm)?;
    for peer in [1, 2, 1 << 31, u32::MAX as usize, 1 << 32, usize::MAX] {
        kernel.launch(&stream, 1, send::Launch { input: input.view(), peer })?;
        let text = stream.synchronize().map_or_else(|e| e.to_string(), |()| String::new());
        crate::ensure(text.contains("must be below 1"), || format!("to {peer}: {text}"))?;
        shm.renew()?;
    }
    let blocks = shm.link().layout().channels + 1;
    let outcome = kernel
        .launch(&stream, blocks, send::Launch { input: input.view(), peer: 0 })
        .and_then(|()| stream.synchronize());
    crate::ensure(outcome.is_err(), || format!("{blocks} blocks send"))
}
