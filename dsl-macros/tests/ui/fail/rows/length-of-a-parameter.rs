use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(N), values(2048, 4096))]
mod copy {
    pub struct Args<'a, const N: usize> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn produce<const N: usize>(ctx: &ProduceRow, args: &Args<N>) -> Row<f32> {
        args.input.row(ctx)
    }
}

fn main() {}
