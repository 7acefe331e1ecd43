//! Files of schedules name no protocol, and files of protocols no schedule: each is written once, and works with all of the others.

use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
    all
}

/// The lines of a file without comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Names of the types for which a folder's files implement a trait, and of the modules that they stand in.
fn implementers(folder: &str, of: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let mut names = Vec::new();
    for file in files(&root) {
        let code = code(&file);
        for line in code.lines().filter(|line| line.contains("unsafe impl") && line.contains(of)) {
            let (_, after) = line.split_once(" for ").unwrap();
            names.extend(words(after).next().map(str::to_owned));
            let below = file.strip_prefix(&root).unwrap();
            let module = below.iter().next().unwrap().to_string_lossy().replace(".rs", "");
            names.push(module);
        }
    }
    // `InPlace`, `First` and `Second` are of any schedule; the others are of tests.
    let no_schedules = [
        "check",
        "Wrong",
        "Misfolded",
        "Claimed",
        "Paired",
        "mod",
        "InPlace",
        "in_place",
        "First",
        "Second",
        "steps",
    ];
    names.retain(|name| !no_schedules.contains(&name.as_str()));
    names.sort();
    names.dedup();
    names
}

fn named_in(folder: &str, names: &[String]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let mut found = Vec::new();
    for file in files(&root) {
        let code = code(&file);
        let here = words(&code).filter(|word| names.iter().any(|name| name == word));
        found.extend(here.map(|word| format!("{} names {word}", file.display())));
    }
    found
}

#[test]
fn schedules_and_protocols_know_nothing_of_each_other() {
    let schedules = implementers("schedule", "Schedule for");
    let protocols = implementers("protocol", "Protocol<");
    assert_eq!(
        schedules,
        [
            "AllGather",
            "AllReduce",
            "AllToAll",
            "Broadcast",
            "Gather",
            "Reduce",
            "ReduceScatter",
            "Scatter",
            "SendRecv",
            "all_gather",
            "all_to_all",
            "reduce",
            "rooted",
            "sendrecv"
        ]
    );
    assert_eq!(
        protocols,
        [
            "Bulk",
            "CopyEngine",
            "Hierarchical",
            "Host",
            "HostHierarchical",
            "HostTwoShot",
            "Ll",
            "Ll128",
            "Ll128TwoShot",
            "Local",
            "Simple",
            "Store",
            "TwoShot",
            "direct",
            "host",
            "ll",
            "ll128",
            "local",
            "simple"
        ]
    );
    assert_eq!(named_in("protocol", &schedules), Vec::<String>::new());
    assert_eq!(named_in("tile", &schedules), Vec::<String>::new());
    assert_eq!(named_in("schedule", &protocols), Vec::<String>::new());
}
