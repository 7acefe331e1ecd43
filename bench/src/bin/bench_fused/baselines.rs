//! Our kernels and hand-written ones in turn, in one process, on the same memory.

use crate::{Options, replays};
use fusewire::Protocol;
use fusewire::prelude::*;
use fusewire_bench::cases::{Bench, Launch, On};
use fusewire_examples::ranks::bytes_text;
use serde::Serialize;

#[derive(Serialize)]
struct Pair {
    name: &'static str,
    op: &'static str,
    protocol: String,
    world: usize,
    bytes: usize,
    blocks: u32,
    /// Replayed, microseconds.
    graph_us: f64,
    baseline_us: f64,
    /// Ours over the baseline's.
    ratio: f64,
    checked: bool,
}

/// What has a baseline: hook, protocol, and whether it stores into symmetric outputs.
const WITH: [(&str, Protocol, bool); 5] = [
    ("copy", Protocol::Simple, false),
    ("copy", Protocol::Ll128, false),
    ("copy", Protocol::Direct, true),
    ("copy", Protocol::Bulk, true),
    ("transpose", Protocol::Direct, true),
];

/// Checks and times all that has a baseline, of the hooks and ways that `options` name. Collective.
pub fn compare<X: On>(
    world: &World,
    transport: &X,
    options: &Options,
    sizes: &[usize],
) -> fusewire::Result<()> {
    let Options { baseline: files, op: ops, protocol: protocols, json, .. } = options;
    let bench = Bench::new(world, transport, replays)?;
    let mut baselines = X::All::new(transport)?;
    for file in files {
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        // SAFETY: `bench/baselines` were written for these very kernels.
        baselines = unsafe { baselines.with_ptx(&text)? };
    }
    if world.rank() == 0 && !*json {
        println!(
            "{:>10} {:>8} {:>10} {:>6} {:>12} {:>12} {:>7}",
            "hook", "way", "size", "blocks", "ours", "by hand", "ratio"
        );
    }
    let asked = |op: &str, protocol: Protocol| {
        (ops.is_empty() || ops.iter().any(|o| o == op))
            && (protocols.is_empty() || protocols.contains(&protocol))
    };
    for (op, protocol, symmetric) in WITH.into_iter().filter(|(op, protocol, _)| asked(op, *protocol)) {
        for &bytes in sizes {
            let options = LaunchOptions::default().protocol(protocol);
            let mut ready = bench.ready(op, symmetric, bytes, options)?;
            let plan = match bench.plan(&mut ready) {
                // More than lines hold, or no whole packs.
                Err(fusewire::Error::Misuse { .. }) => continue,
                other => other?,
            };
            let ours = bench.checked(&bench.all, &mut ready)?;
            let theirs = bench.checked(&baselines, &mut ready)?;
            let [ours, baseline] = bench.by_turns(&ready, [&ours, &theirs])?;
            if world.rank() > 0 {
                continue;
            }
            let protocol = protocol.name().to_owned();
            let (blocks, ratio) = (plan.blocks, ours / baseline);
            if *json {
                let world = world.size();
                let pair = Pair {
                    name: "baseline",
                    op,
                    protocol,
                    world,
                    bytes,
                    blocks,
                    graph_us: ours,
                    baseline_us: baseline,
                    ratio,
                    checked: true,
                };
                println!("{}", serde_json::to_string(&pair).unwrap_or_default());
            } else {
                let size = bytes_text(bytes);
                println!(
                    "{op:>10} {protocol:>8} {size:>10} {blocks:>6} {ours:>9.2} us {baseline:>9.2} us {ratio:>7.3}"
                );
            }
        }
    }
    world.barrier()?;
    Ok(())
}
