//! A length that is none: said once, and hooks of rows are not refused for it as well.

use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all), grain = row(1000))]
mod long {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub sums: PerRow<'a, f32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        args.sums.at(ctx).set(row.sum(ctx));
        args.output.row(ctx).set(&row);
    }
}

fn main() {}
