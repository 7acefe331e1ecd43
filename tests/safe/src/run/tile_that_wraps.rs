//! Tiles whose end is no index, so that their sum would pass every comparison: refused before the first element is asked for.
//! Ends: well

use fusewire::device::args::Packs;
use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn leak<O: Ops>(kernel: &Kernel<O>, input: &[u32], start: usize, len: usize, sum: Accumulate<u32>) -> Flow {
    kernel.send_tile::<u32>(kernel.next(1), Tile { start, len }, |ctx| {
        let value = input.transposed(ctx);
        sum.add(ctx.pos, value);
        value
    })
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 20)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    // Neighbours on the heap: the middle one is the input.
    let _secret = device.buffer_from(&[0x5e_c2e7_u32; 64])?;
    let input = device.buffer_from(&[1u32; 64])?;
    let mut sum = device.buffer::<u32>(1 << 12)?;
    let kernel = leak::on(&shm)?;
    for (start, len) in [(0usize.wrapping_sub(160), 160), (usize::MAX, 1), (usize::MAX - 63, 64), (2, usize::MAX - 1)] {
        let args = leak::Launch { input: input.view(), start, len, sum: sum.view_mut() };
        kernel.launch(&stream, 1, args)?;
        let outcome = stream.synchronize();
        crate::ensure(outcome.is_err(), || format!("{start} {len}"))?;
        let got = sum.read(&stream)?;
        crate::ensure(got.iter().all(|v| *v == 0), || "another buffer was read".into())?;
        shm.renew()?;
    }
    Ok(())
}
