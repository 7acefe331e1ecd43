//! `cargo xtask fuzz`: each target of `fuzz/` under libFuzzer, with the stable compiler's coverage counters.

use crate::steps::{self, Outcome, TRIPLE, cargo, root, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What cargo-fuzz turns on too: counters for each edge, comparisons, and checks that release builds leave out.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on";
/// No input needs more, in bytes and in MB of memory.
const LONGEST: &str = "-max_len=4096";
const MEMORY: &str = "-rss_limit_mb=1024";

/// Fuzzes; fails where an input failed, and says how to keep it.
pub fn run(seconds: u64, only: Option<&str>, keep: bool) -> Outcome {
    let program = build()?;
    let mut failed = Vec::new();
    let mut rows = Vec::new();
    let all = targets()?;
    let named: Vec<_> =
        all.iter().filter(|name| only.is_none_or(|only| name.contains(only))).cloned().collect();
    if named.is_empty() {
        return Err(format!(
            "`--only`: no target's name contains {:?}; there are {}",
            only.unwrap_or(""),
            all.join(", ")
        ));
    }
    for name in named {
        let (own, kept) = (target().join("fuzz").join(&name), root().join("fuzz/corpus").join(&name));
        let corpus = own.join("corpus");
        for folder in [&corpus, &kept] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        println!("\n=== {name}, {seconds} s");
        let log = own.join("log");
        let output = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let mut command = fuzzer(&program, &name);
        command.args([LONGEST, MEMORY, "-timeout=10", "-print_final_stats=1"]);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", own.display()));
        let status = command.args([&corpus, &kept]).stdout(Stdio::null()).stderr(output).status();
        let status = status.map_err(|e| format!("{}: {e}", program.display()))?;
        let said = fs::read_to_string(&log).unwrap_or_default();
        if status.success() {
            rows.push(account(&name, &said));
            println!("{}", rows[rows.len() - 1]);
        } else {
            println!(
                "{}",
                said.lines()
                    .rev()
                    .take(40)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                    .collect::<Vec<_>>()
                    .join("\n")
            );
            failed.push(name.clone());
        }
        if keep {
            merge(&program, &name, &own, &[&corpus, &kept], &kept)?;
        }
    }
    println!("\ntarget          executions   seconds   edges  features  inputs");
    rows.iter().for_each(|row| println!("{row}"));
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} failed: the input is beside the log in {}; mend what it shows and put it into fuzz/corpus/TARGET, where every \
         `cargo test` runs it",
        failed.join(", "),
        target().join("fuzz").display()
    ))
}

fn build() -> Outcome<PathBuf> {
    let there =
        Command::new("c++").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        return Err("libFuzzer is C++, and there is no `c++` here: apt-get install g++".to_owned());
    }
    let built = target().join("fuzz");
    let mut command = cargo();
    command.args(["build", "--release", "-p", "fusewire-fuzz", "--features", "libfuzzer", "--bin", "fuzz"]);
    // A target by name, so that the counters are not in build scripts and macros.
    command.args(["--target", TRIPLE, "--target-dir"]).arg(&built).env("RUSTFLAGS", RUSTFLAGS);
    command.env("FUSEWIRE_CHECK_ONLY", "1");
    steps::run("building the targets", &mut command)?;
    Ok(built.join(TRIPLE).join("release/fuzz"))
}

/// The names in the list of `fuzz/src/lib.rs`.
fn targets() -> Outcome<Vec<String>> {
    let list = root().join("fuzz/src/lib.rs");
    let text = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let names = text.lines().skip_while(|line| !line.contains("TARGETS: &[Target]"));
    let names = names.skip(1).take_while(|line| !line.starts_with("];"));
    Ok(names.filter_map(|line| Some(line.split('"').nth(1)?.to_owned())).collect())
}

fn fuzzer(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.env("FUSEWIRE_FUZZ", name);
    command
}

/// Replaces `kept` by a smallest set of inputs that reaches what those of `from` reach.
fn merge(program: &Path, name: &str, own: &Path, from: &[&PathBuf], kept: &Path) -> Outcome {
    let merged = own.join("merged");
    let _ = fs::remove_dir_all(&merged);
    fs::create_dir_all(&merged).map_err(|e| format!("{}: {e}", merged.display()))?;
    let mut command = fuzzer(program, name);
    // Edges alone: how often each is taken would keep ten times as many files.
    command.args(["-set_cover_merge=1", "-use_counters=0", LONGEST, MEMORY]).arg(&merged).args(from);
    steps::run("merging", command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let copy = || -> std::io::Result<()> {
        // Inputs with a name of their own once failed.
        for file in fs::read_dir(kept)? {
            let file = file?.path();
            let hash = file.file_name().is_some_and(|n| n.len() == 40 && !n.to_string_lossy().contains('-'));
            if hash {
                fs::remove_file(file)?;
            }
        }
        for file in fs::read_dir(&merged)? {
            let file = file?;
            fs::copy(file.path(), kept.join(file.file_name()))?;
        }
        Ok(())
    };
    copy().map_err(|e| format!("{}: {e}", kept.display()))
}

/// Executions, seconds, edges, features and inputs, from what libFuzzer said last.
fn account(name: &str, said: &str) -> String {
    let after = |line: &str, key: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != key);
        words.nth(1).unwrap_or("?").to_owned()
    };
    let last = said.lines().rev().find(|line| line.contains(" cov: ")).unwrap_or_default();
    let done = said.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or_default();
    let corpus = after(last, "corp:");
    format!(
        "{name:14} {:>11} {:>9} {:>7} {:>9} {:>7}",
        after(done, "Done"),
        after(done, "in"),
        after(last, "cov:"),
        after(last, "ft:"),
        corpus.split('/').next().unwrap_or("?")
    )
}
