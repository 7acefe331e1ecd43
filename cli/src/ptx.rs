//! `cargo fusewire ptx`.

use std::process::ExitCode;

/// What `ptx` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only kernels whose name contains this.
    pub kernel: Option<String>,
}

/// Shows PTX.
pub fn run(_args: &Args) -> Result<ExitCode, crate::Error> {
    Err(crate::Error::NotBuilt {
        command: "ptx",
        instead: "the PTX of compiled kernels is in the cache's `kernels` folder",
    })
}
