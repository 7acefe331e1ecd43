use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(ring))]
mod moved {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.transposed_index()]
    }
    pub fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {
        kernel.hooks(args).send_tile(kernel.next(1), kernel.share(args.input.len()))
    }
}

#[comm_kernel(transports(Shm), schedules(ring))]
mod by_packs {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        /// A field of that name reads nothing transposed.
        pub transposed: u32,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> Pack<f32> {
        if args.transposed > 0 { args.input.transposed(ctx) } else { args.input.pack(ctx) }
    }
    pub fn ring<O: Ops>(kernel: &Kernel<O>, args: &Args) -> Flow {
        kernel.hooks(args).send_tile(kernel.next(1), kernel.share(args.input.len()))
    }
}

fn main() {}
