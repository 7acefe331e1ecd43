use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> bool {
        args.input[ctx.index()] > 0.0
    }
    pub fn consume(ctx: &Consume, args: &Args, value: bool) {
        args.output.at(ctx).set(value as u8 as f32);
    }
}

fn main() {}
