//! A program that tunes kernels of its own, as `cargo fusewire tune` runs it: a process each rank.

use super::{Journal, Progress, Table, Tunable, sweep};
use crate::schedule::LaunchOptions;
use crate::{Error, Result};
use fusewire_world::World;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `cargo fusewire tune` asks of the program, in the environment variable [`Settings::VARIABLE`] as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `cuda` or `host`: where the kernels are to run.
    pub device: String,
    /// The table to write. Rows of other keys that it has are kept.
    pub table: PathBuf,
    /// Bytes to each peer; if there are none, what each [`Tunable`] names.
    pub sizes: Vec<usize>,
    /// Only subjects whose name contains this.
    pub only: Option<String>,
    /// Blocks of a launch at most; by default any number.
    #[serde(default)]
    pub blocks: Option<u32>,
    /// Forget what an interrupted run has measured.
    pub fresh: bool,
}

impl Settings {
    /// The environment variable.
    pub const VARIABLE: &str = "FUSEWIRE_TUNE";

    /// Where an interrupted run keeps what it has measured: beside the table.
    pub fn journal(&self) -> PathBuf {
        self.table.with_added_extension("journal")
    }
}

/// A line of the program's standard output that is meant for `cargo fusewire tune`; rank 0 writes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// A subject begins.
    Subject(String),
    /// How far it is.
    Progress(Progress),
    /// The table was written, with so many rows.
    Written(PathBuf, usize),
}

impl Message {
    const MARK: &str = "fusewire-tune ";

    /// The message in a line, if it is one.
    pub fn read(line: &str) -> Option<Message> {
        serde_json::from_str(line.strip_prefix(Self::MARK)?).ok()
    }

    /// The line.
    pub fn to_line(&self) -> String {
        format!("{}{}", Self::MARK, serde_json::to_string(self).unwrap_or_default())
    }
}

/// What the body of a tuning program works with.
#[derive(Debug)]
pub struct Session {
    world: World,
    settings: Settings,
    journal: Journal,
    table: Table,
    subjects: Vec<String>,
}

impl Session {
    /// The ranks.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Whether kernels are to run on GPUs, rather than on CPU threads.
    pub fn on_gpus(&self) -> bool {
        self.settings.device == "cuda"
    }

    /// What launches are to be made with, beside what is tried: the limits that the caller of `cargo fusewire tune` set.
    pub fn launch_options(&self) -> LaunchOptions {
        LaunchOptions { blocks: self.settings.blocks, ..LaunchOptions::default() }
    }

    /// Tunes what `make` gives, if a subject of this name is asked for. Collective.
    ///
    /// # Errors
    /// Those of `make` and of [`sweep`].
    pub fn tune<T: Tunable>(&mut self, name: &str, make: impl FnOnce(&World) -> Result<T>) -> Result<()> {
        self.subjects.push(name.to_string());
        if self.settings.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return Ok(());
        }
        let tells = self.world.rank() == 0;
        let tell = |message: Message| {
            if tells {
                println!("{}", message.to_line());
            }
        };
        tell(Message::Subject(name.to_string()));
        let mut subject = make(&self.world)?;
        let mut report = |progress| tell(Message::Progress(progress));
        let rows = sweep(&self.world, &mut subject, &self.settings.sizes, &mut self.journal, &mut report)?;
        rows.rows().for_each(|(key, entry)| self.table.insert(key.clone(), *entry));
        Ok(())
    }

    /// Rank 0 writes what was found into the table.
    fn finish(self) -> Result<()> {
        if self.table.rows().len() == 0 {
            return Err(Error::misuse(format!(
                "nothing was tuned: there are the subjects [{}]",
                self.subjects.join(", ")
            )));
        }
        if self.world.rank() != 0 {
            return Ok(());
        }
        let path = &self.settings.table;
        let mut table = existing(path)?;
        // An interrupted run may have finished other keys than this one was asked for.
        self.journal.rows().for_each(|(key, entry)| table.insert(key.clone(), *entry));
        self.table.rows().for_each(|(key, entry)| table.insert(key.clone(), *entry));
        // Whole or not at all.
        let part = path.with_added_extension("part");
        let system = |source| Error::System { what: format!("writing `{}`", path.display()), source };
        std::fs::write(&part, table.to_text()).map_err(system)?;
        std::fs::rename(&part, path).map_err(system)?;
        self.journal.remove()?;
        println!("{}", Message::Written(path.clone(), self.table.rows().len()).to_line());
        Ok(())
    }
}

/// The whole `main` of a tuning program: meets the other ranks, runs `body`, writes the table.
///
/// ```no_run
/// # fn body(session: &mut fusewire::tune::Session) -> fusewire::Result<()> { Ok(()) }
/// fn main() -> std::process::ExitCode {
///     fusewire::tune::main(|session| {
///         // session.tune("copy", |world| Ok(MyCopy::new(world)?))
///         # body(session)
///     })
/// }
/// ```
pub fn main(body: impl FnOnce(&mut Session) -> Result<()>) -> ExitCode {
    match run(body) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is in the table so far; a file that is not there has nothing.
fn existing(path: &Path) -> Result<Table> {
    if path.exists() { Table::read(path) } else { Ok(Table::default()) }
}

fn run(body: impl FnOnce(&mut Session) -> Result<()>) -> Result<()> {
    let Some(settings) = std::env::var_os(Settings::VARIABLE) else {
        return Err(Error::misuse(format!(
            "{} is not set: run this program by `cargo fusewire tune`",
            Settings::VARIABLE
        )));
    };
    let settings: Settings = serde_json::from_slice(settings.as_encoded_bytes())
        .map_err(|e| Error::misuse(format!("{} cannot be read: {e}", Settings::VARIABLE)))?;
    let world = World::from_env()?;
    // A file that is no table is told before anything is measured.
    let known = || existing(&settings.table).map(drop).map_err(|e| e.to_string());
    let known = (world.rank() == 0).then(known);
    world.broadcast_as(0, known.as_ref())?.map_err(Error::misuse)?;
    let journal = Journal::open(&world, &settings.journal(), settings.fresh)?;
    let (table, subjects) = (Table::default(), Vec::new());
    let mut session = Session { world: world.clone(), settings, journal, table, subjects };
    body(&mut session)?;
    session.finish()?;
    world.teardown_barrier()?;
    Ok(())
}
