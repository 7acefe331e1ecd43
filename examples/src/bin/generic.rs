//! One module for several element types, and functions of the host that are as generic as it is.

use fusewire::prelude::*;
use fusewire::schedule::AllToAll;

/// Scales by an argument of the element's own type.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), elements(f32, Bf16))]
mod scaled {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
        pub scale: T,
    }

    pub fn produce<T: Float>(ctx: &Produce, args: &Args<T>) -> T {
        T::from_f32(args.input[ctx.index()].to_f32() * args.scale.to_f32())
    }
}

/// Half of each element, to every rank: on any transport, for any element type that the module is compiled for.
fn halves<T: Float, X: Transport>(transport: &X, values: &[T]) -> fusewire::Result<Vec<T>>
where
    scaled::Hooks<T>: scaled::Compiled<T, AllToAll, X>,
{
    let (device, stream) = (Device::of(transport), Device::of(transport).stream()?);
    let input = device.buffer_from(values)?;
    let mut output = device.buffer::<T>(values.len())?;
    let kernel = scaled::all_to_all(transport)?;
    let scale = T::from_f32(0.5);
    kernel.launch(&stream, scaled::Launch { input: input.view(), output: output.view_mut(), scale })?;
    output.read(&stream)
}

/// Checks it for one type.
fn check<T: Float, X: Transport>(transport: &X) -> fusewire::Result<()>
where
    scaled::Hooks<T>: scaled::Compiled<T, AllToAll, X>,
{
    let (me, n) = (transport.rank(), transport.world_size());
    let got = halves(transport, &vec![T::from_f32(me as f32 + 1.0); 100 * n])?;
    for (from, chunk) in got.chunks(100).enumerate() {
        assert!(chunk.iter().all(|value| value.to_f32() == (from as f32 + 1.0) * 0.5));
    }
    println!("rank {me}: {} from {n} ranks", T::NAME);
    Ok(())
}

fn rank(world: World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&world, 1 << 20)?;
    check::<f32, _>(&shm)?;
    check::<Bf16, _>(&shm)
}

fn main() -> fusewire::Result<()> {
    World::threads(3, rank)?.into_iter().collect()
}
