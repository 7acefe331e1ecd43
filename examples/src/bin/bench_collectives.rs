//! Collectives with one chunk or a fold, bfloat16 added up in f32: graph replay and eager launches, checked bit by bit, in the columns of
//! nccl-tests or as JSON lines. `bench --compare` sets the lines beside those of NCCL (`run.sh collectives`).

use clap::Parser;
use fusewire::Protocol;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{
    AllGather, AllGatherLauncher, AllReduce, AllReduceLauncher, Broadcast, BroadcastLauncher, Gather,
    GatherLauncher, Plan, Reduce, ReduceLauncher, ReduceScatter, ReduceScatterLauncher, Scatter,
    ScatterLauncher,
};
use fusewire_examples::ranks::{Geometry, Ranks, parse_bytes, timed};
use fusewire_examples::reference::{self, parallel};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Copies.
#[comm_kernel(transports(Shm, Nvl), schedules(all_gather, broadcast, gather, scatter))]
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

/// The same in place.
#[comm_kernel(transports(Shm, Nvl), schedules(all_reduce), reduce(sum, f32))]
mod sum_in_place {
    pub struct Args<'a> {
        pub values: InOut<'a, Bf16>,
    }
}

/// Benchmark of `all_gather`, `broadcast`, `gather`, `scatter`, `reduce`, `reduce_scatter` and `all_reduce` (bfloat16, default configuration).
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
    /// Which, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "all_gather,broadcast,gather,scatter,reduce,reduce_scatter,all_reduce",
          value_parser = ["all_gather", "broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_reduce"])]
    op: Vec<String>,
    /// The root of `broadcast`, `gather`, `scatter` and `reduce`.
    #[arg(long, default_value_t = 0)]
    root: usize,
    /// Outputs in `symmetric` memory, in `ordinary` memory, or of all-reduces `in_place`, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ordinary")]
    output: Vec<Output>,
    /// How bytes travel: `simple`, `ll128`, `direct`, `bulk`, `copy`, `two_shot`, `ll128_two_shot`; by default as the library decides.
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
    /// Print JSON lines instead of a table.
    #[arg(long)]
    json: bool,
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

/// One line of the table.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    op: String,
    world: usize,
    bytes: usize,
    /// Elements, as nccl-tests counts them.
    count: usize,
    #[serde(rename = "type")]
    element: &'static str,
    redop: &'static str,
    /// -1 where there is none.
    root: i64,
    output: Output,
    protocol: String,
    blocks: u32,
    threads: u32,
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

fn main() -> ExitCode {
    let options = Options::parse();
    let cuda = options.device == "cuda";
    options.ranks.run(cuda, 2, |world| match cuda {
        true => rank(world, &Nvl::rendezvous(world, options.geometry.options())?, &options),
        false => rank(world, &Shm::rendezvous(world, options.geometry.options())?, &options),
    })
}

fn rank<X: Transport>(world: &World, transport: &X, options: &Options) -> fusewire::Result<()>
where
    copy::Hooks: Supports<AllGather, X> + Supports<Broadcast, X> + Supports<Gather, X> + Supports<Scatter, X>,
    sum::Hooks: Supports<AllReduce, X> + Supports<ReduceScatter, X> + Supports<Reduce, X>,
    sum_in_place::Hooks: Supports<AllReduce, X>,
{
    let all = All {
        all_gather: copy::all_gather(transport)?,
        broadcast: copy::broadcast(transport)?,
        gather: copy::gather(transport)?,
        scatter: copy::scatter(transport)?,
        reduce: sum::reduce(transport)?,
        reduce_scatter: sum::reduce_scatter(transport)?,
        all_reduce: sum::all_reduce(transport)?,
        in_place: sum_in_place::all_reduce(transport)?,
    };
    let bench = Bench { world, transport, all, root: options.root, eager: !options.no_eager };
    let sizes = match options.size.as_slice() {
        [] => (10..=28).step_by(2).map(|k| 1 << k).collect(),
        some => some.to_vec(),
    };
    if world.rank() == 0 && !options.json {
        head();
    }
    for op in &options.op {
        for &output in &options.output {
            if output == Output::InPlace && op != "all_reduce" {
                continue;
            }
            for &bytes in &sizes {
                for launch in launches(options) {
                    let row = match bench.one(op, output, bytes, &launch) {
                        // Not every protocol takes every schedule and size.
                        Err(fusewire::Error::Misuse { what }) if launch.protocol.is_some() => {
                            if world.rank() == 0 {
                                eprintln!("left out: {op} of {bytes} bytes: {what}");
                            }
                            continue;
                        }
                        other => other?,
                    };
                    if world.rank() == 0 {
                        print(&row, options.json);
                    }
                    if row.wrong > 0 {
                        let what = format!("{op} of {bytes} bytes has {} wrong elements", row.wrong);
                        return Err(fusewire::Error::Misuse { what });
                    }
                }
            }
        }
    }
    world.barrier()?;
    Ok(())
}

