//! Shared memory between CPU processes, in figures: the all-to-all of the copy hook against its size, and the round trip of 8 bytes.
//! One JSON line each; `cargo xtask bench-host` sets them beside Open MPI's.

use clap::Parser;
use fusewire::prelude::*;
use fusewire::schedule::AllToAllLauncher;
use fusewire_examples::hooks::copy;
use fusewire_examples::ranks::{Ranks, parse_bytes};
use fusewire_examples::reference::{self, parallel, same_bits};
use serde::Serialize;
use std::process::ExitCode;

/// Benchmark of the shared-memory transport.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    ranks: Ranks,
    /// Bytes of each rank's whole input, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, default_value = "64K,256K,1M,4M,16M,64M")]
    size: Vec<usize>,
}

#[derive(Serialize)]
struct Row<'a> {
    op: &'a str,
    bytes: usize,
    /// Of all windows the best and the median, each the slowest rank's.
    best_us: f64,
    median_us: f64,
}

/// `trips` messages of 8 bytes to the other rank and back, all in one kernel.
#[comm_kernel(transports(Shm))]
pub fn ping_pong<O: Put>(kernel: &Kernel<O>, message: &[u64], trips: u32) -> Flow {
    let other = kernel.next(1);
    for _ in 0..trips {
        if kernel.rank() == 1 {
            kernel.wait(other, 0)?;
        }
        // SAFETY: the other rank has read the last message: its answer to it has come.
        unsafe { kernel.put(other, 0, message)? };
        kernel.signal(other, 0)?;
        if kernel.rank() == 0 {
            kernel.wait(other, 0)?;
        }
    }
    Ok(())
}

/// One message from a rank to another.
#[comm_kernel(transports(Shm), schedules(sendrecv))]
mod message {
    pub struct Args<'a> {
        pub input: &'a [u64],
        pub output: Out<'a, u64>,
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    options.ranks.run(false, 2, |world| rank(world, &options))
}

fn rank(world: &World, options: &Options) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(world, fusewire::Options::default())?;
    let launcher = copy::all_to_all(&shm)?;
    for bytes in &options.size {
        all_to_all(world, &launcher, *bytes)?;
    }
    if world.rank() < 2 && world.size() == 2 {
        round_trips(world, &shm)?;
    }
    Ok(world.teardown_barrier()?)
}

fn all_to_all(
    world: &World,
    launcher: &AllToAllLauncher<Shm, copy::Hooks>,
    bytes: usize,
) -> fusewire::Result<()> {
    let (rank, ranks) = (world.rank(), world.size());
    let chunk = bytes / size_of::<f32>() / ranks;
    let (device, stream) = (Device::host(), Device::host().stream()?);
    let input = device.buffer_from(&parallel(chunk * ranks, |i| reference::input(rank, i)))?;
    let mut output = device.buffer::<f32>(chunk * ranks)?;
    output.fill_bytes(&stream, 0xff)?;
    let mut launch =
        || launcher.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() });
    let (windows, count) = (
        15,
        if bytes >= 16 << 20 {
            2
        } else if bytes >= 1 << 20 {
            10
        } else {
            100
        },
    );
    let graph = stream.capture(&mut launch)?;
    timed(world, &stream, ("all_to_all", bytes), (windows, count, 1), &mut launch)?;
    timed(world, &stream, ("all_to_all replayed", bytes), (windows, count, 1), || graph.launch(&stream))?;
    let want = parallel(chunk * ranks, |i| reference::output("copy", rank, ranks, chunk, 1.0, i));
    assert!(
        same_bits(&output.read(&stream)?, &want),
        "an all-to-all of {bytes} bytes is wrong on rank {rank}"
    );
    Ok(())
}

fn round_trips(world: &World, shm: &Shm) -> fusewire::Result<()> {
    let (device, stream) = (Device::host(), Device::host().stream()?);
    let input = device.buffer_from(&[7 + world.rank() as u64])?;
    let mut output = device.buffer::<u64>(1)?;
    let (windows, trips) = (25, 1000);

    let kernel = ping_pong::on(shm)?;
    timed(world, &stream, ("round_trip in a kernel", 8), (windows, 1, trips as usize), || {
        kernel.launch(&stream, 1, ping_pong::Launch { message: input.view(), trips })
    })?;

    let message = message::sendrecv(shm)?;
    let (me, other) = (world.rank(), 1 - world.rank());
    let mut trip = || {
        for sends in [me == 0, me == 1] {
            let args = message::Launch { input: input.view(), output: output.view_mut() };
            if sends {
                message.send(&stream, other, args)?;
            } else {
                message.recv(&stream, other, args)?;
            }
        }
        Ok(())
    };
    let graph = stream.capture(&mut trip)?;
    timed(world, &stream, ("round_trip", 8), (windows, trips as usize, 1), &mut trip)?;
    timed(world, &stream, ("round_trip replayed", 8), (windows, trips as usize, 1), || {
        graph.launch(&stream)
    })?;
    assert_eq!(output.read(&stream)?, [7 + other as u64]);
    Ok(())
}

/// Prints the time of one operation: `body` queues `each` of them, and is called `count` times.
fn timed(
    world: &World,
    stream: &Stream,
    (op, bytes): (&str, usize),
    (windows, count, each): (usize, usize, usize),
    mut body: impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<()> {
    let mut times = Vec::new();
    for _ in 0..windows + 2 {
        world.barrier()?;
        let start = stream.record()?;
        (0..count).try_for_each(|_| body())?;
        let end = stream.record()?;
        stream.synchronize()?;
        times.push(end.since(&start)?.as_secs_f64() * 1e6 / (count * each) as f64);
    }
    // Two to warm up. Each window is as long as its slowest rank.
    let all = world.all_gather_as(&times.split_off(2))?;
    let mut slowest: Vec<f64> =
        (0..windows).map(|w| all.iter().map(|times| times[w]).fold(0.0, f64::max)).collect();
    slowest.sort_by(f64::total_cmp);
    if world.rank() == 0 {
        let row = Row { op, bytes, best_us: slowest[0], median_us: slowest[windows / 2] };
        println!("{}", serde_json::to_string(&row).unwrap_or_default());
    }
    Ok(())
}
