//! Every place of protocol code that the patterns find: each has a mutation, or a reason why it needs none. And every mutation and reason has its place.

use super::list::{List, Pattern};
use crate::steps::{Outcome, root};
use std::path::{Path, PathBuf};

/// A line of protocol code.
struct Found {
    file: String,
    line: usize,
    text: String,
    kind: String,
}

/// Lists the sites; fails if one has neither, or a reason has no site, or a mutation no place.
pub fn check(list: &List, show: bool) -> Outcome {
    // Each part of a line that a reason names.
    let all = list.sites.iter().enumerate();
    let texts: Vec<(usize, &str)> =
        all.flat_map(|(k, s)| s.texts.iter().map(move |t| (k, t.as_str()))).collect();
    let mut used = vec![false; texts.len()];
    let (mut mutated, mut excused, mut bare) = (0, 0, Vec::new());
    for found in find(list)? {
        let Found { file, line, text, kind } = &found;
        let by = list.mutants.iter().filter(|m| m.file == *file).find(|m| covers(m, *line));
        let is = |s: &&(usize, &str)| list.sites[s.0].file == *file && text.contains(s.1);
        let reason = texts.iter().position(|s| is(&s));
        let verdict = match (by, reason) {
            (Some(mutant), _) => {
                mutated += 1;
                format!("mutation {}", mutant.name)
            }
            (None, Some(k)) => {
                excused += 1;
                format!("none: {}", list.sites[texts[k].0].reason)
            }
            (None, None) => {
                bare.push(format!("{file}:{line}: {kind}: {text}"));
                "NEITHER".into()
            }
        };
        if let Some(k) = reason {
            used[k] = true;
        }
        if show {
            println!("{file}:{line}: {kind}: {text}\n    {verdict}");
        }
    }
    let stale = texts.iter().zip(used).filter(|(_, used)| !used);
    let mut stale: Vec<String> =
        stale.map(|((k, text), _)| format!("{}: no site has `{text}`", list.sites[*k].file)).collect();
    // What a mutation takes out has to be there, once.
    stale.extend(list.mutants.iter().filter_map(|mutant| mutant.mutated(&root()).err()));
    println!(
        "{} mutations; {} sites: {mutated} mutated, {excused} with a reason, {} with neither",
        list.mutants.len(),
        mutated + excused + bare.len(),
        bare.len()
    );
    if bare.is_empty() && stale.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nsites need a mutation or a reason in tests/mutants", [bare, stale].concat().join("\n")))
}

fn covers(mutant: &super::list::Mutant, line: usize) -> bool {
    let Ok(text) = mutant.original(&root()) else { return false };
    let Ok(place) = mutant.place(&text) else { return false };
    let first = 1 + text[..place].matches('\n').count();
    (first..=first + mutant.before.trim_end().matches('\n').count()).contains(&line)
}

fn find(list: &List) -> Outcome<Vec<Found>> {
    let mut all: Vec<Found> = Vec::new();
    for pattern in &list.patterns {
        for path in files(pattern)? {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let file = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            // Tests come last in a file.
            for (k, text) in text.lines().take_while(|l| l.trim() != "#[cfg(test)]").enumerate() {
                let text = text.trim();
                let (line, code) = (k + 1, text.split("//").next().unwrap_or(""));
                let is = pattern.texts.iter().any(|t| code.contains(t.as_str()));
                let declares = ["fn ", "pub fn ", "use ", "pub(", "unsafe fn ", "pub unsafe fn "];
                let declares = declares.iter().any(|d| code.starts_with(d));
                if is && !declares && !all.iter().any(|f| f.file == file && f.line == line) {
                    all.push(Found {
                        file: file.clone(),
                        line,
                        text: text.into(),
                        kind: pattern.kind.clone(),
                    });
                }
            }
        }
    }
    all.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(all)
}

fn files(pattern: &Pattern) -> Outcome<Vec<PathBuf>> {
    let mut all = Vec::new();
    for name in &pattern.files {
        let path = root().join(name);
        if !path.exists() {
            return Err(format!("pattern `{}`: {name} is not there", pattern.kind));
        }
        walk(&path, &mut all);
    }
    Ok(all)
}

fn walk(path: &Path, all: &mut Vec<PathBuf>) {
    if let Ok(entries) = std::fs::read_dir(path) {
        entries.flatten().for_each(|entry| walk(&entry.path(), all));
    } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
        all.push(path.to_owned());
    }
}
