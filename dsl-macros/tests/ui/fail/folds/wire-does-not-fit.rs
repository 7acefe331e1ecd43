use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(sum, f32))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f64],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
