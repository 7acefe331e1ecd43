//! One rank's hooks and the driver's copy of as many bytes in turn, on the same buffers: what a hook costs beside a copy. How long bytes take that the cache
//! holds depends on where they lie, so times of other buffers do not compare.

use crate::{Options, replays};
use fusewire::prelude::*;
use fusewire_bench::cases::{Bench, On};
use fusewire_bench::choices;
use fusewire_examples::ranks::bytes_text;

/// Checks and times the hooks `names`.
///
/// # Errors
/// `Misuse` of several ranks, whose bytes travel.
pub fn compare<X: On>(
    world: &World,
    transport: &X,
    options: &Options,
    (sizes, names): (&[usize], &[&str]),
) -> fusewire::Result<()> {
    if world.size() > 1 {
        let what =
            format!("`--beside-memcpy` is for one rank, and there are {}: add `--ranks 1`", world.size());
        return Err(fusewire::Error::Misuse { what });
    }
    println!(
        "{:>16} {:>10} {:>6} {:>7} {:>12} {:>12} {:>7}",
        "hook", "size", "blocks", "threads", "ours", "memcpy", "ratio"
    );
    let bench = Bench::new(world, transport, replays)?;
    for name in names {
        for &bytes in sizes {
            for self_copy in choices(&options.self_copy) {
                let launch =
                    LaunchOptions { self_copy, threads: options.block_threads, ..Default::default() };
                let mut ready = bench.ready(name, false, bytes, launch)?;
                let plan = bench.plan(&mut ready)?;
                let ours = bench.checked(&bench.all, &mut ready)?;
                let driver = bench.driver_copies(&mut ready)?;
                let [ours, driver] = bench.by_turns(&ready, [&ours, &driver])?;
                println!(
                    "{name:>16} {:>10} {:>6} {:>7} {ours:>9.2} us {driver:>9.2} us {:>7.3}",
                    bytes_text(bytes),
                    plan.blocks,
                    plan.threads,
                    ours / driver
                );
            }
        }
    }
    Ok(())
}
