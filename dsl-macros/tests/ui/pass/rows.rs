use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), grain = row(64), elements(f32, Bf16))]
mod rows {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn consume<T: Float>(ctx: &ConsumeRow, args: &Args<T>, row: Row<T>) {
        let sum = row.to_f32().sum(ctx);
        args.output.row(ctx).set(&row.to_f32().map(|x| x / sum).to());
    }
}

/// Folded in f32, and told as what was sent.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(64), elements(f32, Bf16), reduce(sum, f32, result = Row<T>))]
mod rounded {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn consume<T: Float>(ctx: &ConsumeRow, args: &Args<T>, row: Row<T>) {
        args.output.row(ctx).set(&row);
    }
}

fn main() {}
