//! A panic whose payload's drop panics with a payload of the same kind, for ever: it is left where it is.
//! Ends: well

use super::panics_whose_payload_panics::bomb;
use fusewire::prelude::*;

pub fn run() -> crate::Ended {
    let shm = Shm::rendezvous(&World::single()?, 1 << 16)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let input = device.buffer_from(&[7u32; 64])?;
    let mut output = device.buffer::<u32>(64)?;
    let kernel = bomb::all_to_all(&shm)?;
    for armed in [2, 0, 2, 0] {
        let args = bomb::Launch { input: input.view(), output: output.view_mut(), armed };
        kernel.launch(&stream, args)?;
        let outcome = stream.synchronize();
        crate::ensure(outcome.is_err() == (armed > 0), || format!("{outcome:?}"))?;
        if armed > 0 {
            shm.renew()?;
        }
    }
    let got = output.read(&stream)?;
    crate::ensure(got == vec![7; 64], || format!("{got:?}"))
}
