use fusewire::prelude::*;

#[comm_kernel(transports(Shm), elements(f32, u32))]
mod sum {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub sums: Accumulate<'a, T>,
    }
    pub fn consume<T: Element>(ctx: &Consume, args: &Args<T>, value: T) {
        args.sums.add(ctx.pos, value);
    }
}

fn main() {}
