use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, Bf16>,
    }
}

fn main() {}
