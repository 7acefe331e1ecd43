//! The GPU test program itself, on CPU threads.

use std::process::{Command, Output};

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-suite")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn names_its_cases() {
    for device in ["host", "cuda"] {
        let output = program(&["--list", "--device", device, "--filter", "copying::"]);
        assert!(output.status.success());
        let lines = text(&output);
        assert!(lines.lines().count() == 8 && lines.contains("copying::large"), "{lines}");
    }
    assert!(text(&program(&["--list"])).contains("processes::rank_0_is_killed"));
    let lines = text(&program(&["--list", "--filter", "hooks::", "--filter", "peers::", "--skip", "ring"]));
    assert!(
        lines.lines().count() == 13 && lines.contains("hooks::") && lines.contains("peers::p"),
        "{lines}"
    );
}

#[test]
fn both_modes() {
    let wanted = ["--device", "host", "--filter", "options::"];
    let cases = text(&program(&[&wanted[..], &["--list"]].concat())).lines().count();
    let output = program(&[&wanted[..], &["--ranks", "3", "--seed", "5"]].concat());
    let text = text(&output);
    let passed = format!("{} passed, 0 failed, 0 left out", 2 * cases);
    assert!(cases > 0 && output.status.success() && text.contains(&passed), "{passed}: {text}");
    assert!(text.contains("seed 5") && text.contains("threads   options::variants"), "{text}");
}

#[test]
fn one_json_object_a_line() {
    let output = program(&["--device", "host", "--mode", "threads", "--filter", "peers::", "--json"]);
    let objects: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let outcomes = objects.iter().filter(|o| o["outcome"] == "passed" && o["seconds"].as_f64().is_some());
    assert_eq!((outcomes.count(), &objects.last().unwrap()["passed"]), (5, &5.into()));
}

/// A case that outlasts its limit fails, and ends the run.
#[test]
fn a_hanging_case_is_given_up() {
    for mode in ["threads", "processes"] {
        let output =
            program(&["--device", "host", "--mode", mode, "--filter", "faults::again", "--limit", "0"]);
        let text = text(&output);
        assert!(output.status.code() == Some(1) && text.contains("0 passed, 1 failed"), "{text}");
    }
}

#[test]
fn a_case_that_is_not_for_so_many_ranks_is_left_out_aloud() {
    let output = program(&["--device", "host", "--mode", "threads", "--ranks", "1", "--filter", "::"]);
    let text = text(&output);
    assert!(
        output.status.success() && text.contains("left out, ") && text.contains("it is for 2 to"),
        "{text}"
    );
}

#[test]
fn without_cuda_it_says_so() {
    if fusewire::driver::Driver::load().is_ok() {
        return;
    }
    let output = program(&["--ranks", "2"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("no CUDA driver"), "{}", text(&output));
}
