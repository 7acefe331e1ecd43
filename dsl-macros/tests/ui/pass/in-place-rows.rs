//! In place by rows: with both hooks, with either, with scales, and what is gathered.
#![forbid(unsafe_code)]

use fusewire::prelude::*;

#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(64), reduce(sum, f32))]
mod normed {
    pub struct Args<'a> {
        pub hidden: InOut<'a, Bf16>,
        pub residual: Out<'a, Bf16>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<f32>) {
        let residual = args.residual.row(ctx);
        let x = row.zip(&residual.get().to_f32(), |x, residual| x + residual);
        residual.set(&x.to());
        let most = x.max(ctx);
        args.hidden.row(ctx).set(&x.map(|x| x / most).to());
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce, reduce_scatter), grain = row(64), elements(f32, Bf16), reduce(sum, f32))]
mod shares {
    pub struct Args<'a, T> {
        pub values: InOut<'a, T>,
    }
    pub fn produce<T: Float>(ctx: &ProduceRow, args: &Args<T>) -> Row<T> {
        let row = args.values.get_row(ctx).to_f32();
        let sum = row.sum(ctx);
        row.map(|x| x / sum).to()
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), grain = row(128), reduce(sum, f32, result = Scaled<F8E4M3, 128>))]
mod both_ways {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Scaled<F8E4M3, 128> {
        args.values.get_row(ctx).quantise(ctx)
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Scaled<F8E4M3, 128>) {
        args.values.row(ctx).set(&row.dequantise());
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_gather, broadcast), grain = row(16))]
mod gather {
    pub struct Args<'a> {
        pub values: InOut<'a, u32>,
    }
    pub fn consume(ctx: &ConsumeRow, args: &Args, row: Row<u32>) {
        let sum = row.sum(ctx);
        args.values.row(ctx).set(&row.map(|x| x + sum));
    }
}

#[comm_kernel(transports(Shm, Nvl), schedules(all_gather), grain = row(16))]
mod scanned {
    pub struct Args<'a> {
        pub values: InOut<'a, u32>,
    }
    pub fn produce(ctx: &ProduceRow, args: &Args) -> Row<u32> {
        args.values.get_row(ctx).scan(ctx, 0, |a, b| a + b)
    }
}

fn rank(world: &World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(world, 1 << 18)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let me = world.rank();

    let mut hidden = device.buffer_from(&[Bf16::from_f32(1.0); 192])?;
    let mut residual = device.buffer_from(&[Bf16::from_f32(2.0); 192])?;
    let args = normed::Launch { hidden: hidden.view_mut(), residual: residual.view_mut() };
    normed::all_reduce(&shm)?.launch(&stream, args)?;
    assert_eq!(hidden.read(&stream)?, [Bf16::from_f32(1.0); 192]);
    assert_eq!(residual.read(&stream)?, [Bf16::from_f32(4.0); 192]);

    let mut values = device.buffer_from(&[3.0f32; 256])?;
    shares::all_reduce::<f32, _>(&shm)?.launch(&stream, shares::Launch { values: values.view_mut() })?;
    assert_eq!(values.read(&stream)?, [1.0 / 32.0; 256]);
    let scatter = shares::reduce_scatter::<f32, _>(&shm)?;
    scatter.launch(&stream, shares::Launch { values: values.view_mut() })?;
    assert_eq!(values.read(&stream)?, [1.0 / 32.0; 256]);

    let mut values = device.buffer_from(&[7.0f32; 128])?;
    both_ways::all_reduce(&shm)?.launch(&stream, both_ways::Launch { values: values.view_mut() })?;
    assert_eq!(values.read(&stream)?, [14.0; 128]);

    let mine = |rank: usize| if rank == me { 1 + rank as u32 } else { 9 };
    let mut values = device.buffer_from(&[[mine(0); 16], [mine(1); 16]].concat())?;
    gather::all_gather(&shm)?.launch(&stream, gather::Launch { values: values.view_mut() })?;
    assert_eq!(values.read(&stream)?, [[17; 16], [34; 16]].concat());

    scanned::all_gather(&shm)?.launch(&stream, scanned::Launch { values: values.view_mut() })?;
    let before = |x: u32| (0..16).map(move |k| x * k);
    assert_eq!(values.read(&stream)?, before(17).chain(before(34)).collect::<Vec<_>>());
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(2, |world| rank(&world))?.into_iter().collect()
}
