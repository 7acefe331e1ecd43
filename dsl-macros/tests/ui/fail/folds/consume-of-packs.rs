use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(sum, f32))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }

    pub fn consume(ctx: &Consume, args: &Args, sums: Pack<f32>) {
        args.output.at(ctx).set_pack(sums);
    }
}

fn main() {}
