use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
    #[repr(C)]
    pub struct Found {
        pub value: f64,
        pub rank: u32,
    }

    pub struct Args<'a> {
        pub input: &'a [Found],
        pub output: Out<'a, Found>,
    }
}

fn main() {}
