use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(ring))]
mod moved {
    pub struct Args<'a> {
        pub buffer: InOut<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        args.buffer.pack(ctx)
    }
    pub fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {
        kernel.hooks(args).send_tile(kernel.next(1), kernel.share(args.buffer.len()))
    }
}

fn main() {}
