use fusewire::prelude::*;

fn ring<O: Put>(kernel: &Kernel<O>) -> Flow {
    kernel.sync();
    Ok(())
}

fn run<O: Ops>(kernel: &Kernel<O>) -> Flow {
    ring(kernel)
}

fn main() {}
