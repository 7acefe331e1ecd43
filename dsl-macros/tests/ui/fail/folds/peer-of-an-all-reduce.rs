use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub scales: &'a [f32],
    }

    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.index()] * args.scales[ctx.peer]
    }
}

fn main() {}
