use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), grain = row(64), reduce(sum, f32, result = Bf16))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<Bf16>) {
        args.output.row(ctx).set(&row);
    }
}

fn main() {}
