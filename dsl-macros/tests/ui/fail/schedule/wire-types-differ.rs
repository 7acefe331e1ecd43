use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn ring<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>) -> Flow {
    let tile = kernel.share(input.len());
    kernel.send_tile(kernel.next(1), tile, |ctx| input[ctx.index()] > 0.0)?;
    // SAFETY: one tile for each index.
    unsafe { kernel.recv_tile(kernel.previous(1), tile, |ctx, value: f32| output.at(ctx).set(value)) }
}

fn main() {}
