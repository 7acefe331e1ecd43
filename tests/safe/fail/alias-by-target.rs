//! A type that the target decides.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all))]
pub mod kernel {
    #[cfg(target_arch = "nvptx64")]
    pub type E = u64;
    #[cfg(not(target_arch = "nvptx64"))]
    pub type E = u32;
    pub struct Args<'a> {
        pub input: &'a [E],
        pub output: Out<'a, E>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> E {
        args.input[ctx.index()].wrapping_add(1)
    }
    pub fn consume(ctx: &Consume, args: &Args, v: E) {
        args.output.at(ctx).set(v)
    }
}

fn main() {}
