//! `cargo fusewire tune`: runs a tuning program, a process each rank, and shows how far it is.

use std::{
    env,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use fusewire::tune::{Entry, Key, Message, Progress, Settings, VARIABLE};
use fusewire::world::Job;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Error;

/// What `tune` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The package with the tuning program. Default: the current one.
    #[arg(short, long)]
    pub package: Option<String>,
    /// The tuning program: a binary of the package whose `main` is `fusewire::tune::main`.
    #[arg(long, default_value = "tune")]
    pub bin: String,
    /// A tuning program that is built already, instead.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["package", "bin"])]
    pub program: Option<PathBuf>,
    /// Where kernels run. Default: on GPUs if there are any.
    #[arg(long, value_parser = ["host", "cuda"])]
    pub device: Option<String>,
    /// Ranks, each a process. Default: one for each GPU, or 2 on the host.
    #[arg(long)]
    pub ranks: Option<usize>,
    /// The table to write; rows of other keys that it has are kept.
    #[arg(long, value_name = "FILE", default_value = "fusewire-tuning.jsonl")]
    pub table: PathBuf,
    /// Bytes to each peer, separated by commas, such as `64K,1M`. Default: what the program names.
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    pub size: Vec<usize>,
    /// Only subjects whose name contains this.
    #[arg(long)]
    pub only: Option<String>,
    /// Blocks of a launch at most: multiprocessors that it may hold. Default: any number.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks: Option<u32>,
    /// Begin afresh, though an interrupted run has left a journal beside the table.
    #[arg(long)]
    pub fresh: bool,
}

/// Builds the program and runs its ranks.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let gpus = fusewire::driver::Driver::load().and_then(|d| d.device_count()).unwrap_or(0);
    let device = args.device.clone().unwrap_or_else(|| if gpus > 0 { "cuda" } else { "host" }.into());
    let ranks = args.ranks.unwrap_or(if device == "cuda" { gpus } else { 2 });
    if args.ranks == Some(0) {
        return Err(Error::Misuse("`--ranks 0`: name at least one".into()));
    }
    if ranks == 0 {
        return Err(Error::Misuse(
            "there is no GPU to tune for: name the ranks with `--ranks`, or tune for CPU threads with `--device host`".into(),
        ));
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build(args)?,
    };
    let settings = Settings {
        device: device.clone(),
        table: env::current_dir().unwrap_or_default().join(&args.table),
        sizes: args.size.clone(),
        only: args.only.clone(),
        blocks: args.blocks,
        fresh: args.fresh,
    };
    let journal = settings.journal();
    let settings = serde_json::to_string(&settings)
        .map_err(|e| Error::Misuse(format!("`{}` cannot be passed on: {e}", args.table.display())))?;
    println!("Tuning on {ranks} ranks ({device}).");
    let start = Instant::now();
    let mut job = Job::start(ranks, |rank| {
        let mut command = Command::new(&program);
        command.env(Settings::VARIABLE, &settings);
        command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
        command
    })?;
    let mut screen = Screen::new();
    if let Some(output) = job.child(0).stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            match Message::read(&line) {
                Some(message) => screen.show(message),
                None => screen.print(&line),
            }
        }
    }
    let failed = job.wait()?;
    screen.bar.finish_and_clear();
    if failed.is_empty()
        && let Some((table, rows)) = screen.written
    {
        println!("{rows} rows in {}, after {:.0?}.", table.display(), start.elapsed());
        println!("Kernels use them with {VARIABLE}={}", table.display());
        return Ok(ExitCode::SUCCESS);
    }
    for (rank, status) in &failed {
        eprintln!("rank {rank} ended with {status}");
    }
    if failed.is_empty() {
        eprintln!("error: the program wrote no table: its `main` should be `fusewire::tune::main`");
    } else if journal.metadata().is_ok_and(|m| m.len() > 0) {
        eprintln!(
            "What was measured is kept in {}: the same command goes on from there, once what failed is mended.",
            journal.display()
        );
    }
    Ok(ExitCode::FAILURE)
}

/// Builds the program; where it is.
fn build(args: &Args) -> Result<PathBuf, Error> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--message-format=json-render-diagnostics", "--bin", &args.bin]);
    if let Some(package) = &args.package {
        cargo.args(["--package", package]);
    }
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Error::Misuse(format!("cargo could not be started: {e}")))?;
    if !output.status.success() {
        return Err(Error::Misuse(format!(
            "the tuning program `{}` was not built; `--bin` names another, and `fusewire::tune` says how to write one",
            args.bin
        )));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| executable(line, &args.bin))
        .next_back()
        .ok_or_else(|| Error::Misuse(format!("cargo built no program `{}`", args.bin)))
}

