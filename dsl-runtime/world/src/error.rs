//! What can go wrong when ranks meet, grouped by who is to blame.
//!
//! Ranks in errors are always ranks of the **whole world** (what the launcher's log shows), also when the call
//! was made on a subgroup.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::Rank;
use crate::list::Ranks;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why ranks did not meet, or did not stay together.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's own mistake: fix the call.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// Another rank died, left, or differs.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A deadline passed; names the ranks that had not arrived.
    #[error(transparent)]
    Timeout(#[from] Timeout),
    /// The operating system or the network refused.
    #[error(transparent)]
    Fabric(#[from] Fabric),
    /// The launcher's environment is missing, incomplete or contradictory.
    #[error(transparent)]
    Env(#[from] EnvError),
}

impl Error {
    /// The rank that is known to be dead, where that is why the call failed.
    pub fn lost_rank(&self) -> Option<Rank> {
        match self {
            Self::Peer(PeerError::Lost { rank, .. }) => Some(*rank),
            _ => None,
        }
    }

    /// `rank` is dead; for a [`Bootstrap`](crate::Bootstrap) of one's own.
    pub fn peer_lost(rank: Rank, why: impl Into<String>) -> Self {
        PeerError::Lost { rank, why: why.into(), during: String::new() }.into()
    }

    /// A deadline passed while `missing` had not arrived; for a [`Bootstrap`](crate::Bootstrap) of one's own.
    pub fn timeout(what: impl Into<String>, waited: Duration, missing: Vec<Rank>) -> Self {
        Timeout { what: what.into(), waited, missing, given_up_by: None, note: String::new() }.into()
    }

    /// The operating system said no to `what`; `advice` says what to do about it.
    pub fn fabric(what: impl Into<String>, source: impl Into<io::Error>, advice: impl Into<String>) -> Self {
        Fabric { what: what.into(), advice: advice.into(), source: Arc::new(source.into()) }.into()
    }

    pub(crate) fn misuse(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Misuse { what: what.into(), advice: advice.into() }.into()
    }

    /// The same error, naming the call that the user made and not the one it is built on.
    pub(crate) fn during(mut self, call: &str) -> Self {
        match &mut self {
            Self::Timeout(timeout) => timeout.what = call.to_owned(),
            Self::Peer(PeerError::Lost { during, .. } | PeerError::Left { during, .. }) => {
                *during = call.to_owned()
            }
            _ => {}
        }
        self
    }
}

/// The caller's own mistake.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {advice}")]
#[non_exhaustive]
pub struct Misuse {
    /// What was asked for.
    pub what: String,
    /// What to do instead.
    pub advice: String,
}

/// Another rank is to blame, or the ranks together.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A rank died: its connection closed without a goodbye, it fell silent, or its thread panicked.
    #[error("rank {rank} is lost{}: {why}; look at that rank's own output for the cause, then start the job again",
        During(.during))]
    Lost {
        /// The dead rank.
        rank: Rank,
        /// How it was noticed.
        why: String,
        /// The call that failed for it, or empty.
        during: String,
    },
    /// A rank said goodbye while others still needed it.
    #[error("rank {rank} has left the world{}: keep its `World` alive until every rank is done with it \
        (`World::teardown_barrier` waits for that)", During(.during))]
    Left {
        /// The rank that left.
        rank: Rank,
        /// The call that failed for it, or empty.
        during: String,
    },
    /// The ranks were asked to agree and do not.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// A rank of a thread world panicked.
    #[error("rank {rank} panicked: {message}")]
    Panicked {
        /// The rank that panicked first.
        rank: Rank,
        /// What the panic said.
        message: String,
    },
    /// The store did not let this rank in.
    #[error("the store at {address} refused rank {rank}: {reason}")]
    Refused {
        /// Where the store is.
        address: String,
        /// This rank.
        rank: Rank,
        /// Why, and what to do.
        reason: String,
    },
    /// A peer sent bytes that do not parse.
    #[error("rank {rank} sent {what} that this rank cannot read: {why}; run the same build on every rank")]
    Garbled {
        /// The sender.
        rank: Rank,
        /// What was expected.
        what: String,
        /// What the parser said.
        why: String,
    },
}

