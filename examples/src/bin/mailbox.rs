//! A schedule of one's own from raw operations: every rank puts a message into its neighbour's heap and rings.

use fusewire::prelude::*;

/// `put` writes the neighbour's symmetric heap, `signal` makes it visible, `wait` waits for the next signal that was not waited for
/// yet: counts live on the device, so a captured graph replays for ever.
#[comm_kernel(transports(Shm, Nvl))]
pub fn mailbox<O: Put>(kernel: &Kernel<O>, message: &[u32], received: Out<u32>) -> Flow {
    let (up, down) = (kernel.next(1), kernel.previous(1));
    // SAFETY: signal 1 of the neighbour said that it has read the last message (below); the first time there is none.
    unsafe { kernel.put(up, 0, message)? };
    kernel.signal(up, 0)?;
    kernel.wait(down, 0)?;
    let all = Tile { start: 0, len: received.len() };
    // SAFETY: one block, and the message is not written again before signal 1.
    unsafe { kernel.local_tile(all, |ctx| received.at(ctx).set(kernel.heap_get(ctx.pos))) };
    kernel.signal(down, 1)?;
    kernel.wait(up, 1)
}

fn rank(world: World) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(&world, Options::default().heap(64 << 10).signals(2))?;
    let mailbox = mailbox::on(&shm)?;
    let (device, stream) = (Device::of(&shm), Device::of(&shm).stream()?);
    let (me, n) = (world.rank() as u32, world.size() as u32);
    let message = device.buffer_from(&[me, me * me, 7])?;
    let mut received = device.buffer::<u32>(3)?;
    let graph = stream.capture(|| {
        mailbox.launch(&stream, 1, mailbox::Launch { message: message.view(), received: received.view_mut() })
    })?;
    for _ in 0..100 {
        graph.launch(&stream)?;
    }
    let down = (me + n - 1) % n;
    assert_eq!(received.read(&stream)?, [down, down * down, 7]);
    println!("rank {me}: 100 messages from rank {down}");
    Ok(())
}

fn main() -> fusewire::Result<()> {
    World::threads(4, rank)?.into_iter().collect()
}
