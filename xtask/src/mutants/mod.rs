//! `cargo xtask mutants`: takes steps of the protocol away, one at a time, and sees that a test misses each.

mod list;
mod sites;
mod tree;

use crate::steps::{Outcome, target};
use list::{List, Mutant, SECONDS};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tree::{Ended, Tree};

/// What `cargo xtask mutants` is asked for.
#[derive(clap::Args)]
pub struct Arguments {
    /// List every place of protocol code with its mutation, or the reason why it has none.
    #[arg(long)]
    sites: bool,
    /// Only the dozen that `cargo xtask test` runs.
    #[arg(long)]
    quick: bool,
    /// Only those whose name or file contains this.
    #[arg(long)]
    only: Option<String>,
    /// Run those again that a run over the same sources has run.
    #[arg(long)]
    fresh: bool,
}

/// The dozen that every run of the tests tries, and that no site has neither mutation nor reason.
pub fn dozen() -> Outcome {
    run(&Arguments { sites: false, quick: true, only: None, fresh: true })
}

/// Seconds for a first build and the tests without a mutation.
const FIRST: u64 = 1200;

/// A line of the journal.
#[derive(Serialize, Deserialize)]
struct Row {
    key: u64,
    name: String,
    verdict: Verdict,
    seconds: f64,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Verdict {
    Killed,
    Survived,
    DoesNotBuild,
    /// It ended by the time limit, which the list does not expect.
    TooLong,
}

/// Runs what is asked for; fails if a mutation survives.
pub fn run(arguments: &Arguments) -> Outcome {
    let list = List::read()?;
    if arguments.sites {
        return sites::check(&list, true);
    }
    let wanted = |m: &&Mutant| {
        let named = |only: &String| m.name.contains(only.as_str()) || m.file.contains(only.as_str());
        (m.quick || !arguments.quick) && arguments.only.as_ref().is_none_or(named)
    };
    let mutants: Vec<&Mutant> = list.mutants.iter().filter(wanted).collect();
    if let Some(only) = arguments.only.as_ref().filter(|_| mutants.is_empty()) {
        return Err(format!(
            "`--only`: no mutation's name or file contains {only:?}; `tests/mutants` has them"
        ));
    }
    let tree = Tree::new()?;
    let journal = target().join("mutants/journal.jsonl");
    let done = if arguments.fresh { HashMap::new() } else { read(&journal) };
    let (mut tried, mut bad) = (HashSet::new(), Vec::new());
    let (start, mut slowest) = (Instant::now(), (0.0, ""));
    for (k, mutant) in mutants.iter().enumerate() {
        let mut hasher = DefaultHasher::new();
        (mutant, tree.hash).hash(&mut hasher);
        let key = hasher.finish();
        let row = match done.get(&key) {
            Some(row) => Row { name: mutant.name.clone(), why: row.why.clone(), ..*row },
            None => {
                if tried.insert(mutant.test.as_str()) {
                    unmutated(&tree, &mutant.test)?;
                }
                let row = try_one(&tree, mutant, key)?;
                write(&journal, &row)?;
                row
            }
        };
        let again = if done.contains_key(&key) { " (before)" } else { "" };
        println!("{:3}/{} {:?} {:5.1} s{again} {}", k + 1, mutants.len(), row.verdict, row.seconds, row.name);
        if row.seconds > slowest.0 {
            slowest = (row.seconds, &mutant.name);
        }
        if row.verdict != Verdict::Killed {
            println!("    {}: {}", mutant.file, row.why);
            bad.push(format!("{}: {:?}", row.name, row.verdict));
        }
    }
    let exceptions = mutants.iter().filter_map(|m| Some((m, m.exception.as_ref()?)));
    exceptions.for_each(|(m, why)| println!("exception: {}: {why}", m.name));
    println!(
        "{} mutations, {} killed, in {:.0} s; the slowest: {} in {:.1} s",
        mutants.len(),
        mutants.len() - bad.len(),
        start.elapsed().as_secs_f64(),
        slowest.1,
        slowest.0
    );
    bad.extend(sites::check(&list, false).err());
    if bad.is_empty() { Ok(()) } else { Err(bad.join("\n")) }
}

/// The test must pass as things are. It also builds what mutations do not change.
fn unmutated(tree: &Tree, test: &str) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(FIRST);
    for build_only in [true, false] {
        match tree.test(test, build_only, deadline)? {
            Ended::Well(0) if !build_only => {
                return Err(format!("`cargo test {test}` runs no test"));
            }
            Ended::Well(_) => {}
            Ended::Badly(why) | Ended::Never(why) => {
                return Err(format!("`cargo test {test}` fails without a mutation: {why}"));
            }
        }
    }
    Ok(())
}

fn try_one(tree: &Tree, mutant: &Mutant, key: u64) -> Outcome<Row> {
    let start = Instant::now();
    let limit = Duration::from_secs(mutant.seconds.unwrap_or(SECONDS));
    let original = tree.apply(mutant)?;
    let built = tree.test(&mutant.test, true, start + limit);
    let ended = match &built {
        Ok(Ended::Well(_)) => tree.test(&mutant.test, false, start + limit),
        _ => Ok(Ended::Well(0)),
    };
    tree.restore(mutant, &original)?;
    let (verdict, why) = match (built?, ended?) {
        (Ended::Badly(why), _) => (Verdict::DoesNotBuild, why),
        (Ended::Never(why), _) => (Verdict::TooLong, format!("while it was built: {why}")),
        (Ended::Well(_), Ended::Well(_)) => {
            (Verdict::Survived, format!("`cargo test {}` passes", mutant.test))
        }
        (Ended::Well(_), Ended::Badly(why)) => (Verdict::Killed, why),
        (Ended::Well(_), Ended::Never(why)) if mutant.hang => (Verdict::Killed, format!("hangs: {why}")),
        (Ended::Well(_), Ended::Never(why)) => (Verdict::TooLong, why),
    };
    Ok(Row { key, name: mutant.name.clone(), verdict, seconds: start.elapsed().as_secs_f64(), why })
}

fn read(journal: &PathBuf) -> HashMap<u64, Row> {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    let rows = text.lines().filter_map(|line| serde_json::from_str::<Row>(line).ok());
    // What takes too long on a busy machine may not on an idle one.
    rows.filter(|row| row.verdict != Verdict::TooLong).map(|row| (row.key, row)).collect()
}

fn write(journal: &PathBuf, row: &Row) -> Outcome {
    let line = serde_json::to_string(row).map_err(|e| e.to_string())?;
    let mut options = std::fs::OpenOptions::new();
    options
        .create(true)
        .append(true)
        .open(journal)
        .and_then(|mut file| writeln!(file, "{line}"))
        .map_err(|e| format!("{}: {e}", journal.display()))
}
