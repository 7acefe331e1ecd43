use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a>(&'a [f32], Out<'a, f32>);
}

fn main() {}
