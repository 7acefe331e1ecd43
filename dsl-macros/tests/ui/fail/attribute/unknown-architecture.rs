use fusewire::prelude::*;

#[comm_kernel(archs(sm_9))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
