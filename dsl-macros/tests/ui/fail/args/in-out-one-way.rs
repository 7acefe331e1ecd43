use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_gather))]
mod never_read {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub values: InOut<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), schedules(all_gather))]
mod never_written {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
        pub output: Out<'a, f32>,
    }
}

#[comm_kernel(transports(Shm), schedules(all_gather))]
mod of_another_type {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn produce(ctx: &Produce, args: &Args) -> u32 {
        args.values.get(ctx) as u32
    }
}

fn main() {}
