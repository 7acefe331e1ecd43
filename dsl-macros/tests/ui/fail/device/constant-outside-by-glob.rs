use fusewire::prelude::*;

const SCALE: f32 = 2.0;

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    use super::*;
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        SCALE * args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).set(value);
    }
}

fn main() {}
