use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    use core::num::Wrapping;

    pub struct Args<'a> {
        pub input: &'a [Wrapping<u32>],
        pub output: Out<'a, Wrapping<u32>>,
    }
}

fn main() {}
