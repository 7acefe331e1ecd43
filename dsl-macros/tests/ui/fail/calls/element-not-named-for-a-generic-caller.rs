use fusewire::prelude::*;
use fusewire::schedule::AllToAll;

#[comm_kernel(transports(Shm), elements(f32, Bf16))]
mod copy {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

fn run<T: Element, X: Transport>(transport: &X) -> fusewire::Result<()>
where
    copy::Hooks<T>: copy::Compiled<T, AllToAll, X>,
{
    let input = Device::of(transport).buffer::<T>(8)?;
    let mut output = Device::of(transport).buffer::<T>(8)?;
    let args = copy::Launch { input: input.view(), output: output.view_mut() };
    copy::all_to_all(transport)?.launch(&Device::of(transport).stream()?, args)
}

fn both(shm: &Shm) -> fusewire::Result<()> {
    run::<Bf16, _>(shm)?;
    run::<F16, _>(shm)
}

fn main() {}
