use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
unsafe fn ring<O: Ops>(kernel: &Kernel<O>) -> Flow {
    Ok(())
}

fn main() {}
