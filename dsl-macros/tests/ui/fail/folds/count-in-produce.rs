use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), reduce(sum, f32))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub negative: Accumulate<'a, u32>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        let value = args.input[ctx.index()];
        if value < 0.0 {
            args.negative.add(0, 1);
        }
        value
    }
}

fn main() {}
