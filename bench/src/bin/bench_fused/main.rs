//! Hooks fused into an all-to-all of bfloat16, against their size, beside the plain copy: graph replay and eager launches, checked, one
//! JSON line each. `fused.py` of `run.sh bench` measures what one would write around NCCL instead, and prints the ratios.

mod baselines;
mod driver;

use clap::Parser;
use fusewire::Protocol;
use fusewire::prelude::*;
use fusewire_bench::cases::{self, Counts};
use fusewire_bench::choices;
use fusewire_examples::ranks::{Ranks, WARM_UP, bytes_text, parse_bytes};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Benchmark of fused hooks.
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "cuda", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Bytes of each rank's whole input, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    size: Vec<usize>,
    /// Which hooks; by default all but `transpose_gather`, which is `transpose` without tiles.
    #[arg(long, value_delimiter = ',', value_parser = cases::NAMES)]
    op: Vec<String>,
    /// Outputs in `symmetric` memory, `ordinary` memory, or both.
    #[arg(long, value_delimiter = ',', default_value = "symmetric,ordinary", value_parser = ["symmetric", "ordinary"])]
    output: Vec<String>,
    /// How bytes travel: `simple`, `ll128`, `direct`, `bulk`, `copy`; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    protocol: Vec<Protocol>,
    /// Channels to each peer; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    channels: Vec<u32>,
    /// Blocks for the rank's own chunk; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    self_copy: Vec<u32>,
    /// Threads of a block; by default as the library decides.
    #[arg(long)]
    block_threads: Option<u32>,
    /// Channels with line buffers; by default as many as a transport has.
    #[arg(long)]
    ll128_channels: Option<u32>,
    /// Bytes that travel together on a channel; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    chunk: Vec<usize>,
    /// PTX of hand-written kernels that are timed in turn with ours: `--baseline copy.ptx,transpose.ptx`, made from `bench/baselines` by nvcc.
    #[arg(long, value_delimiter = ',')]
    baseline: Vec<PathBuf>,
    /// One rank's hooks beside the driver's copy of as many bytes, in turn, on the same buffers.
    #[arg(long)]
    beside_memcpy: bool,
    /// Replayed graphs alone.
    #[arg(long)]
    no_eager: bool,
    /// Print JSON lines instead of a table.
    #[arg(long)]
    json: bool,
}

/// What one launch of a case costs.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    op: String,
    world: usize,
    bytes: usize,
    /// `symmetric` or `ordinary`.
    output: String,
    protocol: String,
    blocks: u32,
    threads: u32,
    chunk: u64,
    /// Median of the slowest rank, microseconds.
    graph_us: f64,
    eager_us: f64,
    /// Bytes that one rank sends to its peers.
    wire_bytes: usize,
    /// Those over the replayed time.
    wire_gb_s: f64,
    /// Streaming multiprocessors that a launch holds at most; 0 if unknown.
    sms: usize,
    checked: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cuda = options.device == "cuda";
    let layout = fusewire::Options::default();
    let layout = layout.clone().ll128_channels(options.ll128_channels.unwrap_or(layout.ll128_channels));
    options.ranks.run(cuda, 2, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, layout.clone())?, &options),
        false => rank(world, &Shm::rendezvous(world, layout.clone())?, &options),
    })
}

fn rank<X: cases::On>(world: &World, transport: &X, options: &Options) -> fusewire::Result<()> {
    let sizes = match options.size.as_slice() {
        [] => [16, 20, 22, 24, 26, 28].map(|k| 1 << k).to_vec(),
        some => some.to_vec(),
    };
    let names: Vec<&str> = match options.op.as_slice() {
        [] => cases::NAMES.into_iter().filter(|n| *n != "transpose_gather").collect(),
        some => some.iter().map(String::as_str).collect(),
    };
    if !options.baseline.is_empty() {
        return baselines::compare(world, transport, options, &sizes);
    }
    if options.beside_memcpy {
        return driver::compare(world, transport, options, (&sizes, &names));
    }
    if world.rank() == 0 && !options.json {
        println!(
            "{:>16} {:>10} {:>9} {:>8} {:>6} {:>7} {:>12} {:>12} {:>10}",
            "hook", "size", "output", "protocol", "blocks", "threads", "replayed", "eager", "GB/s wire"
        );
    }
    let bench = cases::Bench::new(world, transport, if options.no_eager { replays } else { counts })?;
    for &bytes in &sizes {
        for output in &options.output {
            for name in &names {
                for protocol in choices(&options.protocol) {
                    for channels in choices(&options.channels) {
                        for self_copy in choices(&options.self_copy) {
                            for chunk in choices(&options.chunk) {
                                let launch = LaunchOptions {
                                    protocol,
                                    channels,
                                    self_copy,
                                    threads: options.block_threads,
                                    chunk,
                                    ..Default::default()
                                };
                                match row(&bench, world, (name, output), bytes, launch) {
                                    Ok(row) if world.rank() == 0 => print(&row, options.json),
                                    Ok(_) => {}
                                    // What a sweep asks for need not be possible for every hook.
                                    Err(fusewire::Error::Misuse { .. })
                                        if protocol.is_some() || channels.is_some() || chunk.is_some() => {}
                                    Err(other) => return Err(other),
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    world.barrier()?;
    Ok(())
}

/// Launches of a case.
fn counts(bytes: usize) -> Counts {
    let (per_graph, windows, replays) = match bytes {
        b if b >= 256 << 20 => (2, 5, 2),
        b if b >= 16 << 20 => (5, 5, 4),
        _ => (20, 7, 10),
    };
    Counts { per_graph, windows, replays, eager: replays * per_graph, warm_up: WARM_UP }
}

/// The same without eager ones.
fn replays(bytes: usize) -> Counts {
    Counts { eager: 0, ..counts(bytes) }
}

/// Checks and times one hook at one size. Collective.
fn row<X: cases::On>(
    bench: &cases::Bench<'_, X>,
    world: &World,
    (op, output): (&str, &str),
    bytes: usize,
    options: LaunchOptions,
) -> fusewire::Result<Row> {
    let cases::Measured { plan, replayed, eager } =
        bench.measure(&mut bench.ready(op, output == "symmetric", bytes, options)?)?;
    let blocks = if plan.protocol == Protocol::Copy { 0 } else { plan.blocks };
    let wire_bytes = plan.wire_bytes * (world.size() - 1);
    Ok(Row {
        name: "fusewire",
        op: op.into(),
        world: world.size(),
        bytes,
        output: output.into(),
        protocol: plan.protocol.name().to_owned(),
        blocks,
        threads: plan.threads,
        chunk: plan.chunk,
        graph_us: replayed.as_secs_f64() * 1e6,
        eager_us: eager.as_secs_f64() * 1e6,
        wire_bytes,
        wire_gb_s: wire_bytes as f64 / replayed.as_secs_f64() / 1e9,
        sms: if X::NAME == "Nvl" { (blocks as usize).min(bench.processors()) } else { 0 },
        checked: true,
    })
}

fn print(row: &Row, json: bool) {
    if json {
        println!("{}", serde_json::to_string(&row).unwrap_or_default());
        return;
    }
    println!(
        "{:>16} {:>10} {:>9} {:>8} {:>6} {:>7} {:>9.2} us {:>9.2} us {:>10.1}",
        row.op,
        bytes_text(row.bytes),
        row.output,
        row.protocol,
        row.blocks,
        row.threads,
        row.graph_us,
        row.eager_us,
        row.wire_gb_s
    );
}
