//! What windows cost: a signal there and back beside the bare flag, barriers, and `put_signal` by size. One JSON line each, or a table.

use clap::Parser;
use fusewire::kernel::{HookSet, Supports};
use fusewire::prelude::*;
use fusewire::schedule::{Custom, CustomLauncher};
use fusewire_examples::ranks::{Ranks, bytes_text};
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Benchmark of windows.
#[derive(Parser)]
struct Arguments {
    /// `host` or `cuda`.
    #[arg(long, default_value = "cuda", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Print JSON lines instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    op: String,
    world: usize,
    bytes: usize,
    /// One way for flags and signals, one barrier, one exchange; the slowest rank's median, microseconds.
    us: f64,
    /// Bytes of one rank in one direction over the time.
    gb_s: f64,
    /// In times of the bare flag, one way, of the same run.
    flags: f64,
}

/// A flag there and back, without anything around it: what the machine itself takes. Ranks 0 and 1; gives up after many looks.
#[comm_kernel(transports(Shm, Nvl))]
pub fn bare_flag<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, rounds: u64, first: u64) -> Flow {
    use fusewire::device::atomic::{Acquire, Release, System, load, store};
    use fusewire::device::window::WindowPeer;
    let me = kernel.rank();
    if me > 1 || !Block.leads() {
        return Ok(());
    }
    // SAFETY: the table of the window, and two words of it that nothing else uses meanwhile.
    unsafe {
        let peer = (window.parts().peers as *const WindowPeer).add(1 - me).read();
        let (out, inbox) = (peer.signals_out as *mut u64, peer.signals_in as *const u64);
        let mut round = first;
        while round < first + rounds {
            if me == 0 {
                store::<System, Release, u64>(out, round + 1);
            }
            let mut looks = 0u32;
            while load::<System, Acquire, u64>(inbox) <= round {
                looks += 1;
                if looks > 1 << 24 {
                    return Ok(());
                }
            }
            if me == 1 {
                store::<System, Release, u64>(out, round + 1);
            }
            round += 1;
        }
    }
    Ok(())
}

/// The same with a signal of the window, by one thread or by the block.
#[comm_kernel(transports(Shm, Nvl))]
pub fn signals<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, rounds: u64, by_block: bool) -> Flow {
    #[inline(always)]
    fn turns<O: Ops, G: Group>(group: &G, me: usize, window: &Window<'_, O, AllMapped>, rounds: u64) -> Flow {
        let mut round = 0;
        while round < rounds {
            if me == 0 {
                window.signal_peer(group, 1, 1, SignalOp::Add, 1)?;
            }
            window.wait_next_from(group, 1 - me, 1, 1)?;
            if me == 1 {
                window.signal_peer(group, 0, 1, SignalOp::Add, 1)?;
            }
            round += 1;
        }
        Ok(())
    }
    let (me, window) = (kernel.rank(), kernel.window(&window));
    match (me < 2, by_block) {
        (false, _) => Ok(()),
        (true, true) => turns(&Block, me, &window, rounds),
        (true, false) if Block.leads() => turns(&Thread, me, &window, rounds),
        _ => Ok(()),
    }
}

/// Barriers of all ranks, one block each.
#[comm_kernel(transports(Shm, Nvl))]
pub fn barriers<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, rounds: u64) -> Flow {
    let window = kernel.window(&window);
    let mut round = 0;
    while round < rounds {
        window.barrier(&Block, 0)?;
        round += 1;
    }
    Ok(())
}

/// Every rank puts `bytes` to the next and waits for the previous rank's; each block its share, with a signal of its own.
#[comm_kernel(transports(Shm, Nvl))]
pub fn exchange<O: Ops>(kernel: &Kernel<O>, window: DeviceWindow, input: &[u64], rounds: u64) -> Flow {
    let (window, share, block) = (kernel.window(&window), kernel.share(input.len()), kernel.block());
    let own = &input[share.start..share.start + share.len];
    let mut round = 0;
    while round < rounds {
        // SAFETY: what is put is not read before the end, and is the same each time.
        unsafe { window.put_signal(&Block, kernel.next(1), share.start, own, block, 1)? };
        window.wait_next_from(&Block, kernel.previous(1), block, 1)?;
        round += 1;
    }
    Ok(())
}

/// Most blocks of an exchange.
const BLOCKS: usize = 32;

struct Bench<'a, X> {
    world: &'a World,
    transport: &'a X,
    window: HostWindow,
    stream: Stream,
}

