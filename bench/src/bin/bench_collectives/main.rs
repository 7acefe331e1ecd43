//! Collectives in bfloat16, sums added up in f32: graph replay and eager launches, checked bit by bit, in the columns of nccl-tests, as its JSON
//! document, or as JSON lines. `bench --compare` sets the lines beside those of NCCL (`run.sh collectives`).

mod measure;
mod operation;

use clap::Parser;
use fusewire::Protocol;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{
    AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter, SendRecv,
};
use fusewire_bench::choices;
use fusewire_bench::nccl_tests::{self, Document, Line, Timing};
use fusewire_examples::ranks::{Geometry, Ranks, parse_bytes};
use measure::Bench;
use operation::{OPERATIONS, Operation};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Copies.
#[comm_kernel(transports(Shm, Nvl), schedules(all_gather, broadcast, gather, scatter, all_to_all, sendrecv))]
mod copy {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
}

/// Adds up, rounded once.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce, reduce_scatter, reduce), reduce(sum, f32))]
mod sum {
    pub struct Args<'a> {
        pub input: &'a [Bf16],
        pub output: Out<'a, Bf16>,
    }
}

/// Copies in place.
#[comm_kernel(transports(Shm, Nvl), schedules(all_gather, broadcast, gather, scatter))]
mod copy_in_place {
    pub struct Args<'a> {
        pub values: InOut<'a, Bf16>,
    }
}

/// Adds up in place.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce, reduce_scatter, reduce), reduce(sum, f32))]
mod sum_in_place {
    pub struct Args<'a> {
        pub values: InOut<'a, Bf16>,
    }
}

/// Benchmark of `all_gather`, `broadcast`, `gather`, `scatter`, `reduce`, `reduce_scatter`, `all_reduce`, `all_to_all` and `sendrecv` (each rank to its
/// next), in bfloat16 and the default configuration.
#[derive(Parser)]
struct Options {
    /// `host` or `cuda`.
    #[arg(long, default_value = "cuda", value_parser = ["host", "cuda"])]
    device: String,
    #[command(flatten)]
    ranks: Ranks,
    #[command(flatten)]
    geometry: Geometry,
    /// Sizes as nccl-tests counts them, separated by commas: bytes of the larger of a rank's input and output.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    size: Vec<usize>,
    /// Which, separated by commas; by default all.
    #[arg(long, value_delimiter = ',', value_parser = Operation::parse)]
    op: Vec<&'static Operation>,
    /// The root of `broadcast`, `gather`, `scatter` and `reduce`.
    #[arg(long, default_value_t = 0)]
    root: usize,
    /// Out of place into `symmetric` or `ordinary` memory, and `in_place` where that can be, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ordinary,in_place")]
    output: Vec<Output>,
    /// How bytes travel: `simple`, `ll128`, `direct`, `bulk`, `copy`, `two_shot`, `ll128_two_shot`, `hierarchical`; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    protocol: Vec<Protocol>,
    /// Channels to each peer; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    channels: Vec<u32>,
    /// Threads of a block; by default as the library decides.
    #[arg(long, value_delimiter = ',')]
    block_threads: Vec<u32>,
    /// Bytes that travel together on a channel; by default as the library decides.
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    chunk: Vec<usize>,
    /// Replayed graphs alone.
    #[arg(long)]
    no_eager: bool,
    /// Also write the results into a file, as the JSON document of nccl-tests' `-J`.
    #[arg(short = 'J', long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print JSON lines instead of a table.
    #[arg(long)]
    json_lines: bool,
}

/// Where results go.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum Output {
    Symmetric,
    Ordinary,
    /// Where the contributions are.
    InPlace,
}

impl Output {
    fn name(self) -> &'static str {
        match self {
            Output::Symmetric => "symmetric",
            Output::Ordinary => "ordinary",
            Output::InPlace => "in_place",
        }
    }
}

/// What was measured of one operation one way; a JSON line.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    op: &'static str,
    world: usize,
    /// As asked for.
    bytes: usize,
    /// What comes of that in whole chunks.
    size: usize,
    /// Elements, as nccl-tests counts them.
    count: usize,
    #[serde(rename = "type")]
    element: &'static str,
    redop: &'static str,
    /// -1 where there is none.
    root: i64,
    output: Output,
    protocol: &'static str,
    blocks: u32,
    threads: u32,
    /// Timed in replayed graphs.
    launches: usize,
    /// The slowest rank's median, microseconds.
    graph_us: f64,
    eager_us: f64,
    /// Bytes of the size over the replayed time.
    algbw: f64,
    /// As nccl-tests defines it, comparable between numbers of ranks.
    busbw: f64,
    /// Bytes that the rank which sends most sends, over the replayed time.
    wire_gb_s: f64,
    /// Streaming multiprocessors that a launch holds at most; 0 if unknown.
    sms: usize,
    /// Elements that are not what they should be, of all ranks.
    wrong: usize,
    checked: bool,
}

impl Row {
    fn timing(&self) -> Timing {
        Timing {
            time: self.graph_us,
            alg_bw: self.algbw,
            bus_bw: self.busbw,
            nwrong: self.wrong,
            output: self.output.name(),
            protocol: self.protocol,
            blocks: self.blocks,
            threads: self.threads,
            eager_time: self.eager_us,
            wire_bw: self.wire_gb_s,
            sms: self.sms,
        }
    }
}

