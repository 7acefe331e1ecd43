//! One module for several numbers, and for element types with each of them.
use fusewire::prelude::*;

/// A filter of `N` taps, over elements of two types.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), elements(f32, Bf16), values(2, 3))]
mod filter {
    pub struct Args<'a, T, const N: usize> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
        pub taps: [f32; N],
    }
    pub fn produce<T: Float, const N: usize>(ctx: &Produce, args: &Args<T, N>) -> T {
        let mut sum = 0.0;
        for (k, tap) in args.taps.iter().enumerate() {
            let at = ctx.index() + k;
            if at < args.input.len() {
                sum += tap * args.input[at].to_f32();
            }
        }
        T::from_f32(sum)
    }
}

/// The number alone, in the other order of parameters, under a name that is used within.
#[comm_kernel(transports(Shm), schedules(sendrecv), elements(u32), values(5, 0x10))]
mod raised {
    pub struct Args<'a, const U: u32, T> {
        pub input: &'a [T],
        pub output: Out<'a, T>,
    }
    pub fn produce<const U: u32, T: Element + Into<u32> + From<u32>>(ctx: &Produce, args: &Args<U, T>) -> T {
        T::from(args.input[ctx.index()].into() + U)
    }
}

/// A choice that no branch makes at run time; by rows.
#[comm_kernel(transports(Shm, Nvl), schedules(all_to_all), grain = row(64), values(true, false))]
mod doubled {
    pub struct Args<'a, const TWICE: bool> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn consume<const TWICE: bool>(ctx: &ConsumeRow, args: &Args<TWICE>, row: Row<f32>) {
        args.output.row(ctx).set(&if TWICE { row.map(|v| 2.0 * v) } else { row });
    }
}

/// A fold.
#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32), values(3))]
mod shifted {
    pub struct Args<'a, const BY: i64> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
    pub fn consume<const BY: i64>(ctx: &Consume, args: &Args<BY>, sum: f32) {
        args.output.at(ctx).set(sum + BY as f32);
    }
}

/// Generic over the number on the host too.
fn filtered<const N: usize>(shm: &Shm, input: &[f32]) -> fusewire::Result<Vec<f32>>
where
    filter::Hooks<f32, N>: filter::Compiled<f32, N, fusewire::schedule::AllToAll, Shm>,
{
    let device = Device::of(shm);
    let (stream, from) = (device.stream()?, device.buffer_from(input)?);
    let mut to = device.buffer::<f32>(input.len())?;
    let args = filter::Launch { input: from.view(), output: to.view_mut(), taps: [1.0; N] };
    filter::all_to_all::<f32, N, _>(shm)?.launch(&stream, args)?;
    to.read(&stream)
}

fn main() -> fusewire::Result<()> {
    let done = World::threads(2, |world| -> fusewire::Result<()> {
        let shm = Shm::rendezvous(&world, 1 << 16)?;
        let ones = [1.0; 32];
        let sums = |n: usize| (0..32).map(|at| n.min(32 - at) as f32).collect::<Vec<_>>();
        for (got, n) in [(filtered::<2>(&shm, &ones)?, 2), (filtered::<3>(&shm, &ones)?, 3)] {
            // Both halves are the first or the second of either rank.
            let (own, half) = (sums(n), 16 * world.rank() as usize);
            assert_eq!(got[..16], own[half..half + 16]);
            assert_eq!(got[16..], own[half..half + 16]);
        }
        let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
        let input = device.buffer_from(&[1u32; 16])?;
        let mut output = device.buffer::<u32>(16)?;
        let args = raised::Launch { input: input.view(), output: output.view_mut() };
        let peer = 1 - world.rank();
        raised::sendrecv::<16, u32, _>(&shm)?.sendrecv(&stream, peer, peer, args)?;
        assert_eq!(output.read(&stream)?, [17; 16]);
        let input = device.buffer_from(&[3.0f32; 128])?;
        let mut output = device.buffer::<f32>(128)?;
        let args = doubled::Launch { input: input.view(), output: output.view_mut() };
        doubled::all_to_all::<true, _>(&shm)?.launch(&stream, args)?;
        assert_eq!(output.read(&stream)?, [6.0; 128]);
        let args = shifted::Launch { input: input.view(), output: output.view_mut() };
        shifted::all_reduce::<3, _>(&shm)?.launch(&stream, args)?;
        assert_eq!(output.read(&stream)?, [9.0; 128]);
        Ok(())
    })?;
    done.into_iter().collect()
}
