//! Jobs that launchers start: each process learns its rank from its environment.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-suite");

/// What each job runs.
const CASES: &str = "graphs::";

fn job() -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["--device", "host", "--from-env", "--filter", CASES]);
    for (name, _) in std::env::vars() {
        let launched = ["FUSEWIRE_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_"];
        if launched.iter().any(|p| name.starts_with(p)) && name != "FUSEWIRE_TEST_SEED" {
            command.env_remove(name);
        }
    }
    command.env_remove("RANK").env_remove("WORLD_SIZE").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A port that was free a moment ago, and the one after it, too.
fn port() -> u16 {
    loop {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        if first < u16::MAX && TcpListener::bind((Ipv4Addr::LOCALHOST, first + 1)).is_ok() {
            return first;
        }
    }
}

fn start(ranks: usize, environment: impl Fn(usize) -> Vec<(&'static str, String)>) -> Vec<Output> {
    let children: Vec<Child> =
        (0..ranks).map(|rank| job().envs(environment(rank)).spawn().unwrap()).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn all_passed(outputs: &[Output]) {
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", text(output));
        assert_eq!(text(output).contains("6 passed, 0 failed"), rank == 0, "rank {rank}: {}", text(output));
    }
}

#[test]
fn our_own_variables() {
    let address = format!("127.0.0.1:{}", port());
    all_passed(&start(3, |rank| {
        vec![
            ("FUSEWIRE_RANK", rank.to_string()),
            ("FUSEWIRE_WORLD_SIZE", "3".into()),
            ("FUSEWIRE_ADDR", address.clone()),
            ("FUSEWIRE_TOKEN", "a secret of this job".into()),
        ]
    }));
}

#[test]
fn as_torchrun_sets_them() {
    let port = port();
    all_passed(&start(4, |rank| {
        vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "4".into()),
            ("LOCAL_RANK", rank.to_string()),
            ("LOCAL_WORLD_SIZE", "4".into()),
            ("MASTER_ADDR", "127.0.0.1".into()),
            ("MASTER_PORT", port.to_string()),
            ("TORCHELASTIC_RUN_ID", "none".into()),
            ("TORCHELASTIC_RESTART_COUNT", "0".into()),
        ]
    }));
}

#[test]
fn a_job_of_one() {
    let outputs = start(1, |_| vec![("FUSEWIRE_RANK", "0".into()), ("FUSEWIRE_WORLD_SIZE", "1".into())]);
    assert!(
        outputs[0].status.success() && text(&outputs[0]).contains("5 passed, 0 failed"),
        "{}",
        text(&outputs[0])
    );
}

#[test]
fn no_launcher() {
    let output = job().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("no launcher found"), "{}", text(&output));
}

/// The real thing, where it is installed: Open MPI as Debian packages it (openmpi-bin).
#[test]
fn mpirun() {
    by_launcher("FUSEWIRE_TEST_MPIRUN", "mpirun", &["--allow-run-as-root", "--oversubscribe", "-np"]);
}

/// The same of Slurm, whose daemons run (slurmctld, slurmd).
#[test]
fn srun() {
    by_launcher("FUSEWIRE_TEST_SRUN", "srun", &["--overcommit", "-n"]);
}

fn by_launcher(variable: &str, launcher: &str, arguments: &[&str]) {
    if std::env::var_os(variable).is_none_or(|v| v != "1") {
        let _ =
            writeln!(std::io::stderr(), "{launcher}: left out: {variable}=1 runs it, where it is installed");
        return;
    }
    for ranks in ["2", "4"] {
        let mut command = Command::new(launcher);
        command.args(arguments).args([ranks, PROGRAM, "--device", "host", "--from-env", "--filter", CASES]);
        // Slurm names nodes, whose addresses are not loopback: those ranks need a secret.
        let output =
            command.env("FUSEWIRE_TOKEN", "of this test alone").output().expect("the launcher is installed");
        assert!(output.status.success() && text(&output).contains("6 passed, 0 failed"), "{}", text(&output));
    }
}
