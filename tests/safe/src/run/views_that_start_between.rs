//! Parts of a buffer that begin between multiples of 16 bytes: refused in words.
//! Ends: well

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u8],
        pub output: Out<'a, u8>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<u8> {
        args.input.pack(ctx)
    }
}

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u8; 64])?;
    let mut output = device.buffer::<u8>(64)?;
    let kernel = copy::all_to_all(&shm)?;
    for start in 0..17usize {
        let args = copy::Launch { input: input.view().slice(start..start + 32)?, output: output.view_mut().slice(start..start + 32)? };
        let outcome = kernel.launch(&stream, args).and_then(|()| stream.synchronize());
        crate::ensure(outcome.is_ok() == start.is_multiple_of(16), || format!("{start}: {outcome:?}"))?;
    }
    Ok(())
}
