//! A value for each pair of braces.

use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all))]
mod count {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        print_at!(ctx, "sends {} to {}", args.input[ctx.index()]);
        args.input[ctx.index()]
    }
}

fn main() {}
