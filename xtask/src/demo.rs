//! `cargo xtask demo`.

use crate::steps::{self, Outcome, cargo, device_compiler};

/// Prepares the device compiler, builds the example and runs it on CPU threads, and then on the GPUs if there are any.
pub fn run(arguments: &[String]) -> Outcome {
    device_compiler()?;
    println!("building the example (its hooks become PTX and host code)");
    steps::run(
        "building the example",
        cargo().args(["build", "--release", "--quiet", "-p", "fusewire-examples", "--bin", "all_to_all"]),
    )?;
    let run = |given: &[&str]| {
        let program = ["run", "--release", "--quiet", "-p", "fusewire-examples", "--bin", "all_to_all", "--"];
        steps::run("the example", cargo().args(program).args(given).args(arguments))
    };
    if arguments.iter().any(|argument| argument.starts_with("--device")) {
        return run(&[]);
    }
    run(&["--device", "host"])?;
    if !steps::has_gpu() {
        println!("\nNo GPU here: with one, four ranks would share it now.");
        return Ok(());
    }
    println!("\nThe same on this machine's GPUs; four ranks share a GPU that is alone.\n");
    run(&["--device", "cuda"])
}
