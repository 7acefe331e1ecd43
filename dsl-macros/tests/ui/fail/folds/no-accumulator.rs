use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(sum))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
