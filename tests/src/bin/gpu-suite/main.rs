//! The conformance suite as one program, for machines without a Rust toolchain.
//!
//! `gpu-suite --ranks 2` runs every case on 2 GPUs, first with ranks that are threads, then with ranks that are processes.
//! `--device host` runs the same on CPU threads. `--from-env` makes this process one rank of a job that torchrun, mpirun or srun
//! started. Exit codes: 0 all passed, 1 some failed, 2 wrong arguments, 3 no CUDA.

mod launched;
mod report;

use clap::{Parser, ValueEnum};
use fusewire::driver::Driver;
use fusewire::{HostIb, Ibgda, Shm, ShmMesh};
#[cfg(feature = "gpu")]
use fusewire::{Nvl, NvlMesh};
use fusewire_tests::fleet::{self, Fleet};
use fusewire_tests::suite::processes;
use fusewire_tests::{Case, Meet, Scale, Stop, data, run};
use report::Report;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// GPUs, over NVLink.
    Cuda,
    /// CPU threads, over shared memory.
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Ranks are threads of this process.
    Threads,
    /// Ranks are processes.
    Processes,
    /// First the one, then the other.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    /// NVLink, or shared memory on CPU threads.
    Memory,
    /// GPU-initiated InfiniBand, over emulated adapters.
    Ibgda,
    /// Memory within domains of two ranks, emulated adapters across.
    Mesh,
    /// InfiniBand by proxy: over real adapters with FUSEWIRE_TEST_VERBS=1, else over the emulation.
    HostIb,
}

/// Runs the conformance suite of fusewire's transports.
#[derive(Debug, Parser)]
#[command(name = "gpu-suite")]
struct Arguments {
    /// How many ranks.
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// What ranks are.
    #[arg(long, value_enum, default_value_t = Mode::Both)]
    mode: Mode,
    /// Where kernels run.
    #[arg(long, value_enum, default_value_t = On::Cuda)]
    device: On,
    /// Over what.
    #[arg(long, value_enum, default_value_t = Over::Memory)]
    over: Over,
    /// Only cases whose name contains this, or one of these if it is given several times.
    #[arg(long)]
    filter: Vec<String>,
    /// Not cases whose name contains this; may be given several times.
    #[arg(long)]
    skip: Vec<String>,
    /// Names the cases and ends.
    #[arg(long)]
    list: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Repeats the random values of another run.
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds after which a case has failed.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// This process is one rank of a job that a launcher started.
    #[arg(long)]
    from_env: bool,
    /// For `--mode processes`: this process is a worker.
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.device {
        On::Host => over(&arguments, Scale::Host),
        // All transports have the same cases.
        On::Cuda if arguments.list => over(&arguments, Scale::Host),
        On::Cuda => match gpus() {
            Err(error) => {
                eprintln!("gpu-suite: {error}");
                ExitCode::from(3)
            }
            Ok(have) => {
                if have < arguments.ranks && !arguments.worker && !arguments.from_env {
                    // Not for processes, whose own ranks share no queues: clients of MPS have few of them together.
                    if arguments.mode != Mode::Processes && std::env::var_os(Driver::CONNECTIONS).is_none() {
                        return with_all_connections();
                    }
                    let (ranks, gpus) = (arguments.ranks, if have == 1 { "GPU" } else { "GPUs" });
                    eprintln!("gpu-suite: {ranks} ranks share {have} {gpus}");
                }
                over(&arguments, Scale::Gpu)
            }
        },
    }
}

fn over(arguments: &Arguments, scale: Scale) -> ExitCode {
    match (arguments.over, scale) {
        #[cfg(not(feature = "gpu"))]
        (_, Scale::Gpu) => {
            eprintln!(
                "gpu-suite: this program has no kernels for GPUs: `cargo xtask gpu` builds one that has, with the feature `gpu`"
            );
            ExitCode::from(2)
        }
        (Over::Memory, Scale::Host) => on::<Shm>(arguments, scale),
        #[cfg(feature = "gpu")]
        (Over::Memory, Scale::Gpu) => on::<Nvl>(arguments, scale),
        (Over::Ibgda, _) => on::<Ibgda>(arguments, scale),
        (Over::Mesh, Scale::Host) => on::<ShmMesh>(arguments, scale),
        #[cfg(feature = "gpu")]
        (Over::Mesh, Scale::Gpu) => on::<NvlMesh>(arguments, scale),
        (Over::HostIb, _) => on::<HostIb>(arguments, scale),
    }
}

