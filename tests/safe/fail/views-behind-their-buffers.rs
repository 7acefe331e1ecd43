//! Views of buffers that are gone, and two of what is written.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

fn main() -> fusewire::Result<()> {
    let device = Device::host();
    let mut output = device.buffer::<u32>(4)?;
    let view = {
        let input = device.buffer::<u32>(4)?;
        input.view()
    };
    let args = copy::Launch { input: view, output: output.view_mut() };
    let twice = copy::Launch { input: output.view(), output: output.view_mut() };
    drop((args, twice));
    Ok(())
}
