use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: &Kernel<O>, (a, b): (u32, u32)) -> Flow {
    Ok(())
}

fn main() {}
