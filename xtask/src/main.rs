//! What this repository's people run: `cargo xtask demo`, `test`, `mutants`, `gpu`, `fuzz`, `package`, `wheel`, `bench-host`.

mod bench_host;
mod demo;
mod deny;
mod fuzz;
mod gpu;
mod mutants;
mod package;
mod python;
mod sanitizer;
mod slurm;
mod steps;
mod test;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tasks of the fusewire repository. Each does its own set-up.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Prepare the device compiler, then run the example all-to-all, or other schedules: on CPU threads, and on GPUs if there are any.
    Demo {
        /// `--schedule all_gather,reduce_scatter,all_reduce`; and arguments of the example: `--device host|cuda`, `--ranks N`, `--size 1M,16M`, `--hooks copy,transpose`; of
        /// other schedules than the all-to-all `--json FILE`, with `--device`: the run on GPUs would replace that on CPU threads.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run everything that a machine without GPU can run, and say what was left out.
    Test {
        /// Only the steps whose name contains this.
        #[arg(long)]
        only: Option<String>,
        /// Install no packages of the system and build no tools: leave out what needs those that are missing.
        #[arg(long)]
        no_install: bool,
        /// Only the tests of the Python package with PyTorch, whose wheels are over 2 GB.
        #[arg(long)]
        torch: bool,
    },
    /// Take steps of the protocol away, one at a time, and see that a test misses each.
    Mutants(mutants::Arguments),
    /// Run the GPU tests and the benchmark here, or make a folder that does so on another machine.
    Gpu {
        /// Make a self-contained folder with `run.sh test` and `run.sh bench` instead of running.
        #[arg(long)]
        package: Option<std::path::PathBuf>,
        /// What to run here: `test` or `bench`; both by default.
        what: Option<String>,
    },
    /// Fuzz what reads bytes from elsewhere, one target after the other (docs/fuzzing.md).
    Fuzz {
        /// How long for each target.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Only the targets whose name contains this.
        #[arg(long)]
        only: Option<String>,
        /// Add the inputs that reach more to the corpora in the repository.
        #[arg(long)]
        keep: bool,
    },
    /// Make the package of every published crate, in target/package.
    Package {
        /// Also build each crate from its package.
        #[arg(long)]
        verify: bool,
    },
    /// Build the wheel of the Python package.
    Wheel {
        /// The folder for it.
        #[arg(long, default_value = "target/wheel")]
        out: std::path::PathBuf,
    },
    /// Compare the shared-memory transport with Open MPI on this machine's cores.
    BenchHost {
        /// How often both sides run, in turn.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Demo { arguments } => demo::run(&arguments),
        Task::Test { torch: true, .. } => python::torch(),
        Task::Test { only, no_install, torch: false } => test::run(only.as_deref(), !no_install),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Gpu { package: Some(folder), .. } => gpu::package(&folder),
        Task::Gpu { package: None, what } => gpu::run(what.as_deref()),
        Task::Fuzz { seconds, only, keep } => fuzz::run(seconds, only.as_deref(), keep),
        Task::Package { verify } => package::run(verify),
        Task::Wheel { out } => {
            python::wheel(&steps::root().join(out)).map(|file| println!("{}", file.display()))
        }
        Task::BenchHost { rounds } => bench_host::run(rounds),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
