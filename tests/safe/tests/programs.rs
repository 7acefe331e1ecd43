//! Every program of safe code ends as its first lines say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of them takes.
const LIMIT: Duration = Duration::from_secs(60);

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// What the first lines of a program say.
struct Expected {
    name: String,
    /// `well`, or `signal 6`.
    ends: String,
    /// What it says, as one of several parts.
    says: Vec<String>,
}

fn expected() -> Vec<Expected> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder("src/run")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let line = |key: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix("//! ")?.strip_prefix(key));
            lines.map(|rest| rest.trim().to_owned()).collect::<Vec<_>>()
        };
        let ends = line("Ends:");
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert_eq!(ends.len(), 1, "{name}: one line `//! Ends: ..`");
        all.push(Expected { name, ends: ends[0].clone(), says: line("Says:") });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Why it did not end as it should.
fn wrong(program: &Expected) -> Option<String> {
    let (out, begun) = (Path::new(env!("CARGO_TARGET_TMPDIR")).join(&program.name), Instant::now());
    let file = fs::File::create(&out).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fusewire-safe"))
        .arg(&program.name)
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > LIMIT => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Some(format!("{}: does not end within {LIMIT:?}", program.name));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let text = fs::read_to_string(&out).unwrap();
    let ended = match program.ends.as_str() {
        "well" => status.success() && text.contains("ended well"),
        ends => {
            let number = ends.strip_prefix("signal ").and_then(|n| n.parse::<i32>().ok());
            number.is_some() && std::os::unix::process::ExitStatusExt::signal(&status) == number
        }
    };
    let silent = program.says.iter().find(|part| !text.contains(part.as_str()));
    match (ended, silent) {
        (true, None) => None,
        (false, _) => Some(format!("{} ended with {status}, not {}:\n{text}", program.name, program.ends)),
        (true, Some(part)) => Some(format!("{} does not say `{part}`:\n{text}", program.name)),
    }
}

#[test]
fn every_program_ends_as_it_says() {
    let programs = expected();
    assert!(programs.len() >= 30, "{} programs", programs.len());
    let wrong: Vec<String> = programs.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), programs.len(), wrong.join("\n"));
}

#[test]
fn what_would_be_wrong_does_not_compile() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}