/// The executable in one of cargo's messages, if it is of binary `bin`.
fn executable(line: &str, bin: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let target = message.get("target")?;
    let is_bin = target.get("kind")?.as_array()?.iter().any(|kind| kind == "bin");
    (is_bin && target.get("name")? == bin).then(|| message.get("executable")?.as_str().map(PathBuf::from))?
}

/// Units of the bar for one key.
const KEY: u64 = 1000;

/// What is shown: a bar at the bottom, a line for each key above.
struct Screen {
    bar: ProgressBar,
    key: Option<(u64, Key)>,
    written: Option<(PathBuf, usize)>,
}

impl Screen {
    fn new() -> Self {
        let bar = ProgressBar::new(1);
        let style = "{bar:30} {percent:>3}%  {elapsed_precise}, {eta} to go  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Screen { bar, key: None, written: None }
    }

    /// A line above the bar; a bar that nobody sees would swallow it.
    fn print(&self, line: &str) {
        self.bar.suspend(|| println!("{line}"));
    }

    fn show(&mut self, message: Message) {
        match message {
            Message::Subject(name) => {
                self.print(&format!(
                    "{name}\n{:>10} {:>10} {:>10} {:>6}  best",
                    "bytes", "default", "tuned", "gain"
                ));
                self.bar.reset();
            }
            Message::Progress(Progress::Key { number, of, key }) => {
                self.bar.set_length(KEY * of as u64);
                self.bar.set_position(KEY * number as u64);
                self.bar.set_message(format!("{} to each peer", size(key.bytes)));
                self.key = Some((number as u64, key));
            }
            Message::Progress(Progress::Tried { settled, of, best_us }) => {
                if let Some((number, key)) = &self.key {
                    self.bar.set_position(KEY * number + KEY * settled as u64 / of.max(1) as u64);
                    let text =
                        format!("{} to each peer: {settled} of {of}, best {best_us:.2} us", size(key.bytes));
                    self.bar.set_message(text);
                }
            }
            Message::Progress(Progress::Failed { config, why }) => {
                self.print(&format!("left out: {config}: {why}"));
            }
            Message::Progress(Progress::Done { key, entry, resumed }) => {
                self.print(&row(&key, &entry, resumed));
            }
            Message::Written(table, rows) => self.written = Some((table, rows)),
            // Of a later version of the library.
            _ => {}
        }
    }
}

fn row(key: &Key, entry: &Entry, resumed: bool) -> String {
    let Entry { config, us, default_us } = entry;
    format!(
        "{:>10} {default_us:>7.2} us {us:>7.2} us {:>6.2}  {config}{}",
        size(key.bytes),
        default_us / us,
        if resumed { " (from the journal)" } else { "" }
    )
}

fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// Reads `64K`, `1M`, `4096`.
fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        other => return Err(format!("`{other}` is no unit; use K, M or G")),
    };
    let number: usize = digits.parse().map_err(|_| format!("`{digits}` is no number of bytes"))?;
    let bytes = number.checked_mul(1 << shift).filter(|b| *b <= 1 << 40);
    match bytes {
        Some(bytes) if bytes == fusewire::tune::bucket(bytes) => Ok(bytes),
        _ => Err(format!("`{text}`: a table has rows for powers of two from 256 to 1024G")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn sizes_are_buckets() {
        assert_eq!(bytes("256"), Ok(256));
        assert_eq!(bytes("64k"), Ok(65536));
        for (text, why) in
            [("1000", "powers of two"), ("128", "powers"), ("2T", "no unit"), ("K", "no number")]
        {
            assert!(bytes(text).is_err_and(|e| e.contains(why)), "{text}");
        }
    }

    #[test]
    fn cargo_says_where_the_program_is() {
        let line = r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"tune"},"executable":"/t/tune"}"#;
        assert_eq!(executable(line, "tune"), Some(Path::new("/t/tune").into()));
        assert_eq!(executable(line, "other"), None);
        assert_eq!(executable(&line.replace("\"bin\"", "\"lib\""), "tune"), None);
        assert_eq!(executable("Compiling..", "tune"), None);
    }
}
