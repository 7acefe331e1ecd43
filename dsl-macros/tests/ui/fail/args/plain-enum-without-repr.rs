use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Plain)]
    pub enum Mode {
        Add,
        Set,
    }

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub mode: Mode,
    }
}

fn main() {}
