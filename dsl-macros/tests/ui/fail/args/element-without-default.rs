use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Element)]
    #[repr(C)]
    pub struct Complex {
        pub re: f32,
        pub im: f32,
    }

    pub struct Args<'a> {
        pub input: &'a [Complex],
        pub output: Out<'a, Complex>,
    }
}

fn main() {}
