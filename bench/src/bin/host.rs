//! Shared memory between CPU processes, in figures: copies by all-to-all and all-gather and sums by all-reduce against their size, and the round trip of 8 bytes.
//! One JSON line each; `cargo xtask bench-host` sets them beside Open MPI's.

use clap::Parser;
use fusewire::prelude::*;
use fusewire::{View, ViewMut};
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

/// What every rank has, side by side.
#[comm_kernel(transports(Shm), schedules(all_gather))]
mod gathered {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// The sum of what every rank has.
#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32))]
mod summed {
    pub struct Args<'a> {
        pub input: &'a [f32],
        pub output: Out<'a, f32>,
    }
}

/// The same in place.
#[comm_kernel(transports(Shm), schedules(all_reduce), reduce(sum, f32))]
mod summed_in_place {
    pub struct Args<'a> {
        pub values: InOut<'a, f32>,
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    options.ranks.run(false, 2, |world| rank(world, &options))
}

fn rank(world: &World, options: &Options) -> fusewire::Result<()> {
    let shm = Shm::rendezvous(world, fusewire::Options::default())?;
    let (to_all, gather, sum) =
        (copy::all_to_all(&shm)?, gathered::all_gather(&shm)?, summed::all_reduce(&shm)?);
    let (me, ranks) = (world.rank(), world.size());
    for &bytes in &options.size {
        let n = bytes / size_of::<f32>() / ranks * ranks;
        let want = |i: usize| reference::output("copy", me, ranks, n / ranks, 1.0, i);
        measured(world, "all_to_all", bytes, [n, n], reference::input, want, |stream, input, output| {
            to_all.launch(stream, copy::Launch { input, output })
        })?;
        let want = |i: usize| reference::input(i / n, i % n);
        measured(
            world,
            "all_gather",
            bytes,
            [n, n * ranks],
            reference::input,
            want,
            |stream, input, output| gather.launch(stream, gathered::Launch { input, output }),
        )?;
        let want = |i: usize| (0..ranks).map(|rank| small(rank, i)).sum();
        measured(world, "all_reduce", bytes, [n, n], small, want, |stream, input, output| {
            sum.launch(stream, summed::Launch { input, output })
        })?;
        in_place(world, &shm, bytes)?;
    }
    if ranks == 2 {
        round_trips(world, &shm)?;
    }
    Ok(world.teardown_barrier()?)
}

/// A number whose sums are exact.
fn small(rank: usize, i: usize) -> f32 {
    ((i * 31 + rank * 7) % 4096) as f32
}

/// Times launches and replays of an operation whose input and output have so many elements.
fn measured(
    world: &World,
    op: &str,
    bytes: usize,
    [sent, kept]: [usize; 2],
    input: fn(usize, usize) -> f32,
    want: impl Fn(usize) -> f32 + Sync,
    mut launch: impl FnMut(&Stream, View<'_, f32>, ViewMut<'_, f32>) -> fusewire::Result<()>,
) -> fusewire::Result<()> {
    let rank = world.rank();
    let (device, stream) = (Device::host(), Device::host().stream()?);
    let input = device.buffer_from(&parallel(sent, |i| input(rank, i)))?;
    let mut output = device.buffer::<f32>(kept)?;
    output.fill_bytes(&stream, 0xff)?;
    let mut launch = || launch(&stream, input.view(), output.view_mut());
    let count = count(bytes);
    let graph = stream.capture(&mut launch)?;
    timed(world, &stream, (op, bytes), (15, count, 1), &mut launch)?;
    timed(world, &stream, (&format!("{op} replayed"), bytes), (15, count, 1), || graph.launch(&stream))?;
    let got = output.read(&stream)?;
    assert!(same_bits(&got, &parallel(kept, want)), "{op} of {bytes} bytes is wrong on rank {rank}");
    Ok(())
}

/// Checks one all-reduce in place and times more, whose sums grow.
fn in_place(world: &World, shm: &Shm, bytes: usize) -> fusewire::Result<()> {
    let (device, stream) = (Device::host(), Device::host().stream()?);
    let (me, n) = (world.rank(), bytes / size_of::<f32>());
    let mut values = device.buffer_from(&parallel(n, |i| small(me, i)))?;
    let sum = summed_in_place::all_reduce(shm)?;
    sum.launch(&stream, summed_in_place::Launch { values: values.view_mut() })?;
    let want = |i: usize| (0..world.size()).map(|rank| small(rank, i)).sum();
    let right = same_bits(&values.read(&stream)?, &parallel(n, want));
    assert!(right, "all_reduce in place of {bytes} bytes is wrong on rank {me}");
    timed(world, &stream, ("all_reduce_in_place", bytes), (15, count(bytes), 1), || {
        sum.launch(&stream, summed_in_place::Launch { values: values.view_mut() })
    })
}

/// Operations of a window.
fn count(bytes: usize) -> usize {
    match bytes {
        0x100_0000.. => 2,
        0x10_0000.. => 10,
        _ => 100,
    }
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
