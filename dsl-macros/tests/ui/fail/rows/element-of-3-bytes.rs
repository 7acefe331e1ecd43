use fusewire::prelude::*;

#[comm_kernel(transports(Shm), grain = row(16))]
mod kernel {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Colour {
        pub red: u8,
        pub green: u8,
        pub blue: u8,
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
