use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
struct Copy {
    input: Vec<f32>,
}

fn main() {}