struct During<'a>(&'a str);

impl fmt::Display for During<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " (during {})", self.0) }
    }
}

/// The ranks differ in something that must be equal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Disagreement {
    /// What was to be agreed on.
    pub topic: String,
    /// The fields that differ; never empty.
    pub fields: Vec<DifferingField>,
}

/// One field of a [`Disagreement`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DifferingField {
    /// The field's name.
    pub name: String,
    /// Each value with the ranks that have it, fewest ranks first; `None` where the field is absent.
    pub values: Vec<(Option<String>, Vec<Rank>)>,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ranks disagree on {}: ", self.topic)?;
        for (i, field) in self.fields.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            for (j, (value, ranks)) in field.values.iter().enumerate() {
                if j > 0 {
                    f.write_str(", ")?;
                }
                let has = if ranks.len() == 1 { "has" } else { "have" };
                write!(f, "{} {has} ", Ranks(ranks))?;
                let name = if j == 0 { format!("{} ", field.name) } else { String::new() };
                match value {
                    Some(value) => write!(f, "{name}`{value}`")?,
                    None if j == 0 => write!(f, "no {}", field.name)?,
                    None => f.write_str("none")?,
                }
            }
        }
        f.write_str("; make these equal on every rank")
    }
}

/// A deadline passed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub struct Timeout {
    /// The call.
    pub what: String,
    /// How long was waited.
    pub waited: Duration,
    /// The ranks that had not arrived; empty only where that is not known.
    pub missing: Vec<Rank>,
    /// The rank whose deadline passed first, where it was another's.
    pub given_up_by: Option<Rank>,
    /// More on the circumstances, or empty.
    pub note: String,
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.waited.as_secs_f64();
        match self.given_up_by {
            None => write!(f, "{} timed out after {seconds:.1} s", self.what)?,
            Some(rank) => write!(f, "{} failed after {seconds:.1} s because rank {rank} gave up", self.what)?,
        }
        if self.missing.is_empty() {
            f.write_str(" (which ranks had not arrived is not known)")?;
        } else {
            let had = if self.missing.len() == 1 { "had" } else { "each had" };
            write!(f, ": {} {had} not arrived", Ranks(&self.missing))?;
        }
        if !self.note.is_empty() {
            write!(f, "; {}", self.note)?;
        }
        f.write_str("; see what those ranks are doing, or raise `Options::timeout`")
    }
}

/// The operating system or the network refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {source}; {advice}")]
#[non_exhaustive]
pub struct Fabric {
    /// What was tried, and where.
    pub what: String,
    /// What to do.
    pub advice: String,
    /// What the system said.
    pub source: Arc<io::Error>,
}

/// Draws a token where there are coreutils.
pub(crate) const DRAW_TOKEN: &str = "export FUSEWIRE_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')";

/// The launcher's environment does not say who this rank is.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// No launcher was recognised.
    #[error(
        "no launcher found: looked for {looked_for}; start under torchrun, mpirun or srun, set \
        FUSEWIRE_RANK, FUSEWIRE_WORLD_SIZE and FUSEWIRE_ADDR, or use `World::single()` for one process"
    )]
    NoLauncher {
        /// The variables that were looked for, by launcher.
        looked_for: String,
    },
    /// A variable that the launcher should have set is not there.
    #[error("{launcher} environment lacks {name}: {advice}")]
    Missing {
        /// The launcher that was recognised.
        launcher: String,
        /// The variable.
        name: String,
        /// What to do.
        advice: String,
    },
    /// The ranks are to meet at an address that others reach too, and there is no secret to keep them out.
    #[error(
        "FUSEWIRE_TOKEN is not set, and the ranks are to meet at {address}, which is not a loopback address: whoever \
         reaches it could join the job. Draw a secret once, and give the same one to every rank:\n  {DRAW_TOKEN}\n  \
         torchrun ..                    (on several nodes: export the same value on each)\n  \
         srun --export=ALL ..\n  \
         mpirun -x FUSEWIRE_TOKEN .."
    )]
    NoToken {
        /// Where the ranks were to meet.
        address: String,
    },
    /// A variable does not parse or contradicts another.
    #[error("{name}=`{value}`: {why}")]
    Invalid {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}
