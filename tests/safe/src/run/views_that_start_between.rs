//! Parts of a buffer that begin between multiples of 16 bytes: what is before and behind them stays.
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
    let values: [u8; 64] = std::array::from_fn(|i| i as u8);
    let input = device.buffer_from(&values)?;
    let kernel = copy::all_to_all(&shm)?;
    for start in 0..17usize {
        let mut output = device.buffer_from(&[255u8; 64])?;
        let to = 17 - start;
        let args = copy::Launch { input: input.view().slice(start..start + 32)?, output: output.view_mut().slice(to..to + 32)? };
        kernel.launch(&stream, args)?;
        let mut expected = [255u8; 64];
        expected[to..to + 32].copy_from_slice(&values[start..start + 32]);
        let got = output.read(&stream)?;
        crate::ensure(got == expected, || format!("{start}: {got:?}"))?;
    }
    Ok(())
}
