//! A schedule of one's own from tiles: a ring all-gather. Each rank's block passes on what it received, one hop at a time.

use fusewire::prelude::*;

/// After `world - 1` steps every rank holds the chunks of all ranks. Flow control is the tiles' own: `send_tile` waits only for room in
/// the peer's staging, `recv_tile` only for data.
#[comm_kernel(transports(Shm, Nvl))]
pub fn ring_all_gather<O: Ops>(kernel: &Kernel<O>, input: &[f32], output: Out<f32>, chunk: usize) -> Flow {
    let (rank, world) = (kernel.rank(), kernel.world());
    let share = kernel.share(chunk);
    let at = |owner: usize| Tile { start: owner * chunk + share.start, len: share.len };
    // SAFETY: each block writes its own share of each owner's chunk, once.
    unsafe { kernel.local_tile(at(rank), |ctx| output.at(ctx).set(input[share.start + ctx.pos])) };
    for step in 0..world - 1 {
        let (sent, received) = ((rank + world - step) % world, (rank + 2 * world - step - 1) % world);
        kernel.sync();
        // SAFETY: what goes on was written by this block in the step before.
        kernel.send_tile(kernel.next(1), at(sent), |ctx| unsafe { output.read(ctx.index()) })?;
        // SAFETY: as above.
        unsafe {
            kernel.recv_tile(kernel.previous(1), at(received), |ctx, value: f32| output.at(ctx).set(value))?
        };
    }
    Ok(())
}

fn rank(world: World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&world, 1 << 20)?;
    let all_gather = ring_all_gather::on(&shm)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let chunk = 1000;
    let input = device.buffer_from(&vec![world.rank() as f32; chunk])?;
    let mut output = device.buffer::<f32>(chunk * world.size())?;
    all_gather.launch(
        &stream,
        2,
        ring_all_gather::Launch { input: input.view(), output: output.view_mut(), chunk },
    )?;
    let expected: Vec<f32> = (0..world.size()).flat_map(|r| vec![r as f32; chunk]).collect();
    assert_eq!(output.read(&stream)?, expected);
    println!("rank {}: has the chunks of all {} ranks", world.rank(), world.size());
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(4, rank)?.into_iter().collect()
}
