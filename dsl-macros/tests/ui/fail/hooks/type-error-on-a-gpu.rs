use fusewire::prelude::*;

#[comm_kernel(transports(Nvl))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.pos as u32]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).set(value);
    }
}

fn main() {}
