use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Scale(f32);

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub scale: Scale,
        pub output: Out<'a, f32>,
    }
}

fn main() {}
