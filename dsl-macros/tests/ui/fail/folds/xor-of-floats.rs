use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(xor, f32))]
mod parities {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
