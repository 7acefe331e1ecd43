//! The crates that are published: their packages and their features.

use crate::steps::{self, Outcome, cargo};
use serde_json::Value;
use std::path::PathBuf;

/// Makes the package of every crate that is published. `verify` builds each from its package, as a registry's user would.
pub fn run(verify: bool) -> Outcome {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|e| format!("cargo metadata could not be started: {e}"))?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("what cargo metadata wrote: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    // `publish = false` is an empty list of registries.
    let published = packages.iter().filter(|package| package["publish"].is_null()).collect::<Vec<_>>();
    let mut command = cargo();
    command.args(["package", "--quiet", "--allow-dirty"]);
    if verify {
        // What an earlier run built would be taken for what is to be built.
        let folder = steps::target().join("verify");
        let _ = std::fs::remove_dir_all(&folder);
        command.arg("--target-dir").arg(folder);
    } else {
        command.arg("--no-verify");
    }
    for package in published {
        let name = package["name"].as_str().unwrap_or_default();
        complete(name, package)?;
        if verify {
            forget(&format!("{name}-{}", package["version"].as_str().unwrap_or_default()));
        }
        command.args(["--package", name]);
    }
    steps::run("cargo package", &mut command)
}

/// Removes what an earlier run left of this package. Cargo unpacks the packages that others depend on into its home, into a folder of a
/// registry without a host, and looks at names and versions only: it would build the sources of then.
fn forget(package: &str) {
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = own.or_else(|| Some(std::env::home_dir()?.join(".cargo"))) else { return };
    for kind in ["src", "cache"] {
        for entry in std::fs::read_dir(home.join("registry").join(kind)).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with('-') {
                let _ = std::fs::remove_dir_all(entry.path().join(package));
                let _ = std::fs::remove_file(entry.path().join(format!("{package}.crate")));
            }
        }
    }
}

/// Checks what users depend on in each combination of features that they meet.
pub fn features() -> Outcome {
    let combinations: &[&[&str]] = &[
        &["--package", "fusewire", "--no-default-features"],
        &["--package", "fusewire", "--features", "mlx5"],
        &["--package", "fusewire", "--features", "dlpack"],
        &["--package", "fusewire", "--features", "cpu-protocols"],
        &["--package", "fusewire-capi", "--no-default-features"],
        // What the macro compiles for the device.
        &["--package", "fusewire-transports", "--no-default-features"],
    ];
    for combination in combinations {
        let mut command = cargo();
        command.args(["check", "--quiet"]).args(*combination);
        steps::run(&format!("cargo check {}", combination.join(" ")), &mut command)?;
    }
    Ok(())
}

/// What a registry shows of a crate; cargo asks for a part of it only.
fn complete(name: &str, package: &Value) -> Outcome {
    let empty = |field: &&&str| {
        let value = &package[**field];
        value.is_null() || value.as_array().is_some_and(Vec::is_empty)
    };
    let fields = ["description", "license", "repository", "readme", "keywords", "categories"];
    match fields.iter().find(empty) {
        Some(field) => Err(format!("`{name}` is published and has no `{field}` in its Cargo.toml")),
        None => Ok(()),
    }
}
