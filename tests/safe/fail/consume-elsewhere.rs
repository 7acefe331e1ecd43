//! A witness of exclusive access given to another thread.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod kernel {
    pub struct Args<'a> {
        pub input: &'a [u32],
        pub output: Out<'a, u32>,
    }
    pub fn consume(ctx: &Consume, args: &Args, value: u32) {
        std::thread::scope(|threads| {
            threads.spawn(|| args.output.at(ctx).set(value));
        });
    }
}

fn main() {}
