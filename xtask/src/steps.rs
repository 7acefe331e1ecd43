//! Small things that every task needs.

use fusewire_toolchain::{Toolchain, cache};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Shorthand.
pub type Outcome<T = ()> = Result<T, String>;

/// The host, by name: flags for it then stay away from build scripts and macros.
pub const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The repository's folder.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// The `cargo` that runs this task.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Whether NVIDIA's kernel driver is loaded, for some GPU.
pub fn has_gpu() -> bool {
    std::path::Path::new("/dev/nvidiactl").exists()
}

/// Runs a command with its output shown.
pub fn run(what: &str, command: &mut Command) -> Outcome {
    let status = command
        .status()
        .map_err(|e| format!("{what}: {} could not be started: {e}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{what} ended with {status}")) }
}

/// That every Rust file can be read in one sitting.
pub fn readable() -> Outcome {
    const MOST: usize = 500;
    let files = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output();
    let files = files.map_err(|e| format!("git ls-files: {e}"))?.stdout;
    for file in String::from_utf8_lossy(&files).lines() {
        let text = std::fs::read_to_string(root().join(file)).map_err(|e| format!("{file}: {e}"))?;
        let lines = text.lines().count();
        if lines > MOST {
            return Err(format!(
                "{file} has {lines} lines; a file has at most {MOST}: give a part of it a file of its own"
            ));
        }
    }
    Ok(())
}

/// A program that `cargo test` of the workspace builds.
pub struct Program {
    /// The folder of its package.
    pub folder: PathBuf,
    /// The target's name.
    pub name: String,
    /// Whether it has tests; else it is a program as users have it.
    pub tests: bool,
    /// The file.
    pub path: PathBuf,
}

/// All of them, built if they are not. Of some packages alone, cargo chooses other features, and builds their crates once more.
pub fn programs() -> Outcome<Vec<Program>> {
    let mut build = cargo();
    build
        .args(["test", "--no-run", "--quiet", "--workspace", "--message-format=json"])
        .stderr(Stdio::inherit());
    let output = build.output().map_err(|e| format!("cargo test --no-run: {e}"))?;
    if !output.status.success() {
        return Err(format!("building the tests ended with {}", output.status));
    }
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let (name, tests) =
            (message["target"]["name"].as_str()?.to_owned(), message["profile"]["test"].as_bool()?);
        Some(Program { folder, name, tests, path })
    };
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect())
}

/// That of a target, with its tests or as users have it.
pub fn program<'p>(all: &'p [Program], name: &str, tests: bool) -> Outcome<&'p Program> {
    let found = all.iter().find(|p| p.name == name && p.tests == tests);
    found.ok_or_else(|| format!("`cargo test` builds no program `{name}`"))
}

/// The device compiler, prepared if it is not there yet, with progress.
pub fn device_compiler() -> Outcome<Toolchain> {
    if let Ok(toolchain) = Toolchain::find() {
        println!("device compiler: {} ({})", toolchain.version(), toolchain.source());
        return Ok(toolchain);
    }
    println!(
        "preparing the device compiler; everything goes into {}, nothing of the system changes",
        cache::dir().display()
    );
    let toolchain =
        Toolchain::prepare(&mut |progress| println!("  {progress}")).map_err(|e| e.to_string())?;
    println!("device compiler: {} ({})", toolchain.version(), toolchain.source());
    Ok(toolchain)
}

/// Whether this runs as root.
pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}

/// Installs a package of Debian, as root.
pub fn debian(package: &str) -> Outcome {
    if !is_root() {
        return Err(format!("only root can install {package}"));
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    };
    let install = ["install", "-y", "-q", "--no-install-recommends", package];
    match apt(&install) || (apt(&["update", "-q"]) && apt(&install)) {
        true => Ok(()),
        false => Err(format!("{package} could not be installed")),
    }
}
