use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn run(shm: &Shm) -> fusewire::Result<()> {
    let all_to_all = copy::all_to_all(shm)?;
    let (device, stream) = (Device::of(shm), Device::of(shm).stream()?);
    let input = device.buffer_from(&[1.0f32; 64])?;
    let mut output = device.buffer::<f32>(64)?;
    all_to_all.launch(&stream, copy::Launch { input: input.view(), output: output.view() })
}

fn main() {}
