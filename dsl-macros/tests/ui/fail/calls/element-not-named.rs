use fusewire::prelude::*;

#[comm_kernel(transports(Shm), elements(f32, Bf16))]
mod copy {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

fn run(shm: &Shm) -> fusewire::Result<()> {
    copy::all_to_all::<F16, _>(shm)?;
    Ok(())
}

fn main() {}
