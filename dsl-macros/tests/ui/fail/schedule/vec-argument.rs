use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: &Kernel<O>, input: Vec<f32>) -> Flow {
    Ok(())
}

fn main() {}
