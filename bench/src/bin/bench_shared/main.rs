//! Every hook by every protocol, with ranks that share a GPU: what a change of device code costs, on a machine with one GPU. Graph replay
//! and eager launches, checked, one JSON line each; `--compare` sets the lines of two versions beside each other, as `run.sh compare` does.

mod compare;

use clap::Parser;
use fusewire::Protocol;
use fusewire::prelude::*;
use fusewire_bench::cases::{Bench, Counts, Measured, NAMES, On, SENDRECV};
use fusewire_examples::ranks::{Ranks, bytes_text, gpu_name, launched, parse_bytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Benchmark of all hooks and protocols on one GPU. Ranks are threads unless `--processes` is given.
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "cuda", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    /// Bytes of each rank's whole input, separated by commas; by default 1K, 64K, 1M and 16M, on the host the first two.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    size: Vec<usize>,
    /// How bytes travel: `simple`, `ll128`, `direct`, `bulk`, `copy`; by default each.
    #[arg(long, value_delimiter = ',')]
    protocol: Vec<Protocol>,
    /// Compare files of this program's lines: `--compare old1.jsonl,old2.jsonl new1.jsonl,new2.jsonl`, each file a round.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    compare: Option<Vec<String>>,
}

/// What one launch of a case takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    name: String,
    op: String,
    hook: String,
    protocol: String,
    bytes: usize,
    ranks: usize,
    /// `threads` or `processes`.
    #[serde(default)]
    kind: String,
    #[serde(default)]
    gpu: String,
    /// The slowest rank's median, microseconds.
    replay_us: f64,
    eager_us: f64,
    #[serde(default)]
    blocks: u32,
    #[serde(default)]
    threads: u32,
    #[serde(default)]
    checked: bool,
}

const PROTOCOLS: [Protocol; 6] =
    [Protocol::Simple, Protocol::Ll, Protocol::Ll128, Protocol::Direct, Protocol::Bulk, Protocol::Copy];

fn main() -> ExitCode {
    let mut options = Options::parse();
    if let Some(files) = &options.compare {
        return match compare::files(&files[0], &files[1]) {
            Ok(report) => {
                // A reader that has gone is no reason to panic.
                let _ = writeln!(std::io::stdout(), "{report}");
                if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        };
    }
    let cuda = options.device == "cuda";
    options.ranks.threads = !options.ranks.processes;
    options.ranks.ranks.get_or_insert(2);
    options.ranks.run(cuda, 2, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, fusewire::Options::default())?, &options),
        false => rank(world, &Shm::rendezvous(world, fusewire::Options::default())?, &options),
    })
}

fn on_gpus(_: usize) -> Counts {
    Counts { per_graph: 10, windows: 5, replays: 4, eager: 20, warm_up: Duration::from_millis(5) }
}

fn on_host(_: usize) -> Counts {
    Counts { per_graph: 2, windows: 3, replays: 2, eager: 2, warm_up: Duration::ZERO }
}

fn rank<X: On>(world: &World, transport: &X, options: &Options) -> fusewire::Result<()> {
    let cuda = options.device == "cuda";
    let sizes = match options.size.as_slice() {
        [] if cuda => vec![1 << 10, 64 << 10, 1 << 20, 16 << 20],
        [] => vec![1 << 10, 64 << 10],
        some => some.to_vec(),
    };
    let protocols = if options.protocol.is_empty() { &PROTOCOLS[..] } else { &options.protocol };
    let gpu = if cuda { gpu_name() } else { "CPU threads".into() };
    let kind = if options.ranks.processes || launched() { "processes" } else { "threads" };
    let bench = Bench::new(world, transport, if cuda { on_gpus } else { on_host })?;
    let mut left_out: BTreeMap<(&str, Protocol), (Vec<String>, String)> = BTreeMap::new();
    let mut leave_out = |name, protocol, bytes, why| {
        left_out.entry((name, protocol)).or_insert((Vec::new(), why)).0.push(bytes_text(bytes));
    };
    for &bytes in &sizes {
        for name in NAMES.into_iter().chain([SENDRECV]) {
            // Symmetric, so that all protocols have the same output.
            let mut ready = match bench.ready(name, true, bytes, LaunchOptions::default()) {
                Err(fusewire::Error::Misuse { what }) => {
                    for &protocol in protocols {
                        leave_out(name, protocol, bytes, what.clone());
                    }
                    continue;
                }
                other => other?,
            };
            for &protocol in protocols {
                ready.set_protocol(protocol);
                let why = match bench.plan(&mut ready) {
                    Err(fusewire::Error::Misuse { what }) => Some(what),
                    other => other.map(|_| None)?,
                };
                if let Some(why) = world.all_gather_as(&why)?.into_iter().flatten().next() {
                    leave_out(name, protocol, bytes, why);
                    continue;
                }
                let Measured { plan, replayed, eager } = bench.measure(&mut ready)?;
                let (op, hook) = if name == SENDRECV { (name, "copy") } else { ("all_to_all", name) };
                let row = Row {
                    name: "fusewire".into(),
                    op: op.into(),
                    hook: hook.into(),
                    protocol: plan.protocol.name().to_owned(),
                    bytes,
                    ranks: world.size(),
                    kind: kind.into(),
                    gpu: gpu.clone(),
                    replay_us: replayed.as_secs_f64() * 1e6,
                    eager_us: eager.as_secs_f64() * 1e6,
                    blocks: plan.blocks,
                    threads: plan.threads,
                    checked: true,
                };
                if world.rank() == 0 {
                    println!("{}", serde_json::to_string(&row).unwrap_or_default());
                }
            }
        }
    }
    if world.rank() == 0 {
        let mut alike: BTreeMap<(Protocol, String), (Vec<&str>, &str)> = BTreeMap::new();
        for ((name, protocol), (sizes, why)) in &left_out {
            alike.entry((*protocol, sizes.join(", "))).or_insert((Vec::new(), why)).0.push(name);
        }
        for ((protocol, sizes), (names, why)) in &alike {
            eprintln!("left out: {} of {sizes}: {}: {why}", protocol.name(), names.join(", "));
        }
    }
    world.barrier()?;
    Ok(())
}
