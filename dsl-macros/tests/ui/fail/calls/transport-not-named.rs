use fusewire::prelude::*;

#[comm_kernel(transports(Shm))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

fn run(nvl: &Nvl) -> fusewire::Result<()> {
    copy::all_to_all(nvl)?;
    Ok(())
}

fn main() {}
