use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.input[ctx.index()] = value;
    }
}

fn main() {}
