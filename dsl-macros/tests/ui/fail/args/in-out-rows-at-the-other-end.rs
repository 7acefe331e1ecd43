use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), grain = row(64), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        let row = args.values.get_row(ctx);
        args.values.row(ctx).set(&row);
        row
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        args.values.row(ctx).set(&args.values.get_row(ctx).zip(&row, |a, b| a + b));
    }
}

fn main() {}
