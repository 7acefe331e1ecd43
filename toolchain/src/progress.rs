//! What [`crate::Toolchain::prepare`] tells while it works.

use std::{fmt, path::PathBuf};

/// A step of the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Fetching the distribution's lists of packages into a private folder.
    PackageLists,
    /// Downloading one package.
    Download,
    /// Unpacking packages into the cache.
    Unpack,
    /// Building `core` and `compiler_builtins` for the device.
    BuildLibrary,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::PackageLists => "read package lists",
            Step::Download => "download",
            Step::Unpack => "unpack",
            Step::BuildLibrary => "build",
        })
    }
}

/// One event of the preparation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Progress {
    /// Another process is preparing; this one waits for it.
    Waiting {
        /// The lock file.
        lock: PathBuf,
    },
    /// A source of a compiler was looked at and does not do.
    Refused {
        /// Which source.
        source: String,
        /// Why it does not do.
        why: String,
    },
    /// A step begins.
    Started {
        /// The step.
        step: Step,
        /// What it is about, such as a package with its version.
        what: String,
        /// Bytes to fetch, where known.
        bytes: Option<u64>,
        /// Where it is put.
        to: PathBuf,
    },
    /// A step is done.
    Finished {
        /// The step.
        step: Step,
        /// What it was about.
        what: String,
        /// Bytes now on disk for it.
        bytes: u64,
        /// Where it is.
        to: PathBuf,
        /// How long it took.
        seconds: f64,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        match self {
            Progress::Waiting { lock } => {
                write!(f, "waiting for another process that is preparing ({})", lock.display())
            }
            Progress::Refused { source, why } => write!(f, "not usable: {source}: {why}"),
            Progress::Started { step, what, bytes: Some(bytes), to } => {
                write!(f, "{step} {what} ({:.1} MB) into {}", mb(*bytes), to.display())
            }
            Progress::Started { step, what, bytes: None, to } => {
                write!(f, "{step} {what} into {}", to.display())
            }
            Progress::Finished { step, what, bytes, to, seconds } => {
                write!(f, "{step} {what}: {:.1} MB in {}, {seconds:.1} s", mb(*bytes), to.display())
            }
        }
    }
}
