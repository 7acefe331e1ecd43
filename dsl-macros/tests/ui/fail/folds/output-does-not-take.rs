use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(sum, u64))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

fn main() {}
