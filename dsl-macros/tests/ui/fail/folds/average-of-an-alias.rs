use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(average, Count))]
mod means {
    pub type Count = u32;

    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
}

fn main() {}
