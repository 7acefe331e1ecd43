use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub values: InOut<'a, Bf16>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.values.get(ctx).to_f32()
    }
}

fn main() {}
