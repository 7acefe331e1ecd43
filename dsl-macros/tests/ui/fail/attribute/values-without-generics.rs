use fusewire::prelude::*;

#[comm_kernel(transports(Shm), values(4, 8))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), values(4, 0x4))]
mod twice {
    pub struct Args<'a, const N: usize> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), values("four"))]
mod text {
    pub struct Args<'a, const N: usize> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), values(4, true, 300))]
mod two_types {
    pub struct Args<'a, const N: u8> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn main() {}
