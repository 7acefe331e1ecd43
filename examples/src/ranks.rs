//! Starting ranks: as processes of this same program, as threads of it, or as what a launcher made of this process.

use fusewire::world::Job;
pub use fusewire::world::launched;
use fusewire::{Stream, World};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How many ranks a program has, and what they are.
#[derive(clap::Args, Clone, Debug)]
pub struct Ranks {
    /// How many ranks; by default one for each GPU, or a few on the host.
    #[arg(long)]
    pub ranks: Option<usize>,
    /// Ranks are threads of this process. By default they are processes, but threads where they share a GPU.
    #[arg(long, conflicts_with = "processes")]
    pub threads: bool,
    /// Ranks are processes, also where they share a GPU: that needs MPS.
    #[arg(long)]
    pub processes: bool,
}

/// What a benchmark's transport is made of; by default as the library decides.
#[derive(clap::Args)]
pub struct Geometry {
    /// Channels of the transport to each peer: the most that a launch can use.
    #[arg(long)]
    pub transport_channels: Option<u32>,
    /// Bytes of staging for each peer, all channels together.
    #[arg(long, value_parser = parse_bytes)]
    pub staging: Option<usize>,
}

impl Geometry {
    /// As options of a rendezvous.
    pub fn options(&self) -> fusewire::Options {
        let mut options = match self.staging {
            Some(bytes) => fusewire::Options::per_peer(bytes),
            None => fusewire::Options::default(),
        };
        options.channels = self.transport_channels.unwrap_or(options.channels);
        options
    }
}

impl Ranks {
    /// Runs `body` on each rank, of which there are `on_host` by default on CPU threads; on one alone if a launcher started this process.
    pub fn run(
        &self,
        cuda: bool,
        on_host: usize,
        body: impl Fn(&World) -> fusewire::Result<()> + Sync,
    ) -> ExitCode {
        if launched() {
            return ended(World::from_env().map_err(Into::into).and_then(|world| body(&world)));
        }
        let ranks = self.ranks.unwrap_or_else(|| if cuda { gpus().max(1) } else { on_host });
        if ranks == 0 {
            eprintln!("error: --ranks 0: there is at least one rank");
            return ExitCode::FAILURE;
        }
        if !self.processes && (self.threads || cuda && ranks > gpus()) {
            return match World::threads(ranks, |world| ended(body(&world))) {
                Ok(ends) if ends.iter().all(|end| *end == ExitCode::SUCCESS) => ExitCode::SUCCESS,
                Ok(_) => ExitCode::FAILURE,
                Err(error) => ended(Err(error.into())),
            };
        }
        match spawn(ranks) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => ended(Err(error.into())),
        }
    }
}

fn ended(outcome: fusewire::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program once more for each rank, with the same arguments, and waits for all; whether all succeeded.
fn spawn(ranks: usize) -> fusewire::world::Result<bool> {
    let program = std::env::current_exe()
        .map_err(|e| fusewire::world::Error::fabric("finding this program", e, "name it by its path"))?;
    let failed = Job::start(ranks, |_| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        command
    })?
    .wait()?;
    failed.iter().for_each(|(rank, status)| eprintln!("rank {rank} ended with {status}"));
    Ok(failed.is_empty())
}

/// The slowest rank's median of `times`.
pub fn slowest_median(world: &World, mut times: Vec<Duration>) -> fusewire::Result<Duration> {
    times.sort_unstable();
    let own = times.get(times.len() / 2).copied().unwrap_or_default().as_nanos() as u64;
    let all = world.all_gather_as(&own)?;
    Ok(Duration::from_nanos(all.into_iter().max().unwrap_or(own)))
}

/// How long a GPU works before it is timed: while the host prepares and compares data, clocks and links go to rest, and a case takes a few
/// milliseconds.
pub const WARM_UP: Duration = Duration::from_millis(40);

/// The time of what `body` queues, behind the same once before: ranks come out of a barrier some microseconds apart, and the first
/// operations bring their GPUs together.
fn elapsed(stream: &Stream, body: &mut impl FnMut() -> fusewire::Result<()>) -> fusewire::Result<Duration> {
    body()?;
    let start = stream.record()?;
    body()?;
    let end = stream.record()?;
    stream.synchronize()?;
    end.since(&start)
}

/// As many times `body` as take that `time`; the same number on all ranks.
fn warm_up(
    time: Duration,
    world: &World,
    stream: &Stream,
    body: &mut impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<()> {
    let one = slowest_median(world, vec![elapsed(stream, body)?])?;
    let times = time.as_nanos() / one.as_nanos().max(1);
    (0..times.min(1000)).try_for_each(|_| body())?;
    stream.synchronize()
}

/// Median over `windows` of the time of one of `count` operations that `body` queues; the slowest rank's.
pub fn timed(
    world: &World,
    stream: &Stream,
    windows: usize,
    count: usize,
    body: impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<Duration> {
    timed_after(WARM_UP, world, stream, windows, count, body)
}

/// The time of one of the operations that `body` queues, replayed from a graph of ten.
pub fn replayed(
    world: &World,
    stream: &Stream,
    mut body: impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<Duration> {
    let graph = stream.capture(|| (0..10).try_for_each(|_| body()))?;
    timed(world, stream, 11, 100, || (0..10).try_for_each(|_| graph.launch(stream)))
}

/// As [`timed`], after so much time of the same.
pub fn timed_after(
    time: Duration,
    world: &World,
    stream: &Stream,
    windows: usize,
    count: usize,
    mut body: impl FnMut() -> fusewire::Result<()>,
) -> fusewire::Result<Duration> {
    warm_up(time, world, stream, &mut body)?;
    let mut times = Vec::new();
    for _ in 0..windows {
        world.barrier()?;
        times.push(elapsed(stream, &mut body)? / count as u32);
    }
    slowest_median(world, times)
}

/// Number of CUDA devices; 0 without CUDA.
pub fn gpus() -> usize {
    fusewire::driver::Driver::load().and_then(|d| d.device_count()).unwrap_or(0)
}

/// The first CUDA device's name.
pub fn gpu_name() -> String {
    let device = fusewire::driver::Driver::load().and_then(|driver| driver.device(0));
    device.map_or_else(|_| "no GPU".into(), |device| device.name().into())
}

/// `1 KiB`, `64 MiB`.
pub fn bytes_text(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// Reads `64K`, `1MiB`, `12345`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        other => return Err(format!("`{other}` is no unit; use K, M or G")),
    };
    let n: usize = digits.parse().map_err(|_| format!("`{digits}` is no number of bytes"))?;
    n.checked_mul(1 << unit).ok_or_else(|| format!("`{text}` is too large"))
}
