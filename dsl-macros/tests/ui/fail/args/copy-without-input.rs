use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub source: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
