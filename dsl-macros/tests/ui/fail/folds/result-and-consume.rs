use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32, result = Bf16))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, f32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: f32) {
        args.output.at(ctx).set(value);
    }
}

fn main() {}
