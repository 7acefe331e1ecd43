use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: &Kernel<O>) {
    kernel.sync();
}

fn main() {}
