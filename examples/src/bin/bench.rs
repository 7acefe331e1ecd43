//! The all-to-all against its size: graph replay and eager launches, checked, one JSON line each; or a table beside NCCL's figures.

use clap::Parser;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllToAll, AllToAllLauncher};
use fusewire_examples::hooks::copy;
use fusewire_examples::plot::plot;
use fusewire_examples::ranks::{bytes_text, gpus, launched, parse_bytes, slowest_median, spawn};
use fusewire_examples::reference::{self, parallel};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Benchmark of the fused all-to-all (copy hook, default configuration).
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "cuda", value_parser = ["host", "cuda"])]
    device: String,
    /// Ranks, each a process; by default one for each GPU, or 2 on the host.
    #[arg(long)]
    ranks: Option<usize>,
    /// Bytes of each rank's whole input, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    size: Vec<usize>,
    /// Print JSON lines instead of a table.
    #[arg(long)]
    json: bool,
    /// Compare two files of JSON lines (`a.jsonl b.jsonl`): the second in times of the first.
    #[arg(long, num_args = 2)]
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
        (Some(files), _) => Some(compare(&files[0], &files[1])),
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
    if !launched() {
        return spawn(options.ranks.unwrap_or(if cuda { gpus().max(1) } else { 2 }));
    }
    let outcome = World::from_env().map_err(Into::into).and_then(|world| match cuda {
        true => rank(&world, &Nvl::rendezvous(&world, fusewire::Options::default())?, &options),
        false => rank(&world, &Shm::rendezvous(&world, fusewire::Options::default())?, &options),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rank<X: Transport>(world: &World, transport: &X, options: &Options) -> fusewire::Result<()>
where
    copy::Hooks: Supports<AllToAll, X>,
{
    let sizes = match options.size.as_slice() {
        [] => (10..=30).step_by(2).map(|k| 1 << k).collect(),
        some => some.to_vec(),
    };
    let copy = copy::all_to_all(transport)?;
    if world.rank() == 0 && !options.json {
        println!("{:>10}  {:>12}  {:>12}  {:>10}  {:>4}", "size", "replayed", "eager", "GB/s wire", "SMs");
    }
    for bytes in sizes {
        let row = one(world, transport, &copy, bytes)?;
        if world.rank() == 0 {
            if options.json {
                println!("{}", serde_json::to_string(&row).unwrap_or_default());
            } else {
                let text = bytes_text(bytes);
                println!(
                    "{text:>10}  {:>9.2} us  {:>9.2} us  {:>10.1}  {:>4}",
                    row.graph_us, row.eager_us, row.wire_gb_s, row.sms
                );
            }
        }
    }
    world.barrier()?;
    Ok(())
}

fn one<X: Transport>(
    world: &World,
    transport: &X,
    copy: &AllToAllLauncher<X, copy::Hooks>,
    bytes: usize,
) -> fusewire::Result<Row> {
    let (rank, ranks) = (world.rank(), world.size());
    let chunk = bytes / size_of::<f32>() / ranks;
    let len = chunk * ranks;
    let device = Device::of(transport);
    let stream = device.stream()?;
    let input = device.buffer_from(&parallel(len, |i| reference::input(rank, i)))?;
    let mut output = device.buffer::<f32>(len)?;
    output.fill_bytes(&stream, 0xff)?;
    let plan = copy.explain(
        &copy::Launch { input: input.view(), output: output.view_mut() },
        &LaunchOptions::default(),
    )?;
    let launch = |output: &mut Buffer<f32>| {
        copy.launch(&stream, copy::Launch { input: input.view(), output: output.view_mut() })
    };
    launch(&mut output)?;
    let got = output.read(&stream)?;
    let want = parallel(len, |i| reference::input(i / chunk.max(1), rank * chunk + i % chunk.max(1)));
    assert!(got == want, "all-to-all of {bytes} bytes is wrong on rank {rank}");

    let (per_graph, windows, replays) = match bytes {
        b if b >= 256 << 20 => (2, 5, 2),
        b if b >= 16 << 20 => (5, 5, 4),
        _ => (20, 7, 10),
    };
    let graph = stream.capture(|| (0..per_graph).try_for_each(|_| launch(&mut output)))?;
    let replayed = timed(world, &stream, windows, replays * per_graph, || {
        (0..replays).try_for_each(|_| graph.launch(&stream))
    })?;
    // What the replays left must be right too.
    assert!(output.read(&stream)? == want, "a replayed all-to-all of {bytes} bytes is wrong on rank {rank}");
    let eager = timed(world, &stream, windows, replays * per_graph, || {
        (0..replays * per_graph).try_for_each(|_| launch(&mut output))
    })?;
    let wire = ((len - chunk) * size_of::<f32>()) as f64;
    let on_gpu = X::NAME == "Nvl";
    Ok(Row {
        name: "fusewire".into(),
        op: "all_to_all".into(),
        world: ranks,
        bytes,
        graph_us: replayed.as_secs_f64() * 1e6,
        eager_us: eager.as_secs_f64() * 1e6,
        wire_gb_s: wire / replayed.as_secs_f64() / 1e9,
        sms: if on_gpu { (plan.blocks as usize).min(device.processors()) } else { 0 },
        checked: true,
    })
}

/// Median over `windows` of the time of one of `count` operations that `body` queues; the slowest rank's.
fn timed(
    world: &World,
    stream: &Stream,
    windows: usize,
    count: usize,
    mut body: impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<Duration> {
    body()?;
    stream.synchronize()?;
    let mut times = Vec::new();
    for _ in 0..windows {
        world.barrier()?;
        let start = stream.record()?;
        body()?;
        let end = stream.record()?;
        stream.synchronize()?;
        times.push(end.since(&start)? / count as u32);
    }
    slowest_median(world, times)
}

fn compare(first: &PathBuf, second: &PathBuf) -> Result<(), String> {
    let read = |path: &PathBuf| -> Result<BTreeMap<(usize, usize), Row>, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let rows = text.lines().filter(|l| l.starts_with('{')).map(serde_json::from_str::<Row>);
        let rows = rows.collect::<Result<Vec<_>, _>>().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(rows.into_iter().filter(|r| r.op == "all_to_all").map(|r| ((r.world, r.bytes), r)).collect())
    };
    let (a, b) = (read(first)?, read(second)?);
    let names = (
        a.values().next().map_or("?", |r| r.name.as_str()),
        b.values().next().map_or("?", |r| r.name.as_str()),
    );
    println!(
        "all-to-all, time of one in us (graph replay | eager launches); {} / {}: above 1 the second is faster",
        names.0, names.1
    );
    println!(
        "{:>4} {:>10} | {:>10} {:>10} {:>6} | {:>10} {:>10} {:>6} | {:>9} {:>4}",
        "GPUs", "size", names.0, names.1, "ratio", names.0, names.1, "ratio", "GB/s wire", "SMs"
    );
    for (key, rb) in &b {
        let Some(ra) = a.get(key) else { continue };
        println!(
            "{:>4} {:>10} | {:>10.2} {:>10.2} {:>6.2} | {:>10.2} {:>10.2} {:>6.2} | {:>9.1} {:>4}",
            rb.world,
            bytes_text(rb.bytes),
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
