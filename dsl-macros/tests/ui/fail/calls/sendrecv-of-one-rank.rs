use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(sendrecv))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn main() -> fusewire::Result<()> {
    let mut output = [0.0];
    fusewire::alone::run(copy::sendrecv, |slices| copy::Launch {
        input: slices.read(&[1.0]),
        output: slices.write(&mut output),
    })
}
