use fusewire::prelude::*;

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub extern "sysv64" fn twice(x: f32) -> f32 {
        2.0 * x
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        twice(args.input[ctx.index()])
    }
}

fn main() {}
