use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), grain = row(64), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<f32> {
        let before = args.values.row_at(ctx, ctx.index - 1);
        args.values.get_row(ctx).zip(&before, |a, b| a + b)
    }
}

fn main() {}
