//! `send`, `recv` and `sendrecv`: neighbours in a ring exchange bf16 values that are f32 at both ends.

use fusewire::prelude::*;

/// f32 at both ends, bf16 on the wire: half the bytes.
#[comm_kernel(transports(Shm, Nvl), schedules(sendrecv))]
mod narrow {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }

    pub fn produce(ctx: &Produce, args: &Args) -> Bf16 {
        Bf16::from_f32(args.input[ctx.index()])
    }

    pub fn consume(ctx: &Consume, args: &Args, value: Bf16) {
        args.output.at(ctx).set(value.to_f32());
    }
}

fn rank(world: World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&world, 1 << 20)?;
    let exchange = narrow::sendrecv(&shm)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let (me, n) = (world.rank(), world.size());
    let (up, down) = ((me + 1) % n, (me + n - 1) % n);
    let input = device.buffer_from(&vec![me as f32 + 0.5; 1000])?;
    let mut output = device.buffer::<f32>(1000)?;

    // Both at once: one kernel, two groups of blocks.
    exchange.sendrecv(
        &stream,
        up,
        down,
        narrow::Launch { input: input.view(), output: output.view_mut() },
    )?;
    assert_eq!(output.read(&stream)?, vec![down as f32 + 0.5; 1000]);

    // Or one direction: even ranks send, odd ranks receive.
    let launch = narrow::Launch { input: input.view(), output: output.view_mut() };
    match me % 2 {
        0 if me + 1 < n => exchange.send(&stream, me + 1, launch)?,
        1 => exchange.recv(&stream, me - 1, launch)?,
        _ => {}
    }
    stream.synchronize()?;
    println!("rank {me}: exchanged with {up} and {down}");
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(4, rank)?.into_iter().collect()
}
