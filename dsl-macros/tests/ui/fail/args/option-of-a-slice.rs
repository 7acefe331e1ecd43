use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub bias: Option<&'a [f32]>,
    }
}

fn main() {}
