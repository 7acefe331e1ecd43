//! All-to-all and send/recv against their size: graph replay and eager launches, checked, one JSON line each; or a table beside
//! NCCL's figures.

use clap::Parser;
use fusewire::Protocol;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllToAll, AllToAllLauncher, Plan, SendRecv, SendRecvLauncher};
use fusewire_bench::choices;
use fusewire_bench::plot::plot;
use fusewire_examples::hooks::copy;
use fusewire_examples::ranks::{Geometry, Ranks, bytes_text, parse_bytes, timed};
use fusewire_examples::reference::{self, parallel};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Benchmark of the fused all-to-all and of a ring of sends and receives (copy hook, default configuration).
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "cuda", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    #[command(flatten)]
    geometry: Geometry,
    /// Bytes of each rank's whole input, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    size: Vec<usize>,
    /// `all_to_all` or `sendrecv` (each rank to its next), or both.
    #[arg(long, value_delimiter = ',', default_value = "all_to_all,sendrecv", value_parser = ["all_to_all", "sendrecv"])]
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
    #[arg(long)]
    self_copy: Option<u32>,
    /// Bytes that travel together on a channel; by default as the library decides
    #[arg(long)]
    chunk: Option<usize>,
    /// Threads of a block; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    block_threads: Vec<u32>,
    /// Replayed graphs alone.
    #[arg(long)]
    no_eager: bool,
    /// Print JSON lines instead of a table.
    #[arg(long)]
    json: bool,
    /// Compare two files of JSON lines (`a.jsonl b.jsonl`): the second in times of the first. One file is printed as a table.
    #[arg(long, num_args = 1..=2)]
    compare: Option<Vec<PathBuf>>,
    /// Draw files of JSON lines: `--plot DIR a.jsonl b.jsonl ..` writes SVG and PNG into the folder.
    #[arg(long, num_args = 2..)]
    plot: Option<Vec<PathBuf>>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    name: String,
    op: String,
    world: usize,
    bytes: usize,
    /// `symmetric` or `ordinary`.
    #[serde(default)]
    output: String,
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    blocks: u32,
    #[serde(default)]
    threads: u32,
    /// Median of the slowest rank, microseconds.
    graph_us: f64,
    eager_us: f64,
    /// Wire bytes of one rank in one direction over the replayed time.
    wire_gb_s: f64,
    /// Streaming multiprocessors that a launch holds at most; 0 if unknown.
    sms: usize,
    checked: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let read = match (&options.compare, &options.plot) {
        (Some(files), _) => Some(compare(&files[0], files.get(1))),
        (None, Some(paths)) => Some(plot(&paths[0], &paths[1..]).map(|written| {
            written.iter().for_each(|path| println!("{}", path.display()));
        })),
        (None, None) => None,
    };
    if let Some(outcome) = read {
        return match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("error: {e}");
                ExitCode::FAILURE
            }
        };
    }
    let cuda = options.device == "cuda";
    options.ranks.run(cuda, 2, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, options.geometry.options())?, &options),
        false => rank(world, &Shm::rendezvous(world, options.geometry.options())?, &options),
    })
}

