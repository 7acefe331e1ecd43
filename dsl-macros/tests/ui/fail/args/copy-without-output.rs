use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod sum {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Accumulate<'a, f32>,
    }
}

fn main() {}
