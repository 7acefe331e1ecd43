use fusewire::prelude::*;

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    #[cfg(target_arch = "nvptx64")]
    pub fn twice(x: f64) -> f64 {
        2.0 * x
    }
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn twice(x: f32) -> f32 {
        2.0 * x
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        twice(args.input[ctx.index()])
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).set(value);
    }
}

fn main() {}
