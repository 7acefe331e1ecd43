//! Ranks that are processes, which meet over TCP and share memory: the whole suite, and ranks that die.

use fusewire::Shm;
use fusewire_tests::fleet::{ENTRY, Fleet};
use fusewire_tests::suite::processes;
use fusewire_tests::{Case, Meet, Stop, data};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-suite");
const LIMIT: Duration = Duration::from_secs(60);

fn fleet(size: usize) -> Fleet {
    Fleet::new(PROGRAM, &[ENTRY, "--device", "host"].map(str::to_owned), size)
}

/// Runs cases one after the other on the same processes.
fn run(size: usize, cases: Vec<Case<Shm>>) {
    let (mut fleet, seed) = (fleet(size), data::seed());
    println!("seed {seed}: FUSEWIRE_TEST_SEED={seed} repeats it");
    assert!(!cases.is_empty());
    let mut failed = Vec::new();
    for case in cases.iter().filter(|c| c.ranks.contains(&size)) {
        let start = Instant::now();
        match fleet.expect(case.name, processes::victim(case.name, size), seed, LIMIT) {
            Ok(()) => println!("{} on {size} processes: {:.2?}", case.name, start.elapsed()),
            Err(Stop::LeftOut(why)) => {
                let _ = writeln!(std::io::stderr(), "{} on {size} processes: left out: {why}", case.name);
            }
            Err(Stop::Failed(why)) => failed.push(why),
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn of(group: &str) -> Vec<Case<Shm>> {
    Shm::cases().into_iter().filter(|c| c.name.starts_with(group)).collect()
}

#[test]
fn the_suite_on_2_processes() {
    run(2, Shm::cases().into_iter().filter(|c| !processes::is_one(c.name)).collect());
}

#[test]
fn the_suite_on_4_processes() {
    let groups = [
        "copying::every",
        "copying::sizes",
        "hooks::",
        "peers::",
        "graphs::",
        "schedules::",
        "faults::",
        "alike::",
        "agreement::",
    ];
    run(4, groups.into_iter().flat_map(of).collect());
}

#[test]
fn a_rank_dies_and_2_know() {
    run(2, of("processes::"));
}

#[test]
fn a_rank_dies_and_4_know() {
    run(4, of("processes::"));
}

/// A process that is there and not dead.
fn alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

fn all_end_within(pids: &[u32], limit: Duration) {
    let start = Instant::now();
    while pids.iter().any(|pid| alive(*pid)) {
        assert!(start.elapsed() < limit, "of {pids:?} some are still running");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_worker_outlives_its_fleet() {
    let mut fleet = fleet(3);
    fleet.expect("peers::ring", None, 1, LIMIT).unwrap();
    let pids = fleet.pids();
    assert!(pids.len() == 3 && pids.iter().all(|pid| alive(*pid)));
    drop(fleet);
    all_end_within(&pids, Duration::from_secs(1));
}

/// Nor the program that was killed, whatever its workers were doing.
#[test]
fn no_worker_outlives_a_killed_program() {
    let mut program = Command::new(PROGRAM)
        .args(["--device", "host", "--mode", "processes", "--ranks", "2", "--filter", "faults::"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("passed")));
    let children = format!("/proc/{0}/task/{0}/children", program.id());
    let pids: Vec<u32> = std::fs::read_to_string(children)
        .unwrap()
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 2);
    program.kill().unwrap();
    program.wait().unwrap();
    all_end_within(&pids, Duration::from_secs(5));
}

#[test]
fn a_worker_that_is_killed_is_replaced() {
    let mut fleet = fleet(2);
    fleet.expect("peers::pairs", None, 1, LIMIT).unwrap();
    let before = fleet.pids();
    assert!(
        matches!(fleet.expect("no::such_case", None, 1, LIMIT), Err(Stop::Failed(why)) if why.contains("no such case"))
    );
    fleet.expect("processes::last_rank_is_killed", Some(1), 1, LIMIT).unwrap();
    fleet.expect("peers::pairs", None, 1, LIMIT).unwrap();
    assert!(before.iter().all(|pid| !fleet.pids().contains(pid)) && !before.iter().any(|pid| alive(*pid)));
}

#[test]
fn nothing_is_left_in_shared_memory() {
    // Memory is passed by file descriptor: there are no names to leave behind.
    let ours = || {
        std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().contains("fusewire"))
            .count()
    };
    assert!(Path::new("/dev/shm").exists() && ours() == 0);
}
