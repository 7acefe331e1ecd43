use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(16))]
mod copy {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Colour {
        pub rgb: [u8; 3],
    }

    pub struct Args<'a> {
        pub input: &'a [Colour],
        pub output: Out<'a, Colour>,
    }

    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<Colour> {
        args.input.row(ctx)
    }
}

fn main() {}
