//! `cargo xtask demo`.

use crate::steps::{self, Outcome, cargo, device_compiler};

/// What the other program has.
const COLLECTIVES: [&str; 8] =
    ["all_gather", "broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_reduce", "sendrecv"];

/// Prepares the device compiler, builds the example and runs it on CPU threads, and then on the GPUs if there are any. `--schedule` among the
/// arguments names other schedules than `all_to_all`; the rest are the program's.
pub fn run(arguments: &[String]) -> Outcome {
    let (schedules, arguments) = schedules(arguments)?;
    let collectives: Vec<&str> =
        schedules.iter().map(String::as_str).filter(|s| *s != "all_to_all").collect();
    let mut programs = Vec::new();
    if collectives.len() < schedules.len() {
        programs.push(("fusewire-examples", "all_to_all", Vec::new()));
    }
    if !collectives.is_empty() {
        programs.push((
            "fusewire-bench",
            "bench_collectives",
            vec!["--op".to_owned(), collectives.join(",")],
        ));
    }
    device_compiler()?;
    println!("building the example (its hooks become PTX and host code)");
    for (package, program, _) in &programs {
        steps::run(
            "building the example",
            cargo().args(["build", "--release", "--quiet", "-p", package, "--bin", program]),
        )?;
    }
    let run = |given: &[&str]| {
        programs.iter().try_for_each(|(package, program, own)| {
            let start = ["run", "--release", "--quiet", "-p", package, "--bin", program, "--"];
            steps::run("the example", cargo().args(start).args(own).args(given).args(&arguments))
        })
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

/// The schedules that `--schedule` names, and the other arguments.
fn schedules(arguments: &[String]) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut named, mut rest) = (None, Vec::new());
    let mut left = arguments.iter();
    while let Some(argument) = left.next() {
        match argument.split_once('=') {
            _ if argument == "--schedule" => {
                named =
                    Some(left.next().cloned().ok_or("`--schedule` names schedules, separated by commas")?);
            }
            Some(("--schedule", list)) => named = Some(list.to_owned()),
            _ => rest.push(argument.clone()),
        }
    }
    let named = named.unwrap_or_else(|| "all_to_all".to_owned());
    let known = |name: &&str| *name == "all_to_all" || COLLECTIVES.contains(name);
    match named.split(',').find(|name| !known(name)) {
        None => Ok((named.split(',').map(str::to_owned).collect(), rest)),
        Some(unknown) => Err(format!(
            "no schedule `{unknown}` in the demo: there are all_to_all, {}, separated by commas",
            COLLECTIVES.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::schedules;

    #[test]
    fn schedules_are_told_from_the_programs_arguments() {
        let given = |words: &str| schedules(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let all = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(given("--device host"), Ok((all(&["all_to_all"]), all(&["--device", "host"]))));
        let two = given("--size 1M --schedule all_gather,all_reduce --device host");
        let (named, rest) = (all(&["all_gather", "all_reduce"]), all(&["--size", "1M", "--device", "host"]));
        assert_eq!(two, Ok((named, rest)));
        assert_eq!(given("--schedule=broadcast"), Ok((all(&["broadcast"]), Vec::new())));
        assert!(given("--schedule all_gater").unwrap_err().contains("`all_gater`"));
        assert!(given("--schedule").unwrap_err().contains("names schedules"));
    }
}
