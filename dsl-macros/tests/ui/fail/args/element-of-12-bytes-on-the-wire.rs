use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Point {
        pub at: [f32; 3],
    }

    pub struct Args<'a> {
        pub input: &'a [Point],
        pub output: Out<'a, Point>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> Point {
        args.input[ctx.index()]
    }
}

fn main() {}
