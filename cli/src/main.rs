//! `cargo fusewire`: set-up, diagnosis, PTX, tuning and new projects.

mod cuda_facts;
mod doctor;
mod host_facts;
mod new;
mod ptx;
mod rdma_facts;
mod report;
mod setup;
mod toolchain_facts;
mod tune;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

/// Fused communication kernels in Rust: set-up, diagnosis, PTX, tuning and new projects.
#[derive(Debug, Parser)]
#[command(name = "cargo fusewire", bin_name = "cargo fusewire", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prepare the device compiler (once on a machine): find one, or fetch and build what is missing.
    Setup(setup::Args),
    /// Tell what of this machine fusewire can use, and what to do about the rest.
    Doctor(doctor::Args),
    /// Begin a project with an example kernel.
    New(new::Args),
    /// Show the PTX of a crate's kernels.
    Ptx(ptx::Args),
    /// Find the best configurations of a program's kernels on this machine, and write them into a table.
    Tune(tune::Args),
}

/// What a command may fail with.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Toolchain(#[from] fusewire_toolchain::Error),
    #[error(transparent)]
    World(#[from] fusewire::world::Error),
    /// What was asked for cannot be, and what can.
    #[error("{0}")]
    Misuse(String),
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(arguments(std::env::args_os().collect()));
    let done = match cli.command {
        Command::Setup(args) => setup::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::New(args) => new::run(&args),
        Command::Ptx(args) => ptx::run(&args),
        Command::Tune(args) => tune::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Cargo runs `cargo-fusewire fusewire ARGS`; run by hand the second word is not there.
fn arguments(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|word| word == "fusewire") {
        arguments.remove(1);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn cargos_word_is_dropped() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(arguments(words("x fusewire doctor")), words("x doctor"));
        assert_eq!(arguments(words("x doctor fusewire")), words("x doctor fusewire"));
        assert_eq!(arguments(words("x")), words("x"));
    }
}
