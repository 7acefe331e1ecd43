use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Flagged {
        pub value: u8,
        pub flag: bool,
    }

    pub struct Args<'a> {
        pub input: &'a [Flagged],
        pub output: Out<'a, Flagged>,
    }
}

fn main() {}
