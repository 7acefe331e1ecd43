use fusewire::prelude::*;

#[comm_kernel(transports(Shm), values(4, 8))]
mod taps {
    pub struct Args<'a, const N: usize> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub taps: [f32; N],
    }
    pub fn produce<const TAPS: usize>(ctx: &Produce, args: &Args<TAPS>) -> f32 {
        args.taps[0] * args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args<4>, value: f32) {
        args.output.at(ctx).set(value);
    }
}

fn main() {}
