use fusewire::prelude::*;

#[comm_kernel(transports(Shm), elements(f32, u32))]
mod same {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn produce<E: Element>(ctx: &Produce, args: &Args<E>) -> E {
        args.input[ctx.index()]
    }
}

fn main() {}
