use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub scratch: &'a mut [f32],
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index()]
    }
}

fn main() {}
