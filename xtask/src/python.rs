//! The Python package: its wheel, its tests, and a project of a user's own.

use crate::steps::{self, Outcome, cargo, root, target};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A kernel that is added to the user's project, and its tests: structs as elements and by value.
const STRUCTS: &str = include_str!("../../python/tests/project/structs.rs");
const STRUCTS_TESTS: &str = include_str!("../../python/tests/project/structs.py");

/// Whether Python can make environments, on a Debian machine made so if we may. The error is the reason why it is left out.
pub fn prepare(install: bool) -> Outcome {
    let there = || {
        let mut command = Command::new("python3");
        command.args(["-c", "import ensurepip, venv"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if there() {
        return Ok(());
    }
    if !install {
        return Err("python3 with venv is missing, and `--no-install` was given; install python3-venv".into());
    }
    println!("installing the package python3-venv on this system, for the tests of the Python package");
    steps::debian("python3-venv")?;
    if there() { Ok(()) } else { Err("python3-venv was installed, but python3 makes no environments".into()) }
}

/// Builds the wheel into `folder`.
pub fn wheel(folder: &Path) -> Outcome<PathBuf> {
    let tools = environment("tools", &["maturin>=1.9,<2"])?;
    let _ = std::fs::remove_dir_all(folder);
    let mut command = Command::new(tools.join("bin/maturin"));
    command.args(["build", "--release", "--quiet", "--out"]).arg(folder).current_dir(root().join("python"));
    command.arg("--target-dir").arg(target());
    steps::run("maturin build", &mut command)?;
    let mut made = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten();
    let found = made.find(|file| file.path().extension().is_some_and(|name| name == "whl"));
    found.map(|file| file.path()).ok_or_else(|| format!("maturin left no wheel in {}", folder.display()))
}

/// Installs the wheel into an empty environment and runs its tests there: on CPU threads, with NumPy. Then the same for a user's project.
pub fn test() -> Outcome {
    let wheel = wheel(&target().join("wheel"))?;
    // An empty one.
    let _ = std::fs::remove_dir_all(target().join("python/tests"));
    let wheel = wheel.to_string_lossy().into_owned();
    let own = environment("tests", &[&format!("{wheel}[test]")])?;
    let pytest = |folder: &Path| {
        let mut command = Command::new(own.join("bin/python"));
        // Not beside the sources, which have no compiled part.
        command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "."]).current_dir(folder);
        command
    };
    steps::run("pytest of the package", &mut pytest(&root().join("python/tests")))?;
    project(&own, &pytest)
}

/// A project as `cargo fusewire new --python` makes it: installed, tested, and run as a job of two ranks.
fn project(own: &Path, pytest: &dyn Fn(&Path) -> Command) -> Outcome {
    let folder = target().join("python/project");
    let _ = std::fs::remove_dir_all(&folder);
    let new = ["run", "--quiet", "-p", "cargo-fusewire", "--", "fusewire", "new", "--python", "--checkout"];
    steps::run("cargo fusewire new --python", cargo().args(new).arg(&folder))?;
    let own_kernels = folder.join("src/lib.rs");
    std::fs::read_to_string(&own_kernels)
        .and_then(|text| std::fs::write(&own_kernels, text + STRUCTS))
        .and_then(|()| std::fs::write(folder.join("tests/test_structs.py"), STRUCTS_TESTS))
        .map_err(|e| format!("{}: {e}", folder.display()))?;
    // The crates that this workspace has built, as it has built them.
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))
        .map_err(|e| format!("Cargo.lock: {e}"))?;
    let mut install = Command::new(own.join("bin/python"));
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .arg(&folder);
    install.env("CARGO_TARGET_DIR", target()).env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    steps::run("pip install of the new project", &mut install)?;
    steps::run("pytest of the new project", &mut pytest(&folder.join("tests")))
}

/// The tests that need PyTorch, as a job of two ranks under torchrun. Its wheels are over 2 GB.
pub fn torch() -> Outcome {
    let wheel = wheel(&target().join("wheel"))?;
    let own = environment("torch", &["torch", "numpy", "expecttest", &wheel.to_string_lossy()])?;
    let mut command = Command::new(own.join("bin/torchrun"));
    command.args(["--nproc-per-node", "2"]).arg(root().join("python/tests/torch_ranks.py"));
    steps::run("torchrun", &mut command)?;
    let mut theirs = Command::new(own.join("bin/python"));
    steps::run("torch's own tests", theirs.arg(root().join("python/tests/torch_own.py")))?;
    against(&own)
}

/// What hooks give on CPU threads, against torch on the same bytes.
fn against(own: &Path) -> Outcome {
    const PROGRAMS: [(&str, &str, &[&str]); 3] = [
        ("fusewire-examples", "rows", &["--rows", "7", "--ranks", "3"]),
        ("fusewire-examples", "patterns", &["--rows", "7", "--ranks", "3"]),
        ("fusewire-bench", "bench_hooks", &["--rows", "7"]),
    ];
    for (package, program, arguments) in PROGRAMS {
        let folder = target().join("python/saved").join(program);
        let _ = std::fs::remove_dir_all(&folder);
        let mut run = cargo();
        // No CPU thread runs their PTX.
        run.args(["run", "--quiet", "-p", package, "--bin", program]).env("FUSEWIRE_CHECK_ONLY", "1");
        steps::run(program, run.arg("--").args(arguments).arg("--save").arg(&folder))?;
        let mut torch = Command::new(own.join("bin/python"));
        torch.arg(root().join("bench/peers/against_torch.py")).arg("--self-test").arg(&folder);
        steps::run(&format!("{program} against torch"), &mut torch)?;
    }
    Ok(())
}

/// An environment with these packages.
fn environment(name: &str, packages: &[&str]) -> Outcome<PathBuf> {
    let folder = target().join("python").join(name);
    if !folder.join("bin/python").exists() {
        steps::run("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(folder.join("bin/python"));
        command.args(["-m", "pip", "--disable-pip-version-check", "-qq"]).args(arguments);
        steps::run("pip", &mut command)
    };
    // A wheel of the version that is there already would be left out, and is another one.
    pip(&["uninstall", "--yes", "fusewire"])?;
    pip(&[&["install"], packages].concat())?;
    Ok(folder)
}