/// Every way that was named.
fn launches(options: &Options) -> Vec<LaunchOptions> {
    fn each<T: Copy>(given: &[T]) -> Vec<Option<T>> {
        if given.is_empty() { vec![None] } else { given.iter().map(|one| Some(*one)).collect() }
    }
    let mut all = Vec::new();
    for protocol in each(&options.protocol) {
        for channels in each(&options.channels) {
            for threads in each(&options.block_threads) {
                for chunk in each(&options.chunk) {
                    let defaults = LaunchOptions::default();
                    all.push(LaunchOptions { protocol, channels, threads, chunk, ..defaults });
                }
            }
        }
    }
    all
}

fn head() {
    println!(
        "#{:>14} {:>11} {:>11} {:>8} {:>6} {:>5} {:>9} {:>8} {:>6} {:>7} {:>10} {:>8} {:>8} {:>6} {:>10}",
        "op",
        "size (B)",
        "count",
        "type",
        "redop",
        "root",
        "output",
        "protocol",
        "blocks",
        "threads",
        "time (us)",
        "algbw",
        "busbw",
        "#wrong",
        "eager (us)"
    );
}

fn print(row: &Row, json: bool) {
    if json {
        println!("{}", serde_json::to_string(&row).unwrap_or_default());
        return;
    }
    let Row { op, bytes, count, element, redop, root, protocol, blocks, threads, .. } = row;
    let output = match row.output {
        Output::Symmetric => "symmetric",
        Output::Ordinary => "ordinary",
        Output::InPlace => "in place",
    };
    println!(
        " {op:>14} {bytes:>11} {count:>11} {element:>8} {redop:>6} {root:>5} {output:>9} {protocol:>8} {blocks:>6} {threads:>7} {:>10.2} {:>8.2} {:>8.2} {:>6} {:>10.2}",
        row.graph_us, row.algbw, row.busbw, row.wrong, row.eager_us
    );
}

struct All<X: Transport> {
    all_gather: AllGatherLauncher<X, copy::Hooks>,
    broadcast: BroadcastLauncher<X, copy::Hooks>,
    gather: GatherLauncher<X, copy::Hooks>,
    scatter: ScatterLauncher<X, copy::Hooks>,
    reduce: ReduceLauncher<X, sum::Hooks>,
    reduce_scatter: ReduceScatterLauncher<X, sum::Hooks>,
    all_reduce: AllReduceLauncher<X, sum::Hooks>,
    in_place: AllReduceLauncher<X, sum_in_place::Hooks>,
}

struct Bench<'w, X: Transport> {
    world: &'w World,
    transport: &'w X,
    all: All<X>,
    root: usize,
    eager: bool,
}

/// What rank `rank` contributes: of many magnitudes, so that a sum in another order has other bits.
fn contribution(rank: usize, i: usize) -> Bf16 {
    Bf16::from_f32(reference::input(rank, i) * 2f32.powi((i % 23) as i32 - 11))
}

/// The sum of the ranks `from..to`, as a tree over their numbers.
fn tree(from: usize, to: usize, i: usize) -> f32 {
    if to - from == 1 {
        return contribution(from, i).to_f32();
    }
    let left = 1 << (to - from - 1).ilog2();
    tree(from, from + left, i) + tree(from + left, to, i)
}

/// Elements of a rank's input, of its output, and of each chunk.
struct Shape {
    input: usize,
    output: usize,
    chunk: usize,
}