fn gpus() -> fusewire::driver::Result<usize> {
    Driver::load()?.device_count()
}

/// This program once more, with as many hardware queues as can be: cases make several streams a rank.
fn with_all_connections() -> ExitCode {
    let again = std::env::current_exe().map(|program| {
        let most = Driver::MOST_CONNECTIONS.to_string();
        Command::new(program).args(std::env::args_os().skip(1)).env(Driver::CONNECTIONS, most).exec()
    });
    eprintln!("gpu-suite: starting this program once more: {}", again.unwrap_or_else(|error| error));
    ExitCode::from(2)
}

fn on<X: Meet>(arguments: &Arguments, scale: Scale) -> ExitCode {
    if arguments.worker {
        fleet::serve::<X>(scale);
        return ExitCode::SUCCESS;
    }
    let seed = arguments.seed.unwrap_or_else(data::seed);
    let any = |parts: &[String], name: &str| parts.iter().any(|part| name.contains(part.as_str()));
    let (filter, skip) = (&arguments.filter, &arguments.skip);
    let wanted = |name| (filter.is_empty() || any(filter, name)) && !any(skip, name);
    let chosen: Vec<Case<X>> = X::cases().into_iter().filter(|c| wanted(c.name)).collect();
    if arguments.list {
        chosen.iter().for_each(|c| println!("{} ({:?} ranks)", c.name, c.ranks));
        return ExitCode::SUCCESS;
    }
    let shared: Vec<Case<X>> = chosen.iter().filter(|c| !processes::is_one(c.name)).cloned().collect();
    if arguments.from_env {
        return launched::run(&shared, scale, seed, arguments.json);
    }
    let mut report = Report::new(arguments.json);
    report.note(&format!("{} ranks on {}, seed {seed}", arguments.ranks, X::NAME));
    if arguments.mode != Mode::Processes {
        threads(arguments, &shared, scale, seed, &mut report);
    }
    if arguments.mode != Mode::Threads {
        in_processes(arguments, &chosen, seed, &mut report);
    }
    report.end()
}

fn unfit<X>(case: &Case<X>, ranks: usize) -> Option<Stop> {
    let why = || format!("it is for {} to {} ranks", case.ranks.start(), case.ranks.end());
    (!case.ranks.contains(&ranks)).then(|| Stop::LeftOut(why()))
}

fn threads<X: Meet>(arguments: &Arguments, cases: &[Case<X>], scale: Scale, seed: u64, report: &mut Report) {
    let limit = Duration::from_secs(arguments.limit);
    for (k, case) in cases.iter().enumerate() {
        let outcome = report.case("threads", case.name, || match unfit(case, arguments.ranks) {
            Some(stop) => Err(stop),
            None => run::in_threads(case, arguments.ranks, scale, seed, limit),
        });
        // Its threads, and perhaps a kernel, are still there: nothing after it could be trusted.
        if matches!(&outcome, Err(Stop::Failed(why)) if why.contains("still running")) {
            let left = cases.len() - k - 1;
            report.note(&format!("{left} more cases are left out, since {} hangs", case.name));
            report.leave_out(left);
            return;
        }
    }
}

fn in_processes<X: Meet>(arguments: &Arguments, cases: &[Case<X>], seed: u64, report: &mut Report) {
    let Ok(program) = std::env::current_exe() else {
        report.note("this program's own path is not known: processes are left out");
        return report.leave_out(cases.len());
    };
    let device = match arguments.device {
        On::Host => "host",
        On::Cuda => "cuda",
    };
    let over = match arguments.over {
        Over::Memory => "memory",
        Over::Ibgda => "ibgda",
        Over::Mesh => "mesh",
        Over::HostIb => "host-ib",
    };
    let worker = [fleet::ENTRY, "--device", device, "--over", over].map(str::to_owned);
    let mut fleet = Fleet::new(program, &worker, arguments.ranks);
    for case in cases {
        let _ = report.case("processes", case.name, || match unfit(case, arguments.ranks) {
            Some(stop) => Err(stop),
            None => {
                let victim = processes::victim(case.name, arguments.ranks);
                fleet.expect(case.name, victim, seed, Duration::from_secs(arguments.limit))
            }
        });
    }
}
