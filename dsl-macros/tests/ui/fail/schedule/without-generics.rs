use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring(kernel: &Kernel<f32>) -> Flow {
    Ok(())
}

fn main() {}
