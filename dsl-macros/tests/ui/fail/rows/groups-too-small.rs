use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(64))]
mod rows {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 16> {
        args.input.row(ctx).quantise(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 16>) {
        args.output.row(ctx).set(&row.dequantise());
    }
}

fn main() {}
