//! `cargo xtask bench-host`: the shared-memory transport beside Open MPI, on this machine's cores.

use crate::steps::{self, Outcome, cargo, device_compiler, target};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("../../bench/peers/mpi_host.c");

/// Bytes of each rank's input.
const SIZES: [usize; 6] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

#[derive(Deserialize)]
struct Row {
    op: String,
    bytes: usize,
    best_us: f64,
    median_us: f64,
}

/// Best and median of each round, by what was done and its bytes.
type Times = BTreeMap<(String, usize), Vec<(f64, f64)>>;

/// Runs both sides in turn, `rounds` times, under one `mpirun` command, which binds each rank to a core of its own.
pub fn run(rounds: usize) -> Outcome {
    if rounds == 0 {
        return Err("0 rounds; there must be at least one".into());
    }
    device_compiler()?;
    let folder = target().join("bench-host");
    let theirs = folder.join("mpi_host");
    compile(&folder, &theirs)?;
    steps::run(
        "building the benchmark",
        cargo().args(["build", "--release", "--quiet", "-p", "fusewire-bench", "--bin", "host"]),
    )?;
    let ours = target().join("release/host");
    let sizes: Vec<String> = SIZES.iter().map(usize::to_string).collect();
    let (mut mpi, mut own) = (Times::new(), Times::new());
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        collect(&mut mpi, Command::new("mpirun").args(ranks()).arg(&theirs).args(&sizes))?;
        collect(
            &mut own,
            Command::new("mpirun").args(ranks()).arg(&ours).args(["--size", &sizes.join(",")]),
        )?;
    }
    println!(
        "\n2 ranks on {}: times in us, the best of {rounds} rounds and the median of their medians",
        processor()
    );
    println!("ratio: Open MPI's time over ours, of the best and of the medians; above 1 ours is faster\n");
    println!(
        "{:<24} {:>9} | {:>10} {:>10} | {:>10} {:>10} | {:>5} {:>5}",
        "", "bytes", "MPI best", "median", "ours best", "median", "ratio", ""
    );
    for ((op, bytes), times) in &own {
        // What is there in several ways on our side is one on theirs.
        let theirs = mpi.get(&(op.split(' ').next().unwrap_or_default().to_string(), *bytes));
        let Some(theirs) = theirs else { continue };
        let ((a, b), (c, d)) = (summary(theirs), summary(times));
        println!(
            "{op:<24} {bytes:>9} | {a:>10.2} {b:>10.2} | {c:>10.2} {d:>10.2} | {:>5.2} {:>5.2}",
            a / c,
            b / d
        );
    }
    Ok(())
}

fn compile(folder: &Path, program: &Path) -> Outcome {
    let text = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(text)?;
    let source = folder.join("mpi_host.c");
    std::fs::write(&source, SOURCE).map_err(text)?;
    let mut mpicc = Command::new("mpicc");
    mpicc.arg("-O2").arg("-o").arg(program).arg(&source);
    steps::run("mpicc (Debian: openmpi-bin and libopenmpi-dev)", &mut mpicc)
}

/// `mpirun`'s arguments for both sides.
fn ranks() -> Vec<&'static str> {
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0");
    let mut arguments = vec!["-n", "2", "--bind-to", "core"];
    if root {
        arguments.push("--allow-run-as-root");
    }
    arguments
}

fn collect(times: &mut Times, command: &mut Command) -> Outcome {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{} could not be started: {e}", command.get_program().display()))?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status));
    }
    for line in String::from_utf8_lossy(&output.stdout).lines().filter(|l| l.starts_with('{')) {
        let row: Row = serde_json::from_str(line).map_err(|e| format!("`{line}`: {e}"))?;
        times.entry((row.op, row.bytes)).or_default().push((row.best_us, row.median_us));
    }
    Ok(())
}

/// The best of all rounds, and the median of their medians.
fn summary(rounds: &[(f64, f64)]) -> (f64, f64) {
    let best = rounds.iter().map(|r| r.0).fold(f64::INFINITY, f64::min);
    let mut medians: Vec<f64> = rounds.iter().map(|r| r.1).collect();
    medians.sort_by(f64::total_cmp);
    (best, medians[medians.len() / 2])
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {}", model.trim_start_matches([' ', '\t', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_summed_up() {
        assert_eq!(summary(&[(3.0, 9.0), (1.0, 4.0), (2.0, 5.0)]), (1.0, 5.0));
    }
}