fn rank<X: Transport>(world: &World, transport: &X, options: &Options) -> fusewire::Result<()>
where
    copy::Hooks: Supports<AllToAll, X> + Supports<SendRecv, X>,
{
    let sizes = match options.size.as_slice() {
        [] => (10..=30).step_by(2).map(|k| 1 << k).collect(),
        some => some.to_vec(),
    };
    let bench = Bench {
        world,
        transport,
        all_to_all: copy::all_to_all(transport)?,
        sendrecv: copy::sendrecv(transport)?,
        eager: !options.no_eager,
    };
    if world.rank() == 0 && !options.json {
        head();
    }
    let defaults = LaunchOptions::default();
    bench.warm_up()?;
    for op in &options.op {
        for output in &options.output {
            for &bytes in &sizes {
                for protocol in choices(&options.protocol) {
                    for channels in choices(&options.channels) {
                        for threads in choices(&options.block_threads) {
                            let (self_copy, chunk) = (options.self_copy, options.chunk);
                            let launch = LaunchOptions {
                                protocol,
                                channels,
                                self_copy,
                                threads,
                                chunk,
                                ..defaults.clone()
                            };
                            match bench.one(op, output == "symmetric", bytes, &launch) {
                                Ok(row) if world.rank() == 0 => print(&row, options.json),
                                Ok(_) => {}
                                Err(fusewire::Error::Misuse { .. }) if !options.channels.is_empty() => {}
                                Err(other) => return Err(other),
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

fn head() {
    println!(
        "{:>10} {:>10} {:>9} {:>8} {:>6} {:>7} {:>12} {:>12} {:>10} {:>4}",
        "op", "size", "output", "protocol", "blocks", "threads", "replayed", "eager", "GB/s wire", "SMs"
    );
}

fn print(row: &Row, json: bool) {
    if json {
        println!("{}", serde_json::to_string(&row).unwrap_or_default());
        return;
    }
    println!(
        "{:>10} {:>10} {:>9} {:>8} {:>6} {:>7} {:>9.2} us {:>9.2} us {:>10.1} {:>4}",
        row.op,
        bytes_text(row.bytes),
        row.output,
        row.protocol,
        row.blocks,
        row.threads,
        row.graph_us,
        row.eager_us,
        row.wire_gb_s,
        row.sms
    );
}

struct Bench<'w, X: Transport> {
    world: &'w World,
    transport: &'w X,
    all_to_all: AllToAllLauncher<X, copy::Hooks>,
    sendrecv: SendRecvLauncher<X, copy::Hooks>,
    eager: bool,
}

impl<X: Transport> Bench<'_, X>
where
    copy::Hooks: Supports<AllToAll, X> + Supports<SendRecv, X>,
{
    /// Lets clocks rise.
    fn warm_up(&self) -> fusewire::Result<()> {
        let stream = Device::of(self.transport).stream()?;
        let len = 1024 * self.world.size();
        let input = stream.device().buffer::<f32>(len)?;
        let mut output = stream.device().buffer::<f32>(len)?;
        for _ in 0..2000 {
            self.all_to_all
                .launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })?;
        }
        stream.synchronize()
    }

    fn one(&self, op: &str, symmetric: bool, bytes: usize, options: &LaunchOptions) -> fusewire::Result<Row> {
        let (world, transport) = (self.world, self.transport);
        let (rank, ranks) = (world.rank(), world.size());
        let all_to_all = op == "all_to_all";
        let len =
            if all_to_all { bytes / size_of::<f32>() / ranks * ranks } else { bytes / size_of::<f32>() };
        let device = Device::of(transport);
        let stream = device.stream()?;
        let input = device.buffer_from(&parallel(len, |i| reference::input(rank, i)))?;
        let mut output =
            if symmetric { Buffer::<f32>::symmetric(transport, len)? } else { device.buffer::<f32>(len)? };
        output.fill_bytes(&stream, 0xff)?;
        let launch = |output: &mut Buffer<f32>, plan: Option<&mut Option<Plan>>| {
            let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let args = copy::Launch { input: input.view(), output: output.view_mut() };
            match (plan, all_to_all) {
                (Some(plan), true) => *plan = Some(self.all_to_all.explain(&args, options)?),
                (Some(plan), false) => {
                    *plan = Some(self.sendrecv.explain(Some(next), Some(previous), &args, options)?);
                }
                (None, true) => self.all_to_all.launch_with(&stream, args, options)?,
                (None, false) => {
                    self.sendrecv.launch_with(&stream, Some(next), Some(previous), args, options)?;
                }
            }
            Ok::<_, fusewire::Error>(())
        };
        let mut plan = None;
        launch(&mut output, Some(&mut plan))?;
        // Peers may store into a symmetric output as soon as this rank launches: it has been filled.
        stream.synchronize()?;
        world.barrier()?;
        launch(&mut output, None)?;
        let got = output.read(&stream)?;
        let chunk = len / ranks;
        let previous = (rank + ranks - 1) % ranks;
        let want = match all_to_all {
            true => parallel(len, |i| reference::input(i / chunk.max(1), rank * chunk + i % chunk.max(1))),
            false => parallel(len, |i| reference::input(previous, i)),
        };
        assert!(got == want, "{op} of {bytes} bytes is wrong on rank {rank}");

        let (per_graph, windows, replays) = match bytes {
            b if b >= 256 << 20 => (2, 5, 2),
            b if b >= 16 << 20 => (5, 5, 4),
            _ => (20, 7, 10),
        };
        let graph = stream.capture(|| (0..per_graph).try_for_each(|_| launch(&mut output, None)))?;
        let replayed = timed(world, &stream, windows, replays * per_graph, || {
            (0..replays).try_for_each(|_| graph.launch(&stream))
        })?;
        // What the replays left must be right too.
        assert!(output.read(&stream)? == want, "a replayed {op} of {bytes} bytes is wrong on rank {rank}");
        let mut eager = Duration::ZERO;
        if self.eager {
            eager = timed(world, &stream, windows, replays * per_graph, || {
                (0..replays * per_graph).try_for_each(|_| launch(&mut output, None))
            })?;
            assert!(output.read(&stream)? == want, "an eager {op} of {bytes} bytes is wrong on rank {rank}");
        }
        let wire = (if all_to_all { len - chunk } else { len } * size_of::<f32>()) as f64;
        let (blocks, threads, name) = plan.map_or((0, 0, String::new()), |p| {
            let sms = if p.protocol == Protocol::Copy { 0 } else { p.blocks };
            (sms, p.threads, p.protocol.name().to_owned())
        });
        Ok(Row {
            name: "fusewire".into(),
            op: op.into(),
            world: ranks,
            bytes,
            output: if symmetric { "symmetric" } else { "ordinary" }.into(),
            protocol: name,
            blocks,
            threads,
            graph_us: replayed.as_secs_f64() * 1e6,
            eager_us: eager.as_secs_f64() * 1e6,
            wire_gb_s: wire / replayed.as_secs_f64() / 1e9,
            sms: if X::NAME == "Nvl" { (blocks as usize).min(device.processors()) } else { 0 },
            checked: true,
        })
    }
}

fn compare(first: &PathBuf, second: Option<&PathBuf>) -> Result<(), String> {
    let read = |path: &PathBuf| -> Result<Vec<Row>, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let rows = text.lines().filter(|l| l.starts_with('{')).map(serde_json::from_str::<Row>);
        rows.collect::<Result<Vec<_>, _>>().map_err(|e| format!("{}: {e}", path.display()))
    };
    let a = read(first)?;
    let Some(second) = second else {
        head();
        a.iter().for_each(|row| print(row, false));
        return Ok(());
    };
    let b = read(second)?;
    // Of several programs in the first file, the first one's.
    let name = a.first().map(|row| row.name.as_str());
    let first = a.iter().filter(|row| Some(row.name.as_str()) == name);
    let by_key: BTreeMap<_, _> = first.map(|r| ((r.op.as_str(), r.world, r.bytes), r)).collect();
    let names = (a.first().map_or("?", |r| r.name.as_str()), b.first().map_or("?", |r| r.name.as_str()));
    println!(
        "time of one in us (graph replay | eager launches); {} / {}: above 1 the second is faster",
        names.0, names.1
    );
    println!(
        "{:>10} {:>5} {:>8} {:>9} {:>8} | {:>10} {:>10} {:>6} | {:>10} {:>10} {:>6} | {:>9} {:>4}",
        "op",
        "ranks",
        "size",
        "output",
        "protocol",
        names.0,
        names.1,
        "ratio",
        names.0,
        names.1,
        "ratio",
        "GB/s wire",
        "SMs"
    );
    for rb in &b {
        let Some(ra) = by_key.get(&(rb.op.as_str(), rb.world, rb.bytes)) else { continue };
        println!(
            "{:>10} {:>5} {:>8} {:>9} {:>8} | {:>10.2} {:>10.2} {:>6.2} | {:>10.2} {:>10.2} {:>6.2} | {:>9.1} {:>4}",
            rb.op,
            rb.world,
            bytes_text(rb.bytes),
            rb.output,
            rb.protocol,
            ra.graph_us,
            rb.graph_us,
            ra.graph_us / rb.graph_us,
            ra.eager_us,
            rb.eager_us,
            ra.eager_us / rb.eager_us,
            rb.wire_gb_s,
            rb.sms
        );
    }
    Ok(())
}
