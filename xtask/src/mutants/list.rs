//! The list: `tests/mutants/*.toml`.

use crate::steps::{Outcome, root};
use serde::Deserialize;
use std::collections::HashSet;
use std::path::Path;

/// One line of protocol code, and what it is replaced by.
#[derive(Clone, Debug, Deserialize, Hash)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Names it in reports and for `--only`.
    pub name: String,
    /// From the repository's root.
    pub file: String,
    /// Occurs once in the file.
    pub before: String,
    /// What stands there instead.
    pub after: String,
    /// Arguments of `cargo test`: the smallest test that must fail.
    pub test: String,
    /// What goes wrong without the line.
    pub why: String,
    /// One of the dozen that `cargo xtask test` runs.
    #[serde(default)]
    pub quick: bool,
    /// The test may end by the time limit: what it waits for never comes.
    #[serde(default)]
    pub hang: bool,
    /// Why the test is another crate's, or takes longer.
    pub exception: Option<String>,
    /// Seconds for build and test, if it takes longer than others.
    pub seconds: Option<u64>,
}

/// A place of the protocol that needs no mutation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    pub file: String,
    /// Parts of lines; any of them.
    pub texts: Vec<String>,
    pub reason: String,
}

/// Where protocol code is, and what it looks like.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// A wait, a fence, ..
    pub kind: String,
    /// Parts of a line; any of them.
    pub texts: Vec<String>,
    /// Files, or folders with a slash at the end.
    pub files: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    mutant: Vec<Mutant>,
    site: Vec<Site>,
    pattern: Vec<Pattern>,
}

/// All of it.
#[derive(Debug, Default)]
pub struct List {
    pub mutants: Vec<Mutant>,
    pub sites: Vec<Site>,
    pub patterns: Vec<Pattern>,
}

/// Seconds for a mutation's build and test.
pub const SECONDS: u64 = 90;

impl List {
    /// Reads the list, and finds every text in its file.
    pub fn read() -> Outcome<List> {
        let mut list = List::default();
        let folder = root().join("tests/mutants");
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "toml")) {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let file: File = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
            list.mutants.extend(file.mutant);
            list.sites.extend(file.site);
            list.patterns.extend(file.pattern);
        }
        let mut names = HashSet::new();
        let mut wrong = Vec::new();
        for mutant in &list.mutants {
            if !names.insert(&mutant.name) {
                wrong.push(format!("{}: two mutations have this name", mutant.name));
            }
            wrong.extend(mutant.mutated(&root()).and_then(|_| mutant.own_crate()).err());
        }
        if wrong.is_empty() { Ok(list) } else { Err(wrong.join("\n")) }
    }
}

impl Mutant {
    /// The file's text with the mutation.
    pub fn mutated(&self, root: &Path) -> Outcome<String> {
        let text = self.original(root)?;
        let place = self.place(&text)?;
        Ok(format!("{}{}{}", &text[..place], self.after, &text[place + self.before.len()..]))
    }

    /// The file's text.
    pub fn original(&self, root: &Path) -> Outcome<String> {
        std::fs::read_to_string(root.join(&self.file))
            .map_err(|e| format!("{}: {}: {e}; where has it gone?", self.name, self.file))
    }

    /// Where in the text the mutation is.
    pub fn place(&self, text: &str) -> Outcome<usize> {
        if self.before == self.after || self.before.is_empty() {
            return Err(format!("{}: changes nothing", self.name));
        }
        match text.matches(&self.before).count() {
            1 => Ok(text.find(&self.before).unwrap_or_default()),
            0 => Err(format!("{}: `{}` no longer stands in {}", self.name, self.before, self.file)),
            n => Err(format!(
                "{}: `{}` stands {n} times in {}: give more of it",
                self.name, self.before, self.file
            )),
        }
    }

    /// The test's package has the file, or it is said why not.
    fn own_crate(&self) -> Outcome {
        let mut words = self.test.split_whitespace();
        let package = words.find(|w| *w == "-p").and_then(|_| words.next());
        let package = package.ok_or_else(|| format!("{}: `test` begins with `-p PACKAGE`", self.name))?;
        let manifest = Path::new(&self.file)
            .ancestors()
            .find_map(|folder| std::fs::read_to_string(root().join(folder).join("Cargo.toml")).ok());
        let own = manifest.is_some_and(|text| text.contains(&format!("name = \"{package}\"")));
        if !own && self.exception.is_none() {
            return Err(format!("{}: {package} has no {}; say why in `exception`", self.name, self.file));
        }
        if self.seconds.is_some_and(|s| s > SECONDS) && self.exception.is_none() {
            return Err(format!("{}: more than {SECONDS} s; say why in `exception`", self.name));
        }
        Ok(())
    }
}
