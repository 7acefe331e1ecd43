//! What of a kernel needs a promise, without one.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
fn all<O: Put + Get>(kernel: &Kernel<O>, input: &[u32], output: Out<u32>, window: DeviceWindow) -> Flow {
    let tile = kernel.share(input.len());
    kernel.recv_tile(0, tile, |ctx, value: u32| output.at(ctx).set(value))?;
    kernel.local_tile(tile, |ctx| output.at(ctx).set(1));
    kernel.keep_tile(tile, 0, |ctx| input.pack(ctx), |ctx, value| output.at(ctx).set_pack(value));
    kernel.take_channel(1);
    kernel.put(0, 0, input)?;
    kernel.get::<u32>(0, 0, 0, 1)?;
    let _ = kernel.heap_get::<u32>(0);
    output.write(0, output.read(1));
    let window = kernel.window(&window);
    window.put(&Block, 0, 0, input)?;
    window.set(0, window.get::<u32>(1));
    Ok(())
}

#[comm_kernel(transports(Shm), schedules(round))]
mod hooks {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn round<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {
        let (hooks, tile) = (kernel.hooks(args), kernel.share(args.input.len()));
        hooks.keep_tile(tile, 0);
        hooks.recv_tile(0, tile)
    }
}

fn main() {}
