use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a, T> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub bias: &'a [T],
    }
}

fn main() {}
