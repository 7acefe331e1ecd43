use fusewire::prelude::*;

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index()]
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        let text = format!("{value}");
        args.output.at(ctx).set(text.len() as f32);
    }
}

fn main() {}
