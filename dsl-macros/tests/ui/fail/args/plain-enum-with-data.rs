use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy, Plain)]
    #[repr(u8)]
    pub enum Mode {
        Add,
        Scale(f32),
    }

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub mode: Mode,
    }
}

fn main() {}
