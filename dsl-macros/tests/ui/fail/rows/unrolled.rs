use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(64), unroll(4))]
mod rows {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        args.input.row(ctx)
    }
}

fn main() {}
