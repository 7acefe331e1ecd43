//! A copy of the checkout to be mutated, with a target folder of its own: the developer's files stay as they are.

use super::list::Mutant;
use crate::steps::{Outcome, root, target};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Tree {
    folder: PathBuf,
    /// Of all that is built.
    pub hash: u64,
}

/// What came of a command.
pub enum Ended {
    /// With how many tests.
    Well(usize),
    /// With its last lines.
    Badly(String),
    /// It did not end in time.
    Never(String),
}

impl Tree {
    /// Brings the copy up to date. Files that did not change are left alone, so that cargo builds only what did.
    pub fn new() -> Outcome<Tree> {
        let folder = target().join("mutants/tree");
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root())
            .output()
            .map_err(|e| format!("git: {e}"))?;
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut hasher = DefaultHasher::new();
        let mut kept = HashSet::new();
        for name in names.split('\0').filter(|n| !n.is_empty()) {
            // Deleted, and not yet committed so.
            let Ok(bytes) = std::fs::read(root().join(name)) else { continue };
            if !name.starts_with("docs/") && !name.starts_with("tests/mutants/") {
                (name, &bytes).hash(&mut hasher);
            }
            put(&folder.join(name), &bytes)?;
            kept.insert(folder.join(name));
        }
        if kept.is_empty() {
            return Err("git lists no files: mutations need a checkout".into());
        }
        remove_others(&folder, &kept);
        Ok(Tree { folder, hash: hasher.finish() })
    }

    /// Writes the mutation; gives the file's text as it was.
    pub fn apply(&self, mutant: &Mutant) -> Outcome<String> {
        let text = mutant.original(&self.folder)?;
        put(&self.folder.join(&mutant.file), mutant.mutated(&self.folder)?.as_bytes())?;
        Ok(text)
    }

    pub fn restore(&self, mutant: &Mutant, text: &str) -> Outcome {
        put(&self.folder.join(&mutant.file), text.as_bytes())
    }

    /// `cargo test` in the copy, until `deadline`.
    pub fn test(&self, arguments: &str, build_only: bool, deadline: Instant) -> Outcome<Ended> {
        let (before, after) = arguments.split_once(" -- ").unwrap_or((arguments, ""));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.arg("test").arg("--quiet").args(before.split_whitespace());
        if build_only {
            command.arg("--no-run");
        } else {
            command.arg("--").args(after.split_whitespace());
        }
        command.current_dir(&self.folder).env("CARGO_TARGET_DIR", target().join("mutants/target"));
        // A mutation may leave code unused.
        command.env("RUSTFLAGS", "-A warnings").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|e| format!("cargo: {e}"))?;
        let output = [
            child.stdout.take().map(|pipe| read(BufReader::new(pipe))),
            child.stderr.take().map(|pipe| read(BufReader::new(pipe))),
        ];
        let status = wait(&mut child, deadline)?;
        let lines = output.into_iter().flatten().flat_map(|reader| reader.join().unwrap_or_default());
        let lines: Vec<String> = lines.collect();
        Ok(match status {
            Some(status) if status.success() => Ended::Well(passed(&lines)),
            Some(_) => Ended::Badly(tail(lines)),
            None => Ended::Never(tail(lines)),
        })
    }
}

fn put(path: &Path, bytes: &[u8]) -> Outcome {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// What is no longer in the checkout.
fn remove_others(folder: &Path, kept: &HashSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_others(&path, kept);
        } else if !kept.contains(&path) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn read(pipe: impl BufRead + Send + 'static) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || pipe.lines().map_while(Result::ok).collect())
}

/// Ends the command and all it started when the time is over.
fn wait(child: &mut Child, deadline: Instant) -> Outcome<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("cargo: {e}"))? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Tests that passed.
fn passed(lines: &[String]) -> usize {
    let counts = lines
        .iter()
        .filter_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<usize>().ok());
    counts.sum()
}

/// The lines that say what failed, or the last ones.
fn tail(lines: Vec<String>) -> String {
    let mut some: Vec<&String> = Vec::new();
    for (k, line) in lines.iter().enumerate() {
        if line.starts_with("error") || line.contains("panicked at") {
            some.extend([Some(line), lines.get(k + 1)].into_iter().flatten());
        }
    }
    some.truncate(6);
    if some.is_empty() {
        some = lines.iter().rev().take(6).rev().collect();
    }
    some.into_iter().map(|l| l.trim()).collect::<Vec<_>>().join("; ")
}
