//! One module for several element types; a by-value argument of the element type.
use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), elements(f32, Bf16))]
mod axpy {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
        pub scale: T,
    }
    pub fn produce<T: Float>(ctx: &Produce, args: &Args<T>) -> T {
        T::from_f32(args.input[ctx.index()].to_f32() * args.scale.to_f32())
    }
    pub fn consume<T: Float>(ctx: &Consume, args: &Args<T>, value: T) {
        args.output.at(ctx).update(|old| T::from_f32(old.to_f32() + value.to_f32()));
    }
}

#[comm_kernel(transports(Shm), elements(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, F16, Bf16, F8E4M3, F8E5M2))]
mod copy {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

/// What the fold asks of each type is not written.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), elements(f32, F8E4M3), reduce(sum, f32))]
mod summed {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
}

/// Nor what is asked of each result.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), elements(f32, Bf16), reduce(sum, f32, result = T))]
mod rounded {
    pub struct Args<'a, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn consume<T: Float>(ctx: &Consume, args: &Args<T>, value: T) {
        args.output.at(ctx).set(value);
    }
}

fn main() -> fusewire::Result<()> {
    let done = World::threads(2, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let axpy = axpy::all_to_all::<Bf16, _>(&shm)?;
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let input = device.buffer_from(&[Bf16::from_f32(3.0); 32])?;
        let mut output = device.buffer::<Bf16>(32)?;
        let scale = Bf16::from_f32(0.5);
        axpy.launch(&stream, axpy::Launch { input: input.view(), output: output.view_mut(), scale })?;
        assert!(output.read(&stream)?.iter().all(|v| v.to_f32() == 1.5));
        copy::sendrecv::<F8E5M2, _>(&shm)?;
        let input = device.buffer_from(&[F8E4M3::from_f32(3.0); 32])?;
        let mut output = device.buffer::<F8E4M3>(32)?;
        let args = summed::Launch { input: input.view(), output: output.view_mut() };
        summed::all_reduce::<F8E4M3, _>(&shm)?.launch(&stream, args)?;
        assert!(output.read(&stream)?.iter().all(|v| v.to_f32() == 6.0));
        let input = device.buffer_from(&[Bf16::from_f32(3.0); 32])?;
        let mut output = device.buffer::<Bf16>(32)?;
        let args = rounded::Launch { input: input.view(), output: output.view_mut() };
        rounded::all_reduce::<Bf16, _>(&shm)?.launch(&stream, args)?;
        assert!(output.read(&stream)?.iter().all(|v| v.to_f32() == 6.0));
        Ok(())
    })?;
    done.into_iter().collect()
}
