use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy;

fn main() {}
