//! An array's length by a function whose body asks for the target: both compilers' answers are compared.
use fusewire::prelude::*;

#[comm_kernel(transports(Nvl), schedules(sendrecv))]
mod kernel {
    const fn len() -> usize {
        if cfg!(target_arch = "nvptx64") { 64 } else { 1 }
    }
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
        pub table: [u32; len()],
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.input[ctx.index()] + args.table[0]
    }
}

fn main() {}
