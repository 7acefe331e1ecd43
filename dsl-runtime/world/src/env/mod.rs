//! What a launcher's environment says: who this rank is, and where the ranks meet.

mod launchers;
mod meet;
mod nodelist;
pub(crate) mod private;

use std::fmt;

use meet::Meet;

use crate::error::EnvError;
use crate::text::Printable;
use crate::{Options, Rank, Result, World};

/// Who started this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `FUSEWIRE_RANK` and so on, set by hand or by a launcher that is not known here.
    Fusewire,
    /// `torchrun`, or what else sets `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`.
    Torchrun,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// `srun`.
    Slurm,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fusewire => "FUSEWIRE_*",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Slurm => "Slurm",
        })
    }
}

/// What the environment says about this rank, before it meets the others. Its [`fmt::Display`] is for people.
#[derive(Debug, Clone)]
pub struct Launch {
    launcher: Launcher,
    rank: Rank,
    size: usize,
    local_rank: Option<usize>,
    meet: Meet,
}

impl Launch {
    /// Reads this process's environment; see the [crate's docs](crate#environment) for the variables.
    ///
    /// # Errors
    /// [`EnvError`](crate::EnvError): no launcher, a variable that is missing, or one that does not parse.
    pub fn from_env() -> Result<Self> {
        Self::read(&|name| std::env::var(name).ok())
    }

    pub(crate) fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let env = Env(lookup);
        launchers::detect(&env)
    }

    /// Who started this rank.
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The launcher's number of this rank among those of its host.
    pub fn local_rank(&self) -> Option<usize> {
        self.local_rank
    }

    /// Meets the other ranks. Collective.
    ///
    /// # Errors
    /// As [`World::from_env`].
    pub fn join(&self, options: &Options) -> Result<World> {
        let mut options = options.clone();
        options.local_rank = options.local_rank.or(self.local_rank);
        if self.size == 1 {
            return World::lone_process(&options);
        }
        self.meet.join(self.rank, self.size, &options)
    }
}

impl World {
    /// Meets the ranks that the same launcher started: `FUSEWIRE_RANK` and so on, torchrun, Open MPI or Slurm,
    /// in this order. Collective.
    ///
    /// # Errors
    /// No launcher (the error lists what was looked for; [`World::single`] is for one process), an incomplete
    /// environment, ranks that do not arrive, or a store that refuses this rank.
    pub fn from_env() -> Result<Self> {
        Self::from_env_with(&Options::default())
    }

    /// As [`from_env`](Self::from_env), with options.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_env_with(options: &Options) -> Result<Self> {
        Launch::from_env()?.join(options)
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} under {}, meeting at {}", self.rank, self.size, self.launcher, self.meet)
    }
}

/// An environment, this process's or a test's.
struct Env<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Env<'_> {
    /// An empty variable counts as none.
    fn text(&self, name: &str) -> Option<String> {
        self.0(name).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &str) -> Result<Option<usize>> {
        self.parse(name, "it should be a number, 0 or more")
    }

    fn port(&self, name: &str) -> Result<Option<u16>> {
        let port: Option<u16> = self.parse(name, "it should be a port, 1 to 65535")?;
        match port {
            Some(0) => Err(invalid(name, "0", "it should be a port, 1 to 65535")),
            port => Ok(port),
        }
    }

    fn parse<T: std::str::FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>> {
        let Some(value) = self.text(name) else { return Ok(None) };
        value.trim().parse().map(Some).map_err(|_| invalid(name, &value, expected))
    }
}

fn invalid(name: &str, value: &str, why: &str) -> crate::Error {
    let value = Printable(value).to_string();
    EnvError::Invalid { name: name.to_owned(), value, why: why.to_owned() }.into()
}

fn missing(launcher: Launcher, name: &str, advice: &str) -> crate::Error {
    EnvError::Missing { launcher: launcher.to_string(), name: name.to_owned(), advice: advice.to_owned() }
        .into()
}

#[cfg(test)]
mod tests;
