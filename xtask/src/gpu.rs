//! `cargo xtask gpu`: the GPU tests and the benchmark, here or packed for a machine without Rust.

use crate::steps::{self, Outcome, cargo, device_compiler, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of the package: name, cargo arguments that build it, place below the release folder.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("gpu-suite", &["-p", "fusewire-tests", "--features", "gpu", "--bin", "gpu-suite"], "gpu-suite"),
    ("all_to_all", &["-p", "fusewire-examples", "--bin", "all_to_all"], "all_to_all"),
    ("bench", &["-p", "fusewire-bench", "--bin", "bench"], "bench"),
    ("bench_collectives", &["-p", "fusewire-bench", "--bin", "bench_collectives"], "bench_collectives"),
    ("beside_cudarc", &["-p", "fusewire-examples", "--bin", "beside_cudarc"], "beside_cudarc"),
    ("bench_fused", &["-p", "fusewire-bench", "--bin", "bench_fused"], "bench_fused"),
    ("bench_hooks", &["-p", "fusewire-bench", "--bin", "bench_hooks"], "bench_hooks"),
    ("bench_shared", &["-p", "fusewire-bench", "--bin", "bench_shared"], "bench_shared"),
    ("bench_windows", &["-p", "fusewire-bench", "--bin", "bench_windows"], "bench_windows"),
    ("rows", &["-p", "fusewire-examples", "--bin", "rows"], "rows"),
    ("patterns", &["-p", "fusewire-examples", "--bin", "patterns"], "patterns"),
    ("prints", &["-p", "fusewire-examples", "--bin", "prints"], "prints"),
    ("tune", &["-p", "fusewire-examples", "--bin", "tune"], "tune"),
    ("cargo-fusewire", &["-p", "cargo-fusewire", "--bin", "cargo-fusewire"], "cargo-fusewire"),
    ("math", &["-p", "fusewire-examples", "--bin", "math"], "math"),
    ("window_ring", &["-p", "fusewire-examples", "--bin", "window_ring"], "window_ring"),
    ("window_halo", &["-p", "fusewire-examples", "--bin", "window_halo"], "window_halo"),
    ("driver-selftest", &["-p", "fusewire-driver", "--example", "selftest"], "examples/selftest"),
];

const RUN: &str = include_str!("../assets/run.sh");
const NCCL: &str = include_str!("../../bench/peers/nccl.py");
const COLLECTIVES: &str = include_str!("../../bench/peers/collectives.py");
const FUSED: &str = include_str!("../../bench/peers/fused.py");
const ROWS: &str = include_str!("../../bench/peers/rows.py");
const PATTERNS: &str = include_str!("../../bench/peers/patterns.py");
const AGAINST_TORCH: &str = include_str!("../../bench/peers/against_torch.py");
const TIMING: &str = include_str!("../../bench/peers/timing.py");
/// The checks with PyTorch, and what they share.
const TORCH: [(&str, &str); 5] = [
    ("torch_ranks.py", include_str!("../../python/tests/torch_ranks.py")),
    ("torch_job.py", include_str!("../../python/tests/torch_job.py")),
    ("torch_calls.py", include_str!("../../python/tests/torch_calls.py")),
    ("torch_backend.py", include_str!("../../python/tests/torch_backend.py")),
    ("torch_costs.py", include_str!("../../python/tests/torch_costs.py")),
];
const BASELINES: [(&str, &str); 4] = [
    ("protocol.cuh", include_str!("../../bench/baselines/protocol.cuh")),
    ("copy.cu", include_str!("../../bench/baselines/copy.cu")),
    ("hooks.cu", include_str!("../../bench/baselines/hooks.cu")),
    ("transpose.cu", include_str!("../../bench/baselines/transpose.cu")),
];

/// Builds everything and writes a folder with `run.sh`.
pub fn package(folder: &Path) -> Outcome {
    device_compiler()?;
    let folder: PathBuf = if folder.is_absolute() {
        folder.into()
    } else {
        std::env::current_dir().map_err(text)?.join(folder)
    };
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for (name, arguments, place) in PROGRAMS {
        println!("building {name}");
        let mut build = cargo();
        // All kernels, also those that `.cargo/config.toml` leaves out.
        build.args(["build", "--release", "--quiet"]).args(*arguments).env("FUSEWIRE_CHECK_ONLY", "");
        steps::run(name, &mut build)?;
        let to = folder.join(name);
        fs::copy(target().join("release").join(place), &to).map_err(|e| format!("copying {name}: {e}"))?;
        // Debug information stays here: the folder travels.
        let _ = Command::new("strip").arg("--strip-debug").arg(&to).status();
    }
    let scripts = [
        ("run.sh", RUN),
        ("nccl.py", NCCL),
        ("collectives.py", COLLECTIVES),
        ("fused.py", FUSED),
        ("rows.py", ROWS),
        ("patterns.py", PATTERNS),
        ("against_torch.py", AGAINST_TORCH),
        ("timing.py", TIMING),
    ];
    for (name, content) in scripts.into_iter().chain(TORCH) {
        fs::write(folder.join(name), content).map_err(|e| format!("writing {name}: {e}"))?;
    }
    match crate::python::prepare(false) {
        Ok(()) => {
            let wheel = crate::python::wheel(&target().join("wheel"))?;
            fs::copy(&wheel, folder.join(wheel.file_name().unwrap_or_default())).map_err(text)?;
        }
        Err(why) => println!("left out: the Python package, since {why}"),
    }
    fs::create_dir_all(folder.join("baselines")).map_err(text)?;
    for (name, content) in BASELINES {
        fs::write(folder.join("baselines").join(name), content)
            .map_err(|e| format!("writing {name}: {e}"))?;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).map_err(text)?;
    }
    println!(
        "packed into {}: `run.sh test`, `bench`, `compare` and `fused` need a CUDA driver (and torch for NCCL's side), no Rust",
        folder.display()
    );
    Ok(())
}

/// Packs into the target folder and runs it.
pub fn run(what: Option<&str>) -> Outcome {
    let folder = target().join("gpu");
    package(&folder)?;
    for part in what.map_or(vec!["test", "bench"], |w| vec![w]) {
        steps::run(part, Command::new(folder.join("run.sh")).arg(part))?;
    }
    Ok(())
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
