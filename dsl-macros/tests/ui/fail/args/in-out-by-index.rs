use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.values[ctx.index() + 1]
    }
}

fn main() {}
