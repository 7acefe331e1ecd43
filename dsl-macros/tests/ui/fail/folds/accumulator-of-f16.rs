use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(sum, f16))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [F16],
        pub output: Out<'a, F16>,
    }
}

fn main() {}
