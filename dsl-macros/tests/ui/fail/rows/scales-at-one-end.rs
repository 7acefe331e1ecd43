use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(64))]
mod rows {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 32> {
        args.input.row(ctx).quantise(ctx)
    }
}

fn main() {}
