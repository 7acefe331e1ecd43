//! What a sweep has measured so far, so that one that was interrupted goes on where it was.

use super::key::{Config, Key};
use super::table::Entry;
use crate::{Error, Result};
use fusewire_world::World;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What became of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// Its time in microseconds; its results are right.
    Measured(f64),
    /// Far slower than the best, in microseconds; nobody looked at its results.
    Slow(f64),
    /// It is no candidate.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Trying { key: Key, config: Config },
    Tried { key: Key, config: Config, outcome: Outcome },
    Done { key: Key, entry: Entry },
}

/// JSON lines beside the table, written by rank 0 and known to all ranks.
#[derive(Debug, Default)]
pub struct Journal {
    file: Option<(File, PathBuf)>,
    tried: HashMap<(Key, Config), Outcome>,
    /// Configurations whose trial did not end, and how often.
    unfinished: HashMap<(Key, Config), usize>,
    done: HashMap<Key, Entry>,
}

impl Journal {
    /// The journal at `path` of rank 0, emptied first if `fresh`. Collective.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be read or written there, [`Error::Misuse`] if it is something else.
    pub fn open(world: &World, path: &Path, fresh: bool) -> Result<Journal> {
        let system =
            |source| Error::System { what: format!("keeping the journal `{}`", path.display()), source };
        let opened = (world.rank() == 0).then(|| -> Result<_> {
            let text = match std::fs::read_to_string(path) {
                Ok(text) if !fresh => text,
                Ok(_) => String::new(),
                Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
                Err(e) => return Err(system(e)),
            };
            let mut options = OpenOptions::new();
            options.create(true).truncate(fresh).append(!fresh).write(true);
            let file = options.open(path).map_err(system)?;
            // A line that was interrupted while it was written goes: the next one begins where it did.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            if whole < text.len() {
                file.set_len(whole as u64).map_err(system)?;
            }
            Ok((text[..whole].to_owned(), file))
        });
        // The other ranks learn of a failure, too.
        let text = match &opened {
            Some(Ok((text, _))) => world.broadcast_as(0, Some(&Ok::<_, String>(text.clone())))?,
            Some(Err(e)) => world.broadcast_as(0, Some(&Err(e.to_string())))?,
            None => world.broadcast_as(0, None)?,
        };
        let mut journal = Journal::read(&text.map_err(Error::misuse)?, path)?;
        if let Some(Ok((_, file))) = opened {
            journal.file = Some((file, path.into()));
        }
        Ok(journal)
    }

    fn read(text: &str, path: &Path) -> Result<Journal> {
        let mut journal = Journal::default();
        for (at, line) in text.lines().enumerate() {
            let line: Line = match serde_json::from_str(line) {
                Ok(line) => line,
                Err(e) => {
                    return Err(Error::misuse(format!(
                        "line {} of the journal `{}` cannot be read ({e}): remove the file, or begin afresh",
                        at + 1,
                        path.display()
                    )));
                }
            };
            journal.note(line);
        }
        Ok(journal)
    }

    fn note(&mut self, line: Line) {
        match line {
            Line::Trying { key, config } => *self.unfinished.entry((key, config)).or_default() += 1,
            Line::Tried { key, config, outcome } => {
                self.unfinished.remove(&(key.clone(), config));
                self.tried.insert((key, config), outcome);
            }
            Line::Done { key, entry } => {
                self.done.insert(key, entry);
            }
        }
    }

    fn write(&mut self, line: Line) -> Result<()> {
        if let Some((file, path)) = &mut self.file {
            let text = serde_json::to_string(&line).unwrap_or_default() + "\n";
            file.write_all(text.as_bytes()).map_err(|source| Error::System {
                what: format!("writing the journal `{}`", path.display()),
                source,
            })?;
        }
        self.note(line);
        Ok(())
    }

    /// What is known of a configuration. One that ended two runs before its outcome was known has failed.
    pub(super) fn outcome(&self, key: &Key, config: &Config) -> Option<Outcome> {
        let place = (key.clone(), *config);
        let ended = || self.unfinished.get(&place).filter(|times| **times >= 2);
        let ended = || ended().map(|times| Outcome::Failed(format!("it ended {times} runs")));
        self.tried.get(&place).cloned().or_else(ended)
    }

    pub(super) fn trying(&mut self, key: &Key, config: &Config) -> Result<()> {
        self.write(Line::Trying { key: key.clone(), config: *config })
    }

    pub(super) fn tried(&mut self, key: &Key, config: &Config, outcome: Outcome) -> Result<()> {
        self.write(Line::Tried { key: key.clone(), config: *config, outcome })
    }

    /// The row of a key that is finished.
    pub(super) fn done(&self, key: &Key) -> Option<Entry> {
        self.done.get(key).copied()
    }

    pub(super) fn finish(&mut self, key: &Key, entry: Entry) -> Result<()> {
        self.write(Line::Done { key: key.clone(), entry })
    }

    /// The rows of all keys that are finished.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.done.iter()
    }

    /// Finished keys.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    /// Whether no key is finished.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    /// Removes the file: the table has it all.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be removed.
    pub fn remove(mut self) -> Result<()> {
        let Some((_, path)) = self.file.take() else { return Ok(()) };
        std::fs::remove_file(&path)
            .map_err(|source| Error::System { what: format!("removing `{}`", path.display()), source })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;
    use crate::schedule::Protocol;

    fn key(bytes: usize) -> Key {
        Key {
            world: 1,
            transport: "Shm".into(),
            device: "host".into(),
            schedule: "all_to_all".into(),
            variant: "app::copy".into(),
            element: "f32".into(),
            layout: Layout::default(),
            bytes,
        }
    }

    fn config(channels: u32) -> Config {
        Config {
            protocol: Protocol::Simple,
            channels,
            self_copy: 1,
            threads: 1,
            chunk: Some(4096),
            unroll: 4,
        }
    }

    #[test]
    fn an_interrupted_run_is_known_to_the_next() {
        let file = std::env::temp_dir().join(format!("fusewire-journal-{}.jsonl", std::process::id()));
        let world = World::single().unwrap();
        let entry = Entry { config: config(2), us: 1.5, default_us: 2.0 };
        let mut first = Journal::open(&world, &file, true).unwrap();
        first.trying(&key(256), &config(2)).unwrap();
        first.tried(&key(256), &config(2), Outcome::Measured(1.5)).unwrap();
        first.finish(&key(256), entry).unwrap();
        first.trying(&key(512), &config(4)).unwrap();
        drop(first);
        // Cut off in the middle of a line.
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push_str("{\"trying\":{\"key\":{\"wor");
        std::fs::write(&file, text).unwrap();
        let second = Journal::open(&world, &file, false).unwrap();
        assert_eq!((second.len(), second.done(&key(256)), second.done(&key(512))), (1, Some(entry), None));
        assert_eq!(second.outcome(&key(256), &config(2)), Some(Outcome::Measured(1.5)));
        assert_eq!(second.outcome(&key(512), &config(4)), None, "once may be bad luck");
        // Whoever goes on does not continue that line.
        let mut second = second;
        second.finish(&key(512), entry).unwrap();
        drop(second);
        let third = Journal::open(&world, &file, false).unwrap();
        assert_eq!((third.len(), third.done(&key(512))), (2, Some(entry)));
        drop(third);
        assert!(Journal::open(&world, &file, true).unwrap().is_empty());
        Journal::open(&world, &file, false).unwrap().remove().unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn what_ends_two_runs_is_not_tried_again() {
        let line = serde_json::to_string(&Line::Trying { key: key(256), config: config(2) }).unwrap() + "\n";
        let path = Path::new("j");
        let once = Journal::read(&line, path).unwrap();
        assert_eq!(once.outcome(&key(256), &config(2)), None);
        let twice = Journal::read(&line.repeat(2), path).unwrap();
        let Some(Outcome::Failed(why)) = twice.outcome(&key(256), &config(2)) else { panic!("{twice:?}") };
        assert!(why.contains("2 runs"), "{why}");
        let error = Journal::read(&format!("no\n{line}"), path).unwrap_err().to_string();
        assert!(error.contains("line 1 of the journal `j`") && error.contains("remove the file"), "{error}");
    }
}
