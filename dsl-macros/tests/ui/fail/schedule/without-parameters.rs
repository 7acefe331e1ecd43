use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>() -> Flow {
    Ok(())
}

fn main() {}
