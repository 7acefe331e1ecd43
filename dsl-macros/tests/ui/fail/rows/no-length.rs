use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod rows {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        args.output.row(ctx).set(&row);
    }
}

fn main() {}
