//! What can go wrong, where, and what to do.

use std::{fmt, io, path::PathBuf};

use crate::diagnostic::{Diagnostic, Level};

/// One source of a device compiler that was looked at, and why it did not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which source, in words.
    pub source: String,
    /// Why it does not do.
    pub why: String,
}

impl Attempt {
    pub(crate) fn new(source: impl Into<String>, why: impl fmt::Display) -> Attempt {
        Attempt { source: source.into(), why: why.to_string() }
    }
}

/// Why there is no device compiler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing usable is there yet. [`crate::Toolchain::find`] never downloads or builds.
    #[error("no device compiler is prepared; run `cargo fusewire setup` once.\nLooked at:\n{}", list(tried))]
    NotPrepared {
        /// Every source that was looked at.
        tried: Vec<Attempt>,
    },
    /// No source could be made usable.
    #[error(
        "no device compiler could be prepared.\nTried:\n{}\nDo one of these, then run `cargo fusewire setup` again:\n\
         - `rustup target add nvptx64-nvidia-cuda` (needs Rust {oldest} or later);\n\
         - `rustup component add rust-src`;\n\
         - set FUSEWIRE_DEVICE_RUSTC to a rustc that has either of them.",
        list(tried),
        oldest = crate::version::Release::OLDEST
    )]
    Unavailable {
        /// Every source that was tried.
        tried: Vec<Attempt>,
    },
    /// ptxas is not there or too old.
    #[error(
        "no usable ptxas.\nTried:\n{}\nInstall CUDA 12.9 or later, set FUSEWIRE_PTXAS to its ptxas, or let \
         `cargo fusewire setup` fetch one (it needs python3 with pip)",
        list(tried)
    )]
    NoPtxas {
        /// Every place that was looked at.
        tried: Vec<Attempt>,
    },
    /// A compiler or sysroot named by an environment variable cannot be used.
    #[error("{variable} is `{}`, which cannot be used: {why}. Correct it, or unset it to let fusewire look for a compiler", path.display())]
    Override {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A program that was needed failed or is missing.
    #[error("`{program}` failed while {step}: {why}")]
    Command {
        /// What was being done.
        step: String,
        /// The program.
        program: String,
        /// How it ended and the end of what it wrote.
        why: String,
    },
    /// The cache could be changed by others, and what is in it is executed.
    #[error(
        "the cache is not used, since `{}` cannot be trusted: {why}. Compilers and kernels in it are executed. Give it to yourself alone \
         (`chown`, `chmod go-w`), or set FUSEWIRE_CACHE to a folder of your own",
        path.display()
    )]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file or folder could not be read or written.
    #[error("{step}: `{}`: {error}. Set FUSEWIRE_CACHE to a writable folder if the cache is the trouble", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

fn list(tried: &[Attempt]) -> String {
    let lines: Vec<String> = tried.iter().map(|a| format!("- {}: {}", a.source, a.why)).collect();
    lines.join("\n")
}

impl Error {
    pub(crate) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |error| Error::Io { step, path, error }
    }
}

/// Why a device library or kernel was not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The compiler refused the source.
    #[error("{}", rendered(.0))]
    Diagnostics(Vec<Diagnostic>),
    /// The compiler could not be run, or ended without a diagnostic.
    #[error("the device compiler failed on `{unit}`: {why}")]
    Tool {
        /// The library or kernel that was being compiled.
        unit: String,
        /// How it ended and the end of what it wrote.
        why: String,
    },
    /// What was asked for cannot be compiled as asked.
    #[error("`{unit}`: {why}")]
    Misuse {
        /// The library or kernel that was asked for.
        unit: String,
        /// What is wrong, and the accepted form.
        why: String,
    },
    /// The cache could be changed by others, and what is in it is executed.
    #[error(
        "the cache is not used, since `{}` cannot be trusted: {why}. Compilers and kernels in it are executed. Give it to yourself alone \
         (`chown`, `chmod go-w`), or set FUSEWIRE_CACHE to a folder of your own",
        path.display()
    )]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file or folder could not be read or written.
    #[error("{step}: `{}`: {error}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

impl CompileError {
    pub(crate) fn io(step: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CompileError {
        let path = path.into();
        move |error| CompileError::Io { step, path, error }
    }
}

fn rendered(diagnostics: &[Diagnostic]) -> String {
    let errors: Vec<&str> = diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.level == Level::Error)
        .map(|diagnostic| diagnostic.rendered.trim_end())
        .collect();
    errors.join("\n\n")
}
