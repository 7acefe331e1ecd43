use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32), grain = row(64))]
mod sum {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
}

fn main() {}
