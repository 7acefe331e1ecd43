//! Windows, first part: a ring exchange by `put_signal` and waits for the next signal. Every rank's chunk travels once around.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::Custom;
use fusewire_examples::ranks::Ranks;
use std::process::ExitCode;

/// A ring exchange over a window.
#[derive(Parser)]
struct Arguments {
    /// `host` or `cuda`.
    #[arg(long, default_value = "host", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Elements of each rank's chunk.
    #[arg(long, default_value_t = 10_000)]
    chunk: usize,
}

/// The window's buffer has a place for every rank's chunk. In step `s` a rank puts what it got in step `s - 1` (at first its own chunk)
/// into the next rank's buffer, at the same place, and signals; then it waits for the next signal of the previous rank that was not
/// waited for yet. Thresholds are counts on the device, so that a captured graph replays for ever.
#[comm_kernel(transports(Shm, Nvl))]
pub fn pass_around<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, own: &[f32], all: Out<f32>) -> Flow {
    let (window, n, block) = (kernel.window(&window), own.len(), kernel.block());
    let (rank, world) = (kernel.rank(), kernel.world());
    let share = kernel.share(n);
    let mine = &own[share.start..share.start + share.len];
    // Nobody puts before every block here is done with the last launch's chunks.
    window.barrier(&Block, block)?;
    for step in 0..world - 1 {
        let at = (rank + world - step) % world * n + share.start;
        // SAFETY: blocks put disjoint shares, to places that nobody reads before the signal; what is put on is not written any more.
        unsafe {
            let chunk = if step == 0 { mine } else { window.slice(at, share.len) };
            window.put_signal(&Block, kernel.next(1), at, chunk, block, 1)?;
        }
        window.wait_next_from(&Block, kernel.previous(1), block, 1)?;
    }
    for owner in 0..world {
        let tile = Tile { start: owner * n + share.start, len: share.len };
        // SAFETY: each block writes its own share of each chunk; all of it has arrived.
        unsafe {
            kernel.local_tile(tile, |ctx| {
                let value = if owner == rank { mine[ctx.pos] } else { window.get(ctx.index()) };
                all.at(ctx).set(value)
            });
        }
    }
    Ok(())
}

fn value(rank: usize, i: usize) -> f32 {
    (rank * 1000 + i % 997) as f32
}

fn rank<X: Transport>(world: &World, transport: &X, chunk: usize) -> fusewire::Result<()>
where
    pass_around::Hooks: Supports<Custom, X>,
{
    let (me, size) = (world.rank(), world.size());
    let peers = MultiPeerTransport::new(transport, &PeersConfig::default())?;
    peers.exchange()?;
    let device = Device::of(transport);
    let buffer = device.shared_buffer::<f32>(chunk * size)?;
    let window = HostWindow::new(&peers, WindowConfig::default(), &buffer)?;
    window.exchange()?;
    let (stream, kernel) = (device.stream()?, pass_around::on(transport)?);
    let own = device.buffer_from(&(0..chunk).map(|i| value(me, i)).collect::<Vec<_>>())?;
    let mut all = device.buffer::<f32>(chunk * size)?;
    let graph = stream.capture(|| {
        let args = pass_around::Launch { window: &window, own: own.view(), all: all.view_mut() };
        kernel.launch(&stream, 4, args)
    })?;
    (0..100).try_for_each(|_| graph.launch(&stream))?;
    let expected: Vec<f32> = (0..size).flat_map(|r| (0..chunk).map(move |i| value(r, i))).collect();
    assert_eq!(all.read(&stream)?, expected, "rank {me}");
    println!("rank {me}: has the chunks of all {size} ranks, 100 times, on {}", X::NAME);
    Ok(())
}

fn main() -> ExitCode {
    let Arguments { device, ranks, chunk } = Arguments::parse();
    let cuda = device == "cuda";
    ranks.run(cuda, 4, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, Options::default())?, chunk),
        false => rank(world, &Shm::rendezvous(world, 1 << 20)?, chunk),
    })
}
