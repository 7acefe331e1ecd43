use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(average, u32))]
mod means {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

fn main() {}
