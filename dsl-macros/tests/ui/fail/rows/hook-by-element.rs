use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(64))]
mod rows {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index()]
    }
}

fn main() {}
