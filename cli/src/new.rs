//! `cargo fusewire new`.

use std::{path::PathBuf, process::ExitCode};

/// What `new` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of the new project.
    pub path: PathBuf,
}

/// Begins a project.
pub fn run(_args: &Args) -> Result<ExitCode, crate::Error> {
    Err(crate::Error::NotBuilt {
        command: "new",
        instead: "copy a program of the repository's `examples` folder",
    })
}
