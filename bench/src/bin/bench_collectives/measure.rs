//! What one operation takes, and whether it is right.

use crate::operation::{Operation, in_two_steps};
use crate::{Output, Row, copy, copy_in_place, sum, sum_in_place};
use fusewire::Protocol;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::*;
use fusewire_examples::ranks::timed;
use fusewire_examples::reference::{self, parallel};
use std::time::Duration;

/// Launchers, and how they are measured.
pub struct Bench<'b, X: Transport> {
    world: &'b World,
    transport: &'b X,
    all: All<X>,
    root: usize,
    eager: bool,
}

struct All<X: Transport> {
    all_gather: AllGatherLauncher<X, copy::Hooks>,
    broadcast: BroadcastLauncher<X, copy::Hooks>,
    gather: GatherLauncher<X, copy::Hooks>,
    scatter: ScatterLauncher<X, copy::Hooks>,
    all_to_all: AllToAllLauncher<X, copy::Hooks>,
    sendrecv: SendRecvLauncher<X, copy::Hooks>,
    reduce: ReduceLauncher<X, sum::Hooks>,
    reduce_scatter: ReduceScatterLauncher<X, sum::Hooks>,
    all_reduce: AllReduceLauncher<X, sum::Hooks>,
    in_place: InPlace<X>,
}

struct InPlace<X: Transport> {
    all_gather: AllGatherLauncher<X, copy_in_place::Hooks>,
    broadcast: BroadcastLauncher<X, copy_in_place::Hooks>,
    gather: GatherLauncher<X, copy_in_place::Hooks>,
    scatter: ScatterLauncher<X, copy_in_place::Hooks>,
    reduce: ReduceLauncher<X, sum_in_place::Hooks>,
    reduce_scatter: ReduceScatterLauncher<X, sum_in_place::Hooks>,
    all_reduce: AllReduceLauncher<X, sum_in_place::Hooks>,
}

/// What rank `rank` contributes: of many magnitudes, so that a sum in another order has other bits.
fn contribution(rank: usize, i: usize) -> Bf16 {
    Bf16::from_f32(reference::input(rank, i) * 2f32.powi((i % 23) as i32 - 11))
}

/// The sum of all ranks' elements `i`, rounded once.
fn sum_of(ranks: usize, i: usize) -> Bf16 {
    Bf16::from_f32(reference::tree(0..ranks, &|rank| contribution(rank, i).to_f32()))
}

/// Elements of a rank's input, of its output, and of each chunk.
pub struct Shape {
    pub input: usize,
    pub output: usize,
    pub chunk: usize,
}

