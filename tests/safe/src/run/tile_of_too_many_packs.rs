//! Tiles of more packs than one may have: a fault in words.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn send<O: Ops>(kernel: &Kernel<O>, input: &[u32], len: usize) -> Flow {
    kernel.send_tile(0, Tile { start: 0, len }, |ctx| input[ctx.index()])
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let kernel = send::on(&shm)?;
    for len in [1 << 34, usize::MAX / 2, usize::MAX] {
        kernel.launch(&stream, 1, send::Launch { input: input.view(), len })?;
        let text = stream.synchronize().map_or_else(|e| e.to_string(), |()| String::new());
        crate::ensure(text.contains("a tile of"), || format!("{len}: {text}"))?;
        shm.renew()?;
    }
    Ok(())
}
