use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), grain = row(64), reduce(sum, f32))]
mod rows {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        args.input.row(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f64>) {
        args.output.row(ctx).set(&row.map(|x| x as f32));
    }
}

fn main() {}
