use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(ring), grain = row(64))]
mod moved {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        args.input.row(ctx)
    }
    pub fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {
        kernel.hooks(args).send_tile(kernel.next(1), kernel.share(args.input.len()))
    }
}

fn main() {}
