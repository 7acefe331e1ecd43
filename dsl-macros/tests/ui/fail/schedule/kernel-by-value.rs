use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: Kernel<O>) -> Flow {
    Ok(())
}

fn main() {}
