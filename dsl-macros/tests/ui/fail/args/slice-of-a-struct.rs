use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    #[derive(Clone, Copy)]
    pub struct Point(f32);

    pub struct Args<'a> {
        pub input: &'a [f32],
        pub points: &'a [Point],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
