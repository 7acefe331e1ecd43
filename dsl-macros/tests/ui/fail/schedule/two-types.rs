use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops, T: Element>(kernel: &Kernel<O>, input: &[T]) -> Flow {
    Ok(())
}

fn main() {}
