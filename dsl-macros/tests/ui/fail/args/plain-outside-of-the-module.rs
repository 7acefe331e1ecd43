use fusewire::prelude::*;

#[derive(Clone, Copy, Plain)]
#[repr(C)]
pub struct Params {
    pub scale: f32,
}

#[comm_kernel(transports(Shm))]
mod copy {
    use super::Params;

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub params: Params,
    }
}

fn main() {}