impl<X: Transport> Bench<'_, X>
where
    copy::Hooks: Supports<AllGather, X> + Supports<Broadcast, X> + Supports<Gather, X> + Supports<Scatter, X>,
    sum::Hooks: Supports<AllReduce, X> + Supports<ReduceScatter, X> + Supports<Reduce, X>,
    sum_in_place::Hooks: Supports<AllReduce, X>,
{
    fn shape(&self, op: &str, bytes: usize) -> fusewire::Result<Shape> {
        let (all, ranks) = (bytes / size_of::<Bf16>(), self.world.size());
        let part = all / ranks;
        let shape = match op {
            "all_gather" | "gather" => Shape { input: part, output: part * ranks, chunk: part },
            "reduce_scatter" | "scatter" => Shape { input: part * ranks, output: part, chunk: part },
            _ => Shape { input: all, output: all, chunk: all },
        };
        if shape.chunk == 0 {
            let what = format!("{op} of {bytes} bytes over {ranks} ranks: each chunk has at least 2 bytes");
            return Err(fusewire::Error::Misuse { what });
        }
        Ok(shape)
    }

    /// Element `i` of this rank's output.
    fn want(&self, op: &str, chunk: usize, i: usize) -> Bf16 {
        let (me, ranks) = (self.world.rank(), self.world.size());
        match op {
            "all_gather" | "gather" => contribution(i / chunk, i % chunk),
            "scatter" => contribution(self.root, me * chunk + i),
            "broadcast" => contribution(self.root, i),
            "reduce_scatter" => Bf16::from_f32(tree(0, ranks, me * chunk + i)),
            _ => Bf16::from_f32(tree(0, ranks, i)),
        }
    }

    /// Queues one launch, or with `plan` tells how it would be cut.
    fn launch(
        &self,
        (op, place): (&str, Output),
        stream: &Stream,
        (input, output): (&Buffer<Bf16>, &mut Buffer<Bf16>),
        options: &LaunchOptions,
        plan: Option<&mut Option<Plan>>,
    ) -> fusewire::Result<()> {
        let (input, output) = (input.view(), output.view_mut());
        macro_rules! go {
            ($hooks:ident, $launcher:ident, $schedule:expr) => {
                go!(args $launcher, $schedule, $hooks::Launch { input, output })
            };
            (args $launcher:ident, $schedule:expr, $args:expr) => {{
                let (all, args) = (&self.all.$launcher, $args);
                match plan {
                    Some(plan) => *plan = Some(all.explain_as(&$schedule, &args, options)?),
                    None => all.launch_as(stream, $schedule, args, options)?,
                }
            }};
        }
        let root = self.root as u32;
        match op {
            "all_gather" => go!(copy, all_gather, AllGather),
            "broadcast" => go!(copy, broadcast, Broadcast { root }),
            "gather" => go!(copy, gather, Gather { root }),
            "scatter" => go!(copy, scatter, Scatter { root }),
            "reduce" => go!(sum, reduce, Reduce { root }),
            "reduce_scatter" => go!(sum, reduce_scatter, ReduceScatter),
            _ if place == Output::InPlace => {
                go!(args in_place, AllReduce, sum_in_place::Launch { values: output })
            }
            _ => go!(sum, all_reduce, AllReduce),
        }
        Ok(())
    }

    fn one(&self, op: &str, place: Output, bytes: usize, options: &LaunchOptions) -> fusewire::Result<Row> {
        let (world, transport) = (self.world, self.transport);
        let (me, ranks) = (world.rank(), world.size());
        let Shape { input, output, chunk } = self.shape(op, bytes)?;
        let options = &options.clone().elements(chunk);
        let device = Device::of(transport);
        let stream = device.stream()?;
        let source = device.buffer_from(&parallel(input, |i| contribution(me, i)))?;
        let mut result = match place {
            Output::Symmetric => Buffer::<Bf16>::symmetric(transport, output)?,
            Output::Ordinary | Output::InPlace => device.buffer::<Bf16>(output)?,
        };
        let op = (op, place);
        let mut plan = None;
        self.launch(op, &stream, (&source, &mut result), options, Some(&mut plan))?;
        let plan = plan.unwrap_or_else(|| unreachable!("asked for"));
        // Only the root of these gets something.
        let gets = !matches!(op.0, "reduce" | "gather") || me == self.root;
        let want = if gets { parallel(output, |i| self.want(op.0, chunk, i)) } else { Vec::new() };
        let mut wrong = 0;
        let (per_graph, windows, replays) = match bytes {
            b if b >= 256 << 20 => (2, 5, 2),
            b if b >= 16 << 20 => (5, 5, 4),
            _ => (20, 7, 10),
        };
        // Peers may store into a symmetric output as soon as this rank launches: it is poisoned before.
        let poison = |result: &mut Buffer<Bf16>| {
            match place {
                Output::InPlace => result.copy_from(&stream, &source)?,
                _ => result.fill_bytes(&stream, 0xff)?,
            }
            stream.synchronize()?;
            world.barrier().map_err(fusewire::Error::from)
        };
        let compare = |result: &Buffer<Bf16>| {
            let got = if gets { result.read(&stream)? } else { Vec::new() };
            let bits = |(a, b): &(&Bf16, &Bf16)| a.to_bits64() != b.to_bits64();
            Ok::<_, fusewire::Error>(got.iter().zip(&want).filter(bits).count())
        };
        poison(&mut result)?;
        self.launch(op, &stream, (&source, &mut result), options, None)?;
        wrong += compare(&result)?;
        let graph = stream.capture(|| {
            (0..per_graph).try_for_each(|_| self.launch(op, &stream, (&source, &mut result), options, None))
        })?;
        if place == Output::InPlace {
            // Once: what comes of many launches grows.
            let once = stream.capture(|| self.launch(op, &stream, (&source, &mut result), options, None))?;
            poison(&mut result)?;
            once.launch(&stream)?;
            wrong += compare(&result)?;
        }
        poison(&mut result)?;
        let replayed = timed(world, &stream, windows, replays * per_graph, || {
            (0..replays).try_for_each(|_| graph.launch(&stream))
        })?;
        let compare = |result: &Buffer<Bf16>| if place == Output::InPlace { Ok(0) } else { compare(result) };
        wrong += compare(&result)?;
        let mut eager = Duration::ZERO;
        if self.eager {
            poison(&mut result)?;
            eager = timed(world, &stream, windows, replays * per_graph, || {
                let mut launch = || self.launch(op, &stream, (&source, &mut result), options, None);
                (0..replays * per_graph).try_for_each(|_| launch())
            })?;
            wrong += compare(&result)?;
        }
        let wrong = world.all_gather_as(&(wrong as u64))?.into_iter().sum::<u64>() as usize;
        let (size, seconds, n) =
            ((chunk.max(input).max(output) * size_of::<Bf16>()) as f64, replayed.as_secs_f64(), ranks as f64);
        // Of one rank, the one that sends most; and what nccl-tests multiplies the rate with.
        let (wire, factor) = match op.0 {
            // Parts to all, then what was folded of them.
            "all_reduce" if matches!(plan.protocol, Protocol::TwoShot | Protocol::Ll128TwoShot) => {
                (2.0 * size * (n - 1.0) / n, 2.0 * (n - 1.0) / n)
            }
            "all_gather" | "reduce_scatter" | "scatter" => (size * (n - 1.0) / n, (n - 1.0) / n),
            "gather" => (size / n, (n - 1.0) / n),
            "broadcast" => (size * (n - 1.0), 1.0),
            "reduce" => (size, 1.0),
            _ => (size * (n - 1.0), 2.0 * (n - 1.0) / n),
        };
        let algbw = size / seconds / 1e9;
        Ok(Row {
            name: "fusewire",
            op: op.0.into(),
            world: ranks,
            bytes,
            count: chunk,
            element: "bfloat16",
            redop: if op.0.contains("reduce") { "sum" } else { "none" },
            root: if matches!(op.0, "broadcast" | "gather" | "scatter" | "reduce") {
                self.root as i64
            } else {
                -1
            },
            output: place,
            protocol: plan.protocol.name().to_owned(),
            blocks: plan.blocks,
            threads: plan.threads,
            graph_us: seconds * 1e6,
            eager_us: eager.as_secs_f64() * 1e6,
            algbw,
            busbw: algbw * factor,
            wire_gb_s: wire / seconds / 1e9,
            sms: if X::NAME == "Nvl" && plan.protocol != Protocol::Copy {
                (plan.blocks as usize).min(device.processors())
            } else {
                0
            },
            wrong,
            checked: true,
        })
    }
}