impl<X: Transport> Bench<'_, X> {
    fn prepare<H: HookSet + Supports<Custom, X>>(&self) -> fusewire::Result<CustomLauncher<X, H>> {
        CustomLauncher::new(self.transport)
    }

    /// The slowest rank's median of the time of one of `rounds` that `launch` makes at once.
    fn time(
        &self,
        rounds: u64,
        mut launch: impl FnMut(u64) -> fusewire::Result<()>,
    ) -> fusewire::Result<Duration> {
        let mut times = Vec::new();
        for _ in 0..7 {
            self.world.barrier()?;
            let start = Instant::now();
            launch(rounds)?;
            self.stream.synchronize()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let own = times[times.len() / 2].as_nanos() as u64;
        let all = self.world.all_gather_as(&own)?;
        Ok(Duration::from_nanos(all.into_iter().max().unwrap_or(own)) / rounds as u32)
    }
}

fn rank<X: Transport>(world: &World, transport: &X, json: bool) -> fusewire::Result<()>
where
    bare_flag::Hooks: Supports<Custom, X>,
    signals::Hooks: Supports<Custom, X>,
    barriers::Hooks: Supports<Custom, X>,
    exchange::Hooks: Supports<Custom, X>,
{
    let cuda = X::NAME != "Shm";
    let device = Device::of(transport);
    let peers = MultiPeerTransport::new(transport, &PeersConfig::default())?;
    peers.exchange()?;
    let most = if cuda { 64 << 20 } else { 1 << 20 };
    let data = device.shared_buffer::<u64>(most / 8)?;
    let config = WindowConfig::default().signals(BLOCKS as u32);
    let window = HostWindow::new(&peers, config, &data)?;
    window.exchange()?;
    let stream = device.stream()?;
    let bench = Bench { world, transport, window, stream };
    let (window, stream) = (&bench.window, &bench.stream);
    let rounds = if cuda { 2000 } else { 300 };
    let small = LaunchOptions::default().threads(128);
    let mut rows = Vec::new();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mut flag = f64::NAN;
    let mut row = |op: String, bytes: usize, time: f64, flag: f64| {
        let gb_s = bytes as f64 / time / 1e3;
        rows.push(Row {
            name: "windows",
            op,
            world: world.size(),
            bytes,
            us: time,
            gb_s,
            flags: time / flag,
        });
    };

    let kernel = bench.prepare::<bare_flag::Hooks>()?;
    if world.size() > 1 {
        let mut first = 0;
        let time = bench.time(rounds, |rounds| {
            let args = bare_flag::Launch { window, rounds, first };
            first += rounds;
            kernel.launch_with(stream, 1, args, &small)
        })?;
        flag = us(time) / 2.0;
        row("flag one way".into(), 8, flag, flag);
        let kernel = bench.prepare::<signals::Hooks>()?;
        for (name, by_block) in [("signal one way, thread", false), ("signal one way, block", true)] {
            let time = bench.time(rounds, |rounds| {
                kernel.launch_with(stream, 1, signals::Launch { window, rounds, by_block }, &small)
            })?;
            row(name.into(), 8, us(time) / 2.0, flag);
        }
    }
    let kernel = bench.prepare::<barriers::Hooks>()?;
    let time = bench
        .time(rounds, |rounds| kernel.launch_with(stream, 1, barriers::Launch { window, rounds }, &small))?;
    row("barrier".into(), 0, us(time), flag);

    let kernel = bench.prepare::<exchange::Hooks>()?;
    let sizes = [3, 6, 9, 12, 15, 18, 20, 22, 24, 26].map(|power| 1usize << power);
    for bytes in sizes.into_iter().filter(|bytes| *bytes <= most && world.size() > 1) {
        let input = device.buffer_from(&vec![bytes as u64; bytes / 8])?;
        let blocks = if cuda { (bytes >> 14).clamp(1, BLOCKS) } else { 1 };
        let rounds = if bytes >= 1 << 20 { rounds / 20 } else { rounds / 2 };
        let time = bench.time(rounds, |rounds| {
            let args = exchange::Launch { window, input: input.view(), rounds };
            kernel.launch(stream, blocks as u32, args)
        })?;
        row(format!("put_signal, {blocks} blocks"), bytes, us(time), flag);
        world.barrier()?;
        let got = data.read(stream)?;
        assert!(got[..bytes / 8].iter().all(|v| *v == bytes as u64), "a put of {bytes} bytes is wrong");
        world.barrier()?;
    }
    if world.rank() == 0 {
        for r in &rows {
            match json {
                true => println!("{}", serde_json::to_string(r).unwrap_or_default()),
                false => println!(
                    "{:<24} {:>10} {:>11.3} us {:>9.2} GB/s {:>8.2} flags",
                    r.op,
                    bytes_text(r.bytes),
                    r.us,
                    r.gb_s,
                    r.flags
                ),
            }
        }
    }
    world.barrier()?;
    Ok(())
}

fn main() -> ExitCode {
    let Arguments { device, ranks, json } = Arguments::parse();
    let cuda = device == "cuda";
    ranks.run(cuda, 2, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, Options::default())?, json),
        false => rank(world, &Shm::rendezvous(world, 1 << 20)?, json),
    })
}
