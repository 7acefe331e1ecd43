use fusewire::prelude::*;

#[comm_kernel(transports(Shm), reduce(sum, f32), layout(transposed))]
mod sums {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> f32 {
        args.input[ctx.transposed_index()]
    }
}

fn main() {}