impl<'b, X: Transport> Bench<'b, X>
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
    /// Collective.
    pub fn new(world: &'b World, transport: &'b X, root: usize, eager: bool) -> fusewire::Result<Self> {
        let all = All {
            all_gather: copy::all_gather(transport)?,
            broadcast: copy::broadcast(transport)?,
            gather: copy::gather(transport)?,
            scatter: copy::scatter(transport)?,
            all_to_all: copy::all_to_all(transport)?,
            sendrecv: copy::sendrecv(transport)?,
            reduce: sum::reduce(transport)?,
            reduce_scatter: sum::reduce_scatter(transport)?,
            all_reduce: sum::all_reduce(transport)?,
            in_place: InPlace {
                all_gather: copy_in_place::all_gather(transport)?,
                broadcast: copy_in_place::broadcast(transport)?,
                gather: copy_in_place::gather(transport)?,
                scatter: copy_in_place::scatter(transport)?,
                reduce: sum_in_place::reduce(transport)?,
                reduce_scatter: sum_in_place::reduce_scatter(transport)?,
                all_reduce: sum_in_place::all_reduce(transport)?,
            },
        };
        Ok(Bench { world, transport, all, root, eager })
    }

    /// The ranks before and behind this one.
    fn neighbours(&self) -> [usize; 2] {
        let (me, ranks) = (self.world.rank(), self.world.size());
        [(me + ranks - 1) % ranks, (me + 1) % ranks]
    }

    /// Element `i` of this rank's output.
    fn want(&self, op: &Operation, chunk: usize, i: usize) -> Bf16 {
        let (me, ranks) = (self.world.rank(), self.world.size());
        match op.name {
            "all_gather" | "gather" => contribution(i / chunk, i % chunk),
            "all_to_all" => contribution(i / chunk, me * chunk + i % chunk),
            "scatter" => contribution(self.root, me * chunk + i),
            "broadcast" => contribution(self.root, i),
            "sendrecv" => contribution(self.neighbours()[0], i),
            "reduce_scatter" => sum_of(ranks, me * chunk + i),
            _ => sum_of(ranks, i),
        }
    }

    /// Queues one launch, or with `plan` tells how it would be cut.
    fn launch(
        &self,
        (op, place): (&Operation, Output),
        stream: &Stream,
        (input, output): (&Buffer<Bf16>, &mut Buffer<Bf16>),
        options: &LaunchOptions,
        plan: Option<&mut Option<Plan>>,
    ) -> fusewire::Result<()> {
        let (input, output) = (input.view(), output.view_mut());
        macro_rules! go {
            ($launcher:expr, $schedule:expr, $args:expr) => {{
                let (all, args) = (&$launcher, $args);
                match plan {
                    Some(plan) => *plan = Some(all.explain_as(&$schedule, &args, options)?),
                    None => all.launch_as(stream, $schedule, args, options)?,
                }
            }};
        }
        macro_rules! by {
            ($hooks:ident, $in_place:ident, $launcher:ident, $schedule:expr) => {
                match place {
                    Output::InPlace => {
                        go!(self.all.in_place.$launcher, $schedule, $in_place::Launch { values: output })
                    }
                    _ => go!(self.all.$launcher, $schedule, $hooks::Launch { input, output }),
                }
            };
        }
        let root = self.root as u32;
        match op.name {
            "all_gather" => by!(copy, copy_in_place, all_gather, AllGather),
            "broadcast" => by!(copy, copy_in_place, broadcast, Broadcast { root }),
            "gather" => by!(copy, copy_in_place, gather, Gather { root }),
            "scatter" => by!(copy, copy_in_place, scatter, Scatter { root }),
            "reduce" => by!(sum, sum_in_place, reduce, Reduce { root }),
            "reduce_scatter" => by!(sum, sum_in_place, reduce_scatter, ReduceScatter),
            "all_reduce" => by!(sum, sum_in_place, all_reduce, AllReduce),
            "all_to_all" => go!(self.all.all_to_all, AllToAll, copy::Launch { input, output }),
            _ => {
                let [from, to] = self.neighbours().map(|rank| rank as u32);
                go!(self.all.sendrecv, SendRecv { to, from }, copy::Launch { input, output })
            }
        }
        Ok(())
    }

    /// Measures one operation of a size. Collective.
    pub fn one(
        &self,
        op: &'static Operation,
        place: Output,
        bytes: usize,
        options: &LaunchOptions,
    ) -> fusewire::Result<Row> {
        let (world, transport) = (self.world, self.transport);
        let (me, ranks) = (world.rank(), world.size());
        let shape = op.shape(bytes, ranks).map_err(|what| fusewire::Error::Misuse { what })?;
        let Shape { input, output, chunk } = shape;
        let options = &options.clone().elements(chunk);
        let device = Device::of(transport);
        let stream = device.stream()?;
        let source = device.buffer_from(&parallel(input, |i| contribution(me, i)))?;
        let mut result = match place {
            Output::Symmetric => Buffer::<Bf16>::symmetric(transport, output)?,
            Output::Ordinary => device.buffer::<Bf16>(output)?,
            Output::InPlace => device.buffer::<Bf16>(input.max(output))?,
        };
        // In place, what is there before, and where that comes from and the result is.
        let [sent, left] = match place {
            Output::InPlace => op.before(me, self.root).map(|chunks| chunks * chunk),
            _ => [0; 2],
        };
        let before = match place {
            Output::InPlace => {
                let poison = Bf16::from_bits(0xffff);
                let own = sent..sent + input;
                let value = |i| if own.contains(&i) { contribution(me, i - sent) } else { poison };
                Some(device.buffer_from(&parallel(result.len(), value))?)
            }
            _ => None,
        };
        let way = (op, place);
        let mut plan = None;
        self.launch(way, &stream, (&source, &mut result), options, Some(&mut plan))?;
        let plan = plan.unwrap_or_else(|| unreachable!("asked for"));
        // Only the root of these gets something.
        let gets = !op.to_root || me == self.root;
        let want = if gets { parallel(output, |i| self.want(op, chunk, i)) } else { Vec::new() };
        let mut wrong = 0;
        let (per_graph, windows, replays) = match bytes {
            b if b >= 256 << 20 => (2, 5, 2),
            b if b >= 16 << 20 => (5, 5, 4),
            _ => (20, 7, 10),
        };
        // Peers may store into a symmetric output as soon as this rank launches: it is poisoned before.
        let poison = |result: &mut Buffer<Bf16>| {
            match &before {
                Some(before) => result.copy_from(&stream, before)?,
                None => result.fill_bytes(&stream, 0xff)?,
            }
            stream.synchronize()?;
            world.barrier().map_err(fusewire::Error::from)
        };
        let compare = |result: &Buffer<Bf16>| {
            let got = if gets { result.read(&stream)? } else { Vec::new() };
            let bits = |(a, b): &(&Bf16, &Bf16)| a.to_bits64() != b.to_bits64();
            Ok::<_, fusewire::Error>(got.iter().skip(left).zip(&want).filter(bits).count())
        };
        poison(&mut result)?;
        self.launch(way, &stream, (&source, &mut result), options, None)?;
        wrong += compare(&result)?;
        let graph = stream.capture(|| {
            (0..per_graph).try_for_each(|_| self.launch(way, &stream, (&source, &mut result), options, None))
        })?;
        if place == Output::InPlace {
            // Once: what comes of many launches grows.
            let once = stream.capture(|| self.launch(way, &stream, (&source, &mut result), options, None))?;
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
                let mut launch = || self.launch(way, &stream, (&source, &mut result), options, None);
                (0..replays * per_graph).try_for_each(|_| launch())
            })?;
            wrong += compare(&result)?;
        }
        let wrong = world.all_gather_as(&(wrong as u64))?.into_iter().sum::<u64>() as usize;
        let (size, seconds, n) =
            ((input.max(output) * size_of::<Bf16>()) as f64, replayed.as_secs_f64(), ranks as f64);
        let two_steps = matches!(plan.protocol, Protocol::TwoShot | Protocol::Ll128TwoShot);
        let wire = size * if two_steps { in_two_steps(n) } else { (op.wire)(n) };
        let algbw = size / seconds / 1e9;
        Ok(Row {
            name: "fusewire",
            op: op.name,
            world: ranks,
            bytes,
            size: size as usize,
            count: chunk,
            element: "bfloat16",
            redop: if op.folds { "sum" } else { "none" },
            root: if op.rooted { self.root as i64 } else { -1 },
            output: place,
            protocol: plan.protocol.name(),
            blocks: plan.blocks,
            threads: plan.threads,
            launches: windows * replays * per_graph,
            graph_us: seconds * 1e6,
            eager_us: eager.as_secs_f64() * 1e6,
            algbw,
            busbw: algbw * (op.bus)(n),
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
