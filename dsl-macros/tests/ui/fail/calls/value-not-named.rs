use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all), values(4, 8))]
mod taps {
    pub struct Args<'a, const N: usize> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
        pub taps: [f32; N],
    }
}

fn run(shm: &Shm) -> fusewire::Result<()> {
    taps::all_to_all::<16, _>(shm)?;
    Ok(())
}

fn main() {}