/// The two ways of a size in a line, if there is either.
fn line(out_of_place: Option<&Row>, in_place: Option<&Row>) -> Option<Line> {
    let row = out_of_place.or(in_place)?;
    Some(Line {
        size: row.size,
        count: row.count,
        element: row.element,
        redop: row.redop,
        root: format!("{:6}", row.root),
        out_of_place: out_of_place.map(Row::timing),
        in_place: in_place.map(Row::timing),
        actual_iterations: row.launches,
        experiment_name: row.op,
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cuda = options.device == "cuda";
    options.ranks.run(cuda, 2, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, options.geometry.options())?, &options),
        false => rank(world, &Shm::rendezvous(world, options.geometry.options())?, &options),
    })
}

fn misuse(what: String) -> fusewire::Error {
    fusewire::Error::Misuse { what }
}

fn rank<X: Transport>(world: &World, transport: &X, options: &Options) -> fusewire::Result<()>
where
    copy::Hooks: Supports<AllGather, X>
        + Supports<Broadcast, X>
        + Supports<Gather, X>
        + Supports<Scatter, X>
        + Supports<AllToAll, X>
        + Supports<SendRecv, X>,
    sum::Hooks: Supports<AllReduce, X> + Supports<ReduceScatter, X> + Supports<Reduce, X>,
    copy_in_place::Hooks:
        Supports<AllGather, X> + Supports<Broadcast, X> + Supports<Gather, X> + Supports<Scatter, X>,
    sum_in_place::Hooks: Supports<AllReduce, X> + Supports<ReduceScatter, X> + Supports<Reduce, X>,
{
    let (first, lines) = (world.rank() == 0, options.json_lines);
    // Before anything is measured; the other ranks learn of a failure, too.
    let file = options.json.as_deref().filter(|_| first).map(nccl_tests::create);
    let failed = file.as_ref().and_then(|file| file.as_ref().err().cloned());
    if let Some(why) = world.broadcast_as(0, first.then_some(&failed))? {
        return Err(misuse(why));
    }
    let bench = Bench::new(world, transport, options.root, !options.no_eager)?;
    let sizes = match options.size.as_slice() {
        [] => (10..=28).step_by(2).map(|k| 1 << k).collect(),
        some => some.to_vec(),
    };
    let mut document = Document::begin(transport, world, &sizes)?;
    let ops = if options.op.is_empty() { OPERATIONS.iter().collect() } else { options.op.clone() };
    let [in_place, outputs]: [Vec<Output>; 2] = [true, false]
        .map(|is| options.output.iter().copied().filter(|o| (*o == Output::InPlace) == is).collect());
    let outputs = if outputs.is_empty() { vec![None] } else { outputs.into_iter().map(Some).collect() };
    let measure = |op, output: Option<Output>, bytes, launch: &LaunchOptions| {
        let Some(output) = output else { return Ok(None) };
        match bench.one(op, output, bytes, launch) {
            // Not every protocol takes every schedule and size.
            Err(fusewire::Error::Misuse { what }) if launch.protocol.is_some() => {
                if first {
                    eprintln!("left out: {} of {bytes} bytes: {what}", op.name);
                }
                Ok(None)
            }
            Ok(row) => {
                if first && lines {
                    println!("{}", serde_json::to_string(&row).unwrap_or_default());
                }
                Ok(Some(row))
            }
            Err(other) => Err(other),
        }
    };
    if first && !lines {
        println!("{}", nccl_tests::head());
    }
    for op in ops {
        if op.name == "sendrecv" && world.size() == 1 {
            if first {
                eprintln!("left out: sendrecv of one rank, which has nobody to send to");
            }
            continue;
        }
        if first && !lines {
            println!("# {}", op.name);
        }
        let in_place = in_place.first().copied().filter(|_| op.in_place);
        for &output in &outputs {
            for &bytes in &sizes {
                for launch in launches(options) {
                    let ways = [measure(op, output, bytes, &launch)?, measure(op, in_place, bytes, &launch)?];
                    let Some(line) = line(ways[0].as_ref(), ways[1].as_ref()) else { continue };
                    if first && !lines {
                        println!("{line}");
                    }
                    document.push(line);
                }
            }
        }
    }
    let (wrong, bandwidth) = document.finish();
    if first && !lines {
        println!("# Out of bounds values : {wrong} {}", if wrong == 0 { "OK" } else { "FAILED" });
        println!("# Avg bus bandwidth    : {bandwidth:.3}");
    }
    if let (Some(Ok(file)), Some(path)) = (&file, &options.json) {
        document.write((file, path)).map_err(misuse)?;
    }
    world.barrier()?;
    match wrong {
        0 => Ok(()),
        wrong => {
            Err(misuse(format!("{wrong} elements are not what they should be: see `#wrong` in the table")))
        }
    }
}

/// Every way that was named.
fn launches(options: &Options) -> Vec<LaunchOptions> {
    let mut all = Vec::new();
    for protocol in choices(&options.protocol) {
        for channels in choices(&options.channels) {
            for threads in choices(&options.block_threads) {
                for chunk in choices(&options.chunk) {
                    let defaults = LaunchOptions::default();
                    all.push(LaunchOptions { protocol, channels, threads, chunk, ..defaults });
                }
            }
        }
    }
    all
}
