use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    type Flag = bool;

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub flags: &'a [Flag],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
