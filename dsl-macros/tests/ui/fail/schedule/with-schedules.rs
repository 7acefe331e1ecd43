use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all))]
fn ring<O: Ops>(kernel: &Kernel<O>) -> Flow {
    Ok(())
}

fn main() {}
