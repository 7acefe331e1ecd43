use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a, const N: usize> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub taps: [f32; N],
    }
}

fn main() {}
