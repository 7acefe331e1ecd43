use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(64))]
mod rows {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        args.input.row(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, value: f32) {
        args.output.row(ctx).set(&Row::from_fn(|_| value));
    }
}

fn main() {}
