use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32, result = u32))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, u32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        args.output.at(ctx).set(value);
    }
}

fn main() {}
