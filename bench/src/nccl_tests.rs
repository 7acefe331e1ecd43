//! Results as nccl-tests gives them: its columns, and the JSON document of its `-J`, so that what reads the one reads the other.
//!
//! Keys are those of nccl-tests 2.19 wherever they are the same thing, down to its truth values, which are strings. What is ours beside them:
//! `fusewire_version`, and in each of `out_of_place` and `in_place` the fields behind `nwrong`. What is left out has no counterpart: `nccl_version`, and of
//! `config` all that is no number for a whole run here (`iterations`, `warmup_iters`, `graph`, `step_bytes`, `parallel_init`). `experiment_name` is the operation:
//! nccl-tests has a program for each. `env` has the variables of fusewire and of CUDA, without secrets.

use fusewire::transport::Machine;
use fusewire::{Transport, World};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;

/// The layout of documents that this follows: `JSON_FILE_VERSION` of nccl-tests.
const VERSION: u32 = 3;

/// All results of a run.
#[derive(Debug, Serialize)]
pub struct Document {
    version: u32,
    start_time: String,
    args: Vec<String>,
    env: Vec<String>,
    fusewire_version: &'static str,
    config: Config,
    results: Vec<Line>,
    out_of_bounds: Count,
    average_bus_bandwidth: Average,
    errors: Vec<String>,
    end_time: String,
}

#[derive(Debug, Serialize)]
struct Config {
    /// Ranks of a process.
    nthreads: usize,
    /// GPUs of a rank.
    ngpus: usize,
    minimum_bytes: usize,
    maximum_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_factor: Option<usize>,
    aggregated_iterations: usize,
    validation: usize,
    blocking_collectives: &'static str,
    per_iter_timing: &'static str,
    per_iter_skip: usize,
    devices: Vec<Place>,
}

/// Where a rank is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    rank: usize,
    group: usize,
    pid: u32,
    hostname: String,
    /// The GPU's number; none on CPU threads.
    device: Option<usize>,
    device_hex: Option<String>,
    device_info: String,
}

#[derive(Debug, Serialize)]
struct Count {
    count: usize,
    okay: &'static str,
}

#[derive(Debug, Serialize)]
struct Average {
    bandwidth: f64,
    okay: &'static str,
}

/// A size of an operation.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Bytes of the larger of a rank's input and output.
    pub size: usize,
    /// Elements of what the operation's NCCL call counts.
    pub count: usize,
    /// Of an element.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// How ranks' contributions become one; `none` where they do not.
    pub redop: &'static str,
    /// A number in a string, as nccl-tests pads it; -1 where there is none.
    pub root: String,
    /// From one buffer into another; absent where only `in_place` was asked for, or the protocol that was asked for does not carry it.
    pub out_of_place: Option<Timing>,
    /// In one buffer; absent where the operation cannot.
    pub in_place: Option<Timing>,
    /// Launches that were timed.
    pub actual_iterations: usize,
    /// The operation.
    pub experiment_name: &'static str,
}

/// What was measured one way.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// Microseconds of a launch in a replayed graph: the slowest rank's median, where nccl-tests has the ranks' average.
    pub time: f64,
    /// Bytes of the size over the time, in GB/s.
    pub alg_bw: f64,
    /// The same, as nccl-tests makes it comparable between operations and numbers of ranks.
    pub bus_bw: f64,
    /// Elements that are not what they should be, of all ranks.
    pub nwrong: usize,
    /// `symmetric` or `ordinary` memory, or `in_place`.
    pub output: &'static str,
    /// How bytes travelled.
    pub protocol: &'static str,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Microseconds of a launch that is not in a graph; 0 if it was not timed.
    pub eager_time: f64,
    /// Bytes that the rank which sends most sends, over the time, in GB/s.
    pub wire_bw: f64,
    /// Streaming multiprocessors that a launch holds at most; 0 if unknown.
    pub sms: usize,
}

impl Document {
    /// Before the first result. Collective.
    ///
    /// # Errors
    /// Those of the world.
    pub fn begin(transport: &impl Transport, world: &World, sizes: &[usize]) -> fusewire::Result<Self> {
        let devices: Vec<Place> = world.all_gather_as(&Place::of(transport, world))?;
        let own = std::process::id();
        let (nthreads, on_gpus) =
            (devices.iter().filter(|place| place.pid == own).count(), devices[0].device.is_some());
        let config = Config {
            nthreads,
            ngpus: usize::from(on_gpus),
            minimum_bytes: sizes.iter().copied().min().unwrap_or(0),
            maximum_bytes: sizes.iter().copied().max().unwrap_or(0),
            step_factor: step_factor(sizes),
            aggregated_iterations: 1,
            validation: 1,
            blocking_collectives: truth(false),
            per_iter_timing: truth(false),
            per_iter_skip: 0,
            devices,
        };
        Ok(Document {
            version: VERSION,
            start_time: now(),
            args: std::env::args().collect(),
            env: environment(),
            fusewire_version: env!("CARGO_PKG_VERSION"),
            config,
            results: Vec::new(),
            out_of_bounds: Count { count: 0, okay: truth(true) },
            average_bus_bandwidth: Average { bandwidth: 0.0, okay: "unchecked" },
            errors: Vec::new(),
            end_time: String::new(),
        })
    }

    /// Adds a result.
    pub fn push(&mut self, line: Line) {
        self.results.push(line);
    }

