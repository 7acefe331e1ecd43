use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), schedules(all_gather, sendrecv))]
mod both {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
}

fn main() {}
