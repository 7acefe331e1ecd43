use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Plain)]
    pub struct Params {
        pub scale: f32,
    }

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub params: Params,
    }
}

fn main() {}
