use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: &Kernel<O>, input: &[f32]) -> Flow {
    kernel.send_tile(kernel.next(1), kernel.share(input.len()), |ctx| [input.pack(ctx); 2])
}

fn main() {}
