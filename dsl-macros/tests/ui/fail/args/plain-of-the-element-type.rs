use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Plain)]
    #[repr(C)]
    pub struct Params<T> {
        pub scale: T,
    }

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub params: Params<f32>,
    }
}

fn main() {}
