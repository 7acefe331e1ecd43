use fusewire::prelude::*;

#[comm_kernel(transports(Shm), schedules(all_to_all), elements(f32, u8))]
mod copy {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

fn run(nvl: &Nvl) -> fusewire::Result<()> {
    copy::all_to_all::<f32, _>(nvl)?;
    Ok(())
}

fn main() {}
