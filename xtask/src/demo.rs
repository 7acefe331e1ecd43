//! `cargo xtask demo`.

use crate::steps::{self, Outcome, cargo, device_compiler};

/// Prepares the device compiler, builds and runs the example.
pub fn run(arguments: &[String]) -> Outcome {
    device_compiler()?;
    println!("building the example (its hooks become PTX and host code)");
    steps::run(
        "building the example",
        cargo().args(["build", "--release", "--quiet", "-p", "fusewire-examples", "--bin", "all_to_all"]),
    )?;
    steps::run(
        "the example",
        cargo()
            .args(["run", "--release", "--quiet", "-p", "fusewire-examples", "--bin", "all_to_all", "--"])
            .args(arguments),
    )
}
