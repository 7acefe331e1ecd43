use fusewire::prelude::*;

#[comm_kernel(transports(Shm), elements(f32, u32))]
mod scale {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn produce<T: Float>(ctx: &Produce, args: &Args<T>) -> T {
        T::from_f32(args.input[ctx.index()].to_f32() * 2.0)
    }
}

fn main() {}
