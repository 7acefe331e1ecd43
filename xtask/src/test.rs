//! `cargo xtask test`: every step that needs no GPU, in order, and a closing account.

use crate::steps::{self, Outcome, cargo, device_compiler, target};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

struct Account {
    only: Option<String>,
    /// Names of the steps that `only` does not want.
    unwanted: Vec<String>,
    passed: Vec<(String, f64)>,
    failed: Vec<(String, String)>,
    left_out: Vec<(String, String)>,
}

impl Account {
    fn wants(&mut self, name: &str) -> bool {
        let wants = self.only.as_ref().is_none_or(|o| name.contains(o.as_str()));
        if !wants {
            self.unwanted.push(name.to_string());
        }
        wants
    }

    fn step(&mut self, name: &str, body: impl FnOnce() -> Outcome) {
        if !self.wants(name) {
            return;
        }
        println!("\n=== {name}");
        let _ = std::io::stdout().flush();
        let start = Instant::now();
        match body() {
            Ok(()) => self.passed.push((name.to_string(), start.elapsed().as_secs_f64())),
            Err(why) => {
                println!("FAILED: {why}");
                self.failed.push((name.to_string(), why));
            }
        }
    }

    fn leave_out(&mut self, name: &str, why: &str) {
        if self.wants(name) {
            self.left_out.push((name.to_string(), why.to_string()));
        }
    }
}

/// Packages whose kernels are checked and not compiled to PTX here: no CPU thread runs it. Those of the tutorial are compiled.
/// (Those of `dsl-macros/tests/ui_device.rs` as well; `ui.rs` checks its own.)
/// `FUSEWIRE_CHECK_ONLY= cargo xtask test` compiles all. docs/decisions/0047-what-a-run-of-the-tests-compiles.md
const CHECKED_ONLY: &str = "fusewire-tests,fusewire,fusewire-bench,fusewire-capi";

