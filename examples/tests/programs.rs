//! The programs on CPU threads: ranks as processes and as threads, one rank alone, arguments that cannot be.

use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// What it printed.
fn succeeds(program: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(program, arguments);
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}\n{text}{}",
        String::from_utf8_lossy(&stderr)
    );
    text
}

const HALO: &str = env!("CARGO_BIN_EXE_window_halo");

#[test]
fn a_halo_of_any_number_of_slabs() {
    for ranks in ["1", "2", "3"] {
        for kind in ["--threads", "--processes"] {
            let said = succeeds(HALO, &["--device", "host", "--ranks", ranks, kind]);
            assert_eq!(said.lines().filter(|line| line.contains("are right")).count().to_string(), ranks);
        }
    }
}

#[test]
fn a_ring_of_one() {
    let said = succeeds(env!("CARGO_BIN_EXE_window_ring"), &["--device", "host", "--ranks", "1"]);
    assert!(said.contains("has the chunks of all 1 ranks"), "{said}");
}

#[test]
fn threads_exchange_as_processes_do() {
    let size = ["--device", "host", "--ranks", "3", "--size", "3K", "--repeat", "1"];
    for kind in ["--threads", "--processes"] {
        let said = succeeds(env!("CARGO_BIN_EXE_all_to_all"), &[&size[..], &[kind]].concat());
        assert!(said.contains("elements checked on 3 ranks, none differs"), "{said}");
    }
}

#[test]
fn no_ranks_and_both_kinds_are_refused() {
    let none = run(HALO, &["--ranks", "0"]);
    assert!(!none.status.success());
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is at least one rank"));
    assert!(!run(HALO, &["--threads", "--processes"]).status.success());
}
