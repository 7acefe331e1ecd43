//! A hook that is left out is a copy.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [u64],
        pub output: Out<'a, u64>,
    }
}

#[comm_kernel(transports(Shm, Nvl))]
mod histogram {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub counts: Accumulate<'a, u32>,
    }
    pub fn consume(_ctx: &Consume, args: &Args, value: u32) {
        args.counts.add(value as usize % args.counts.len(), 1);
    }
}

#[comm_kernel(transports(Shm, Nvl))]
mod iota {
    pub struct Args<'a> {
        pub output: Out<'a, u16>,
        pub from: u16,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u16 {
        args.from.wrapping_add(ctx.pos as u16)
    }
}

fn main() {}