/// Runs all steps; fails if one did. `install`: packages of the system that are missing, as root, and tools.
pub fn run(only: Option<&str>, install: bool) -> Outcome {
    let mut account = Account {
        only: only.map(str::to_string),
        unwanted: Vec::new(),
        passed: Vec::new(),
        failed: Vec::new(),
        left_out: Vec::new(),
    };
    if std::env::var_os("FUSEWIRE_CHECK_ONLY").is_none_or(|packages| !packages.is_empty()) {
        // SAFETY: no other thread has been started that could read the environment.
        unsafe { std::env::set_var("FUSEWIRE_CHECK_ONLY", CHECKED_ONLY) };
    }
    device_compiler()?;
    account.step("format", || {
        for manifest in ["Cargo.toml", "tests/outside/Cargo.toml"] {
            let all = ["fmt", "--manifest-path", manifest, "--all", "--check"];
            steps::run("rustfmt", cargo().args(all))?;
        }
        steps::readable()
    });
    account.step("clippy", || {
        let all = ["clippy", "--quiet", "--workspace", "--all-targets", "--features", "fusewire-tests/gpu"];
        steps::run("clippy", cargo().args(all).args(["--", "-D", "warnings"]))
    });
    account.step("docs", || {
        steps::run(
            "rustdoc",
            cargo().args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
    licences(&mut account, install);
    account.step("features", crate::package::features);
    account.step("packages", || crate::package::run(false));
    let mpirun = open_mpi(install);
    if let Err(why) = &mpirun {
        account.leave_out("ranks under a real mpirun", why);
    }
    account.step("tests of all crates", || {
        let mut command = cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]);
        if mpirun.is_ok() {
            command.env("FUSEWIRE_TEST_MPIRUN", "1");
        }
        steps::run("cargo test", &mut command)
    });
    srun(&mut account, install);
    account.step("a workspace of strangers", || {
        let outside = ["--manifest-path", "tests/outside/Cargo.toml", "--target-dir"];
        let of = |what: &[&str]| {
            let mut command = cargo();
            command.args(what).args(outside).arg(target());
            command
        };
        steps::run("clippy", of(&["clippy", "--quiet", "--all-targets"]).args(["--", "-D", "warnings"]))?;
        steps::run("cargo test", &mut of(&["test"]))
    });
    sanitizer(&mut account);
    account.step("a dozen mutations of the protocol", crate::mutants::dozen);
    account.step("demo on CPU threads", || {
        let schedules =
            "all_to_all,all_gather,reduce_scatter,all_reduce,broadcast,gather,scatter,reduce,sendrecv";
        let arguments = ["--schedule", schedules, "--device", "host", "--size", "64K,1M"];
        crate::demo::run(&arguments.map(String::from))
    });
    account.step("benchmark programs on CPU threads", || {
        // Not optimised, as the tests have built them: whether they run, not how fast. Those of the demo and of the Python package are.
        let built = steps::programs()?;
        let run = |name: &str, arguments: &[&str]| {
            let program = steps::program(&built, name, false)?;
            steps::run(name, Command::new(&program.path).args(arguments).current_dir(steps::root()))
        };
        run("bench", &["--device", "host", "--size", "1K,1M", "--json"])?;
        run("bench_windows", &["--device", "host", "--json"])?;
        run("host", &["--size", "4K,1M"])
    });
    account.step("tuner on CPU threads", || {
        let built = steps::programs()?;
        let [tune, fusewire] = ["tune", "cargo-fusewire"].map(|name| steps::program(&built, name, false));
        let table = target().join("smoke-tuning.jsonl");
        // Rows of earlier runs would be kept.
        let _ = std::fs::remove_file(&table);
        let mut command = Command::new(&fusewire?.path);
        command.args(["tune", "--device", "host", "--size", "256,64K,1M", "--fresh", "--program"]);
        command.arg(&tune?.path).arg("--table").arg(&table).current_dir(steps::root());
        steps::run("cargo fusewire tune", &mut command)?;
        let rows = std::fs::read_to_string(&table).map_err(|e| format!("{}: {e}", table.display()))?;
        // Each size by nine schedules, three of them into symmetric memory as well.
        match rows.lines().count() {
            37 => Ok(()),
            n => Err(format!("{} should have a header and 36 rows, but has {n} lines", table.display())),
        }
    });
    python(&mut account, install);
    if steps::has_gpu() {
        account.leave_out("GPU tests", "`cargo xtask gpu` runs them");
    } else {
        account.leave_out(
            "GPU tests",
            "no GPU here; `cargo xtask gpu --package DIR` makes a folder to run where there is one",
        );
    }
    account.leave_out(
        "PTX of tests, benchmarks and the C interface",
        "`cargo xtask gpu --package DIR` compiles it",
    );
    infiniband(&mut account, install);
    account.leave_out("InfiniBand hardware", "no adapter");
    close(account)
}

/// What all dependencies are licensed under, and where they come from.
fn licences(account: &mut Account, install: bool) {
    const NAME: &str = "licences and sources of dependencies";
    if account.wants(NAME) {
        match crate::deny::prepare(install) {
            Ok(()) => account.step(NAME, crate::deny::run),
            Err(why) => account.leave_out(NAME, &why),
        }
    }
}

/// Ranks that Slurm starts.
fn srun(account: &mut Account, install: bool) {
    const NAME: &str = "ranks under a real srun";
    if account.wants(NAME) {
        match crate::slurm::prepare(install) {
            Ok(cluster) => account.step(NAME, || crate::slurm::run(&cluster)),
            Err(why) => account.leave_out(NAME, &why),
        }
    }
}

/// The Python package, with NumPy.
fn python(account: &mut Account, install: bool) {
    const NAME: &str = "Python package";
    if account.wants(NAME) {
        match crate::python::prepare(install) {
            Ok(()) => account.step(NAME, crate::python::test),
            Err(why) => account.leave_out(NAME, &why),
        }
    }
    account.leave_out("Python package with PyTorch", "its wheels are over 2 GB: `cargo xtask test --torch`");
}

fn sanitizer(account: &mut Account) {
    const NAME: &str = "host memory under the address sanitizer";
    match crate::sanitizer::missing() {
        None => account.step(NAME, crate::sanitizer::run),
        Some(why) => account.leave_out(NAME, &why),
    }
}

/// Real verbs, in a VM.
fn infiniband(account: &mut Account, install: bool) {
    const NAME: &str = "InfiniBand verbs in a VM (soft-RoCE)";
    if !account.wants(NAME) {
        return;
    }
    match crate::vm::prepare(install) {
        Ok(Ok(())) => account.step(NAME, crate::vm::run),
        Ok(Err(why)) => account.leave_out(NAME, &why),
        Err(why) => account.step(NAME, || Err(why)),
    }
}

/// Open MPI's `mpirun`, installed if this is a Debian machine and we may.
fn open_mpi(install: bool) -> Outcome {
    let there = || {
        Command::new("mpirun")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    if there() {
        return Ok(());
    }
    if !install {
        return Err("mpirun is missing, and `--no-install` was given; install openmpi-bin".into());
    }
    println!(
        "installing the package openmpi-bin on this system, for the tests under mpirun (`--no-install` leaves them out)"
    );
    steps::debian("openmpi-bin").map_err(|why| format!("mpirun is missing, and {why}"))?;
    if there() { Ok(()) } else { Err("openmpi-bin was installed, but mpirun does not run".into()) }
}

fn close(account: Account) -> Outcome {
    let none = account.passed.is_empty() && account.failed.is_empty() && account.left_out.is_empty();
    if let Some(only) = account.only.as_ref().filter(|_| none) {
        return Err(format!(
            "`--only`: no step's name contains {only:?}; there are:\n  {}",
            account.unwanted.join("\n  ")
        ));
    }
    println!("\n=== what ran");
    for (name, seconds) in &account.passed {
        println!("ok        {seconds:7.1} s  {name}");
    }
    for (name, why) in &account.failed {
        println!("FAILED               {name}: {why}");
    }
    for (name, why) in &account.left_out {
        println!("left out             {name}: {why}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        account.passed.len(),
        account.failed.len(),
        account.left_out.len()
    );
    if account.failed.is_empty() {
        Ok(())
    } else {
        Err(format!("{} of the steps failed", account.failed.len()))
    }
}