    /// Elements that were wrong, and the average of the bus bandwidths. After the last result.
    pub fn finish(&mut self) -> (usize, f64) {
        let timings = || self.results.iter().flat_map(|line| [&line.out_of_place, &line.in_place]).flatten();
        let wrong = timings().map(|timing| timing.nwrong).sum();
        let bandwidth = timings().map(|timing| timing.bus_bw).sum::<f64>() / timings().count().max(1) as f64;
        self.out_of_bounds = Count { count: wrong, okay: truth(wrong == 0) };
        self.average_bus_bandwidth.bandwidth = bandwidth;
        self.end_time = now();
        (wrong, bandwidth)
    }

    /// Writes it into a file that [`create`] made.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, (file, path): (&File, &Path)) -> Result<(), String> {
        serde_json::to_writer_pretty(file, self).map_err(|e| format!("writing `{}`: {e}", path.display()))
    }
}

/// Makes the file for a document, in place of one that is there: before anything is measured.
///
/// # Errors
/// Why it cannot be.
pub fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|e| {
        format!("`--json {}` cannot be written ({e}): name a file in a folder of yours", path.display())
    })
}

impl Place {
    fn of(transport: &impl Transport, world: &World) -> Self {
        let rank = world.rank();
        let hostname = world.peer_hostname(rank).unwrap_or_default().to_owned();
        let (device, device_hex, device_info) = match transport.link().machine() {
            Machine::Host => (None, None, "CPU threads".to_owned()),
            Machine::Cuda(context) => {
                let gpu = context.device();
                // Without the function.
                let bus = gpu.pci_bus_id().split('.').next().unwrap_or_default().to_ascii_lowercase();
                (Some(gpu.ordinal()), Some(bus), gpu.name().to_owned())
            }
        };
        Place { rank, group: 0, pid: std::process::id(), hostname, device, device_hex, device_info }
    }
}

/// By which each size is larger than the one before, if it is the same for all.
fn step_factor(sizes: &[usize]) -> Option<usize> {
    let factor = sizes.get(1)?.checked_div(sizes[0])?;
    (factor > 1 && sizes.windows(2).all(|pair| pair[0].checked_mul(factor) == Some(pair[1])))
        .then_some(factor)
}

/// As nccl-tests writes it.
fn truth(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// The local time, as nccl-tests writes it.
fn now() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S").to_string()
}

fn environment() -> Vec<String> {
    let ours = |name: &str| name.starts_with("FUSEWIRE_") || name.starts_with("CUDA_");
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| ours(name) && !name.contains("TOKEN"))?;
        Some(format!("{name}={}", value.to_string_lossy()))
    });
    let mut variables: Vec<String> = variables.collect();
    variables.sort_unstable();
    variables
}

/// The lines above the columns.
pub fn head() -> String {
    let way = "   time   algbw   busbw  #wrong";
    let units = "   (us)  (GB/s)  (GB/s)        ";
    format!(
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:^31}  {:^31}\n\
         # {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {way}  {way}  how\n\
         # {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {units}  {units}",
        "",
        "",
        "",
        "",
        "",
        "out-of-place",
        "in-place", //
        "size",
        "count",
        "type",
        "redop",
        "root", //
        "(B)",
        "(elements)",
        "",
        "",
        "",
    )
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Line { size, count, element, redop, root, out_of_place, in_place, .. } = self;
        write!(f, "{size:>12}  {count:>12}  {element:>8}  {redop:>6}  {root:>6}")?;
        for timing in [out_of_place, in_place] {
            match timing {
                Some(Timing { time, alg_bw, bus_bw, nwrong, .. }) => {
                    let (time, alg_bw, bus_bw) = (figure(*time, 7), figure(*alg_bw, 6), figure(*bus_bw, 6));
                    write!(f, "  {time:>7}  {alg_bw:>6}  {bus_bw:>6}  {nwrong:>6}")?;
                }
                None => write!(f, "  {0:>7}  {0:>6}  {0:>6}  {0:>6}", "N/A")?,
            }
        }
        for (number, timing) in [out_of_place, in_place].into_iter().flatten().enumerate() {
            let Timing { output, protocol, blocks, threads, eager_time, .. } = timing;
            let between = if number > 0 { "; " } else { "  " };
            write!(f, "{between}{output} by {protocol} {blocks}x{threads}")?;
            if *eager_time > 0.0 {
                write!(f, ", eager {} us", figure(*eager_time, 7).trim_start())?;
            }
        }
        Ok(())
    }
}

/// As many digits as there is room for.
fn figure(value: f64, width: usize) -> String {
    let digits = [2, 1, 0].map(|digits| format!("{value:.digits$}"));
    let fits = digits.into_iter().find(|text| text.len() <= width);
    fits.unwrap_or_else(|| format!("{value:.0e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_fit() {
        let texts = [0.0, 3.456, 12_345.678, 1_234_567.8, 12_345_678.0].map(|value| figure(value, 7));
        assert_eq!(texts, ["0.00", "3.46", "12345.7", "1234568", "1e7"]);
    }

    #[test]
    fn sizes_with_a_factor_have_one() {
        for (sizes, factor) in [
            (&[1024, 4096, 16384][..], Some(4)),
            (&[1024, 2048, 8192], None),
            (&[5, 5], None),
            (&[8], None),
            (&[], None),
        ] {
            assert_eq!(step_factor(sizes), factor, "{sizes:?}");
        }
    }
}
