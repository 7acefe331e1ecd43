use fusewire::prelude::*;

#[comm_kernel(transports(Shm), elements(f32))]
fn ring<O: Ops>(kernel: &Kernel<O>) -> Flow {
    Ok(())
}

fn main() {}
