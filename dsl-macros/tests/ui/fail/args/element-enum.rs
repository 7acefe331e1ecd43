use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(u8)]
    pub enum Mode {
        #[default]
        Add,
        Set,
    }

    pub struct Args<'a> {
        pub input: &'a [Mode],
        pub output: Out<'a, Mode>,
    }
}

fn main() {}
