use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_gather), grain = row(64))]
mod never_read {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub values: InOut<'a, f32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        args.values.row(ctx).set(&row);
    }
}

#[comm_kernel(transports(Shm), schedules(all_gather), grain = row(64))]
mod sent_as_another_type {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<Bf16>) {
        args.values.row(ctx).set(&row.to_f32());
    }
}

#[comm_kernel(transports(Shm), schedules(sendrecv), grain = row(64))]
mod of_another_schedule {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        args.values.row(ctx).set(&row);
    }
}

fn main() {}
