//! `--from-env`: one rank of a job that a launcher started.

use crate::report::Report;
use fusewire::World;
use fusewire_tests::{Case, Meet, Outcome, Rank, Scale, Stop};
use std::process::ExitCode;

/// Meets the other ranks and runs the cases with them, one after the other; rank 0 prints.
pub fn run<X: Meet>(cases: &[Case<X>], scale: Scale, seed: u64, json: bool) -> ExitCode {
    let world = match World::from_env() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("gpu-suite: {error}");
            return ExitCode::from(2);
        }
    };
    match all(&world, cases, scale, seed, json) {
        Ok(code) => code,
        Err(stop) => {
            eprintln!("gpu-suite: rank {}: {stop}", world.rank());
            ExitCode::FAILURE
        }
    }
}

fn all<X: Meet>(
    world: &World,
    cases: &[Case<X>],
    scale: Scale,
    seed: u64,
    json: bool,
) -> Result<ExitCode, Stop> {
    let seed = world.broadcast_as(0, (world.rank() == 0).then_some(&seed))?;
    let mut report = (world.rank() == 0).then(|| Report::new(json));
    let text = format!("{} ranks on {}, seed {seed}, {:?}", world.size(), X::NAME, world.kind());
    report.iter().for_each(|r| r.note(&text));
    for case in cases.iter().filter(|c| c.ranks.contains(&world.size())) {
        let body = || -> Outcome { (case.body)(&Rank::new(world.clone(), seed, scale)) };
        let outcome = match &mut report {
            Some(report) => report.case("launched", case.name, body),
            None => body(),
        };
        match outcome {
            Ok(()) | Err(Stop::LeftOut(_)) => world.barrier()?,
            failed => return failed.map(|()| ExitCode::FAILURE),
        }
    }
    world.teardown_barrier()?;
    Ok(report.map_or(ExitCode::SUCCESS, Report::end))
}
