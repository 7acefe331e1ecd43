use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<'a, O: Ops>(kernel: &Kernel<O>, input: &'a [f32]) -> Flow {
    Ok(())
}

fn main() {}
