//! Windows whose peers are reached in different ways: 4 ranks as two pairs that share memory, with adapters between; and adapters alone.

use fusewire::Ibgda;
use fusewire_tests::fleet::{ENTRY, Fleet};
use fusewire_tests::{Case, Meet, Scale, Stop, data, run};
use std::io::Write;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-suite");
const LIMIT: Duration = Duration::from_secs(60);

fn cases(ranks: usize) -> Vec<Case<Ibgda>> {
    let ours = |c: &Case<Ibgda>| {
        ["multi_peer::", "windows::", "window_faults::"].iter().any(|group| c.name.starts_with(group))
    };
    Ibgda::cases().into_iter().filter(|c| ours(c) && c.ranks.contains(&ranks)).collect()
}

/// Runs every case; says which failed.
fn all(ranks: usize, how: &str, mut one: impl FnMut(&Case<Ibgda>, u64) -> fusewire_tests::Outcome) {
    let (cases, seed) = (cases(ranks), data::seed());
    println!("seed {seed}: FUSEWIRE_TEST_SEED={seed} repeats it");
    assert!(cases.len() > 20, "only {} cases", cases.len());
    let mut failed = Vec::new();
    for case in &cases {
        let start = Instant::now();
        match one(case, seed) {
            Ok(()) => println!("{} on {ranks} {how}: {:.2?}", case.name, start.elapsed()),
            Err(Stop::LeftOut(why)) => {
                let _ = writeln!(std::io::stderr(), "{} on {ranks} {how}: left out: {why}", case.name);
            }
            Err(Stop::Failed(why)) => failed.push(why),
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn processes(ranks: usize) {
    let worker = [ENTRY, "--device", "host", "--over", "ibgda"].map(str::to_owned);
    let mut fleet = Fleet::new(PROGRAM, &worker, ranks);
    all(ranks, "processes", |case, seed| fleet.expect(case.name, None, seed, LIMIT));
}

#[test]
fn two_pairs_of_threads() {
    all(4, "threads", |case, seed| run::in_threads(case, 4, Scale::Host, seed, LIMIT));
}

#[test]
fn two_pairs_of_processes() {
    processes(4);
}

#[test]
fn adapters_alone_between_processes() {
    processes(2);
}
