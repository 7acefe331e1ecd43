use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), layout(transposed), elements(u8, f64))]
mod turn {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn produce<T: Element>(ctx: &Produce, args: &Args<T>) -> T {
        args.input[ctx.transposed_index()]
    }
}

fn main() {}
