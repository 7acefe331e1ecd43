//! Cases of the benchmarks of [`fused`](fusewire_examples::fused) hooks: what each must give, and how one is timed.

use fusewire::Protocol;
use fusewire::kernel::Supports;
use fusewire::prelude::*;
use fusewire::schedule::{AllToAll, AllToAllLauncher, Plan, SendRecv, SendRecvLauncher};
use fusewire_examples::fused::{add, copy, fp8, permute, scale, transpose, transpose_gather};
use fusewire_examples::ranks::timed_after;
use fusewire_examples::reference::{self, parallel};
use std::collections::HashMap;
use std::time::Duration;

/// The hooks of an all-to-all.
pub const NAMES: [&str; 7] = ["copy", "scale", "transpose", "transpose_gather", "permute", "add", "fp8"];

/// The copy once more, as a `sendrecv` of each rank to its next.
pub const SENDRECV: &str = "sendrecv";

/// How often each of two is timed by turns: a median of medians.
const TURNS: usize = 9;

/// The 8-bit floats' scale, and the factor of `scale`: powers of two, so that the reference needs no thought.
const SCALE: f32 = 0.25;

/// A transport that all hooks are compiled for.
pub trait On: Transport + Sized {
    /// Launchers of all hooks.
    type All: Launch<Self>;
}

impl On for Nvl {
    type All = All<Nvl>;
}
impl On for Shm {
    type All = All<Shm>;
}

/// One launch of a hook by its name.
pub trait Launch<X: Transport>: Sized {
    /// Collective.
    fn new(transport: &X) -> fusewire::Result<Self>;
    /// The same with other code for `copy` and `transpose`.
    ///
    /// # Safety
    /// As for `AllToAllLauncher::with_ptx`.
    unsafe fn with_ptx(self, text: &str) -> fusewire::Result<Self>;
    /// Queues it, or with `plan` tells how it would be cut.
    fn launch(
        &self,
        stream: &Stream,
        case: &mut Case,
        plan: Option<&mut Option<Plan>>,
    ) -> fusewire::Result<()>;
}

/// The launchers.
pub struct All<X: Transport> {
    copy: AllToAllLauncher<X, copy::Hooks>,
    sendrecv: SendRecvLauncher<X, copy::Hooks>,
    scale: AllToAllLauncher<X, scale::Hooks>,
    transpose: AllToAllLauncher<X, transpose::Hooks>,
    transpose_gather: AllToAllLauncher<X, transpose_gather::Hooks>,
    permute: AllToAllLauncher<X, permute::Hooks>,
    add: AllToAllLauncher<X, add::Hooks>,
    fp8: AllToAllLauncher<X, fp8::Hooks>,
}

/// What a launch is given.
pub struct Case {
    name: String,
    input: Buffer<Bf16>,
    order: Buffer<u32>,
    output: Buffer<Bf16>,
    width: u32,
    options: LaunchOptions,
    /// The next rank and the previous one.
    ends: [Option<usize>; 2],
}

impl<X: Transport> Launch<X> for All<X>
where
    copy::Hooks: Supports<AllToAll, X> + Supports<SendRecv, X>,
    scale::Hooks: Supports<AllToAll, X>,
    transpose::Hooks: Supports<AllToAll, X>,
    transpose_gather::Hooks: Supports<AllToAll, X>,
    permute::Hooks: Supports<AllToAll, X>,
    add::Hooks: Supports<AllToAll, X>,
    fp8::Hooks: Supports<AllToAll, X>,
{
    fn new(transport: &X) -> fusewire::Result<Self> {
        Ok(All {
            copy: copy::all_to_all(transport)?,
            sendrecv: copy::sendrecv(transport)?,
            scale: scale::all_to_all(transport)?,
            transpose: transpose::all_to_all(transport)?,
            transpose_gather: transpose_gather::all_to_all(transport)?,
            permute: permute::all_to_all(transport)?,
            add: add::all_to_all(transport)?,
            fp8: fp8::all_to_all(transport)?,
        })
    }

    unsafe fn with_ptx(self, text: &str) -> fusewire::Result<Self> {
        let has = |entry: &str| text.contains(&format!(".entry {entry}"));
        // SAFETY: the caller's contract.
        let copy = if has("copy__") { unsafe { self.copy.with_ptx(text)? } } else { self.copy };
        let transpose = match has("transpose__") {
            // SAFETY: the caller's contract.
            true => unsafe { self.transpose.with_ptx(text)? },
            false => self.transpose,
        };
        Ok(All { copy, transpose, ..self })
    }

    fn launch(
        &self,
        stream: &Stream,
        case: &mut Case,
        plan: Option<&mut Option<Plan>>,
    ) -> fusewire::Result<()> {
        let Case { name, input, order, output, width, options, ends: [next, previous] } = case;
        let (input, order, output, width) = (input.view(), order.view(), output.view_mut(), *width);
        macro_rules! go {
            ($launcher:ident, $args:expr) => {
                match plan {
                    Some(plan) => *plan = Some(self.$launcher.explain(&$args, options)?),
                    None => self.$launcher.launch_with(stream, $args, options)?,
                }
            };
        }
        match name.as_str() {
            "copy" => go!(copy, copy::Launch { input, output }),
            SENDRECV => {
                let args = copy::Launch { input, output };
                match plan {
                    Some(plan) => *plan = Some(self.sendrecv.explain(*next, *previous, &args, options)?),
                    None => self.sendrecv.launch_with(stream, *next, *previous, args, options)?,
                }
            }
            "scale" => go!(scale, scale::Launch { input, output, factor: SCALE }),
            "transpose" => go!(transpose, transpose::Launch { input, output }),
            "transpose_gather" => go!(transpose_gather, transpose_gather::Launch { input, output }),
            "permute" => go!(permute, permute::Launch { input, order, output, width }),
            "add" => go!(add, add::Launch { input, output }),
            _ => go!(fp8, fp8::Launch { input, output, scale: SCALE, inverse: 1.0 / SCALE }),
        }
        Ok(())
    }
}

/// Input element `i` of `rank`: exact in bfloat16, of both signs, up to 16.
fn input(rank: usize, i: usize) -> Bf16 {
    Bf16::from_f32(((reference::input(rank, i) * 16.0) as i32 % 128) as f32 / 8.0)
}

/// What `add` adds to.
fn before(rank: usize, i: usize) -> Bf16 {
    input(rank + 1000, i)
}

/// One all-to-all's geometry.
#[derive(Clone, Copy)]
struct Shape {
    rank: usize,
    chunk: usize,
    rows: usize,
    cols: usize,
    len: usize,
}

impl Shape {
    /// Which row of the input is sent as each row: rows of all ranks' chunks, mixed.
    fn order(self, row: usize) -> usize {
        reference::index(self.len / self.cols, row) as usize
    }

    /// Element `i` of the output after `times` launches.
    fn want(self, name: &str, i: usize, times: usize) -> Bf16 {
        let Shape { rank, chunk, rows, cols, .. } = self;
        let (peer, pos) = (i / chunk, i % chunk);
        let own = rank * chunk;
        let plain = || input(peer, own + pos);
        match name {
            "copy" => plain(),
            SENDRECV => input((rank + self.len / chunk - 1) % (self.len / chunk), i),
            "scale" => Bf16::from_f32(plain().to_f32() * SCALE),
            "transpose" | "transpose_gather" => input(peer, own + (pos % rows) * cols + pos / rows),
            "permute" => {
                let row = self.order((own + pos) / cols);
                input(peer, row * cols + pos % cols)
            }
            "add" => {
                let sum = |sum: Bf16, _| Bf16::from_f32(sum.to_f32() + plain().to_f32());
                (0..times).fold(before(rank, i), sum)
            }
            _ => {
                let wire = F8E4M3::from_f32(plain().to_f32() / SCALE);
                Bf16::from_f32(wire.to_f32() * SCALE)
            }
        }
    }
}

/// All that lasts over the cases.
pub struct Bench<'w, X: On> {
    world: &'w World,
    transport: &'w X,
    /// The launchers.
    pub all: X::All,
    counts: fn(usize) -> Counts,
}

/// One hook at one size, ready to be launched.
pub struct Ready {
    stream: Stream,
    case: Case,
    shape: Shape,
    /// What is in the output before.
    first: Buffer<Bf16>,
    /// What is in it after so many launches, where that was asked for.
    after: HashMap<usize, Vec<Bf16>>,
    bytes: usize,
}

/// How often a case is launched.
#[derive(Clone, Copy)]
pub struct Counts {
    /// Launches in a graph.
    pub per_graph: usize,
    /// How often is timed; the median counts.
    pub windows: usize,
    /// Replays of the graph each time.
    pub replays: usize,
    /// Launches one by one each time; none are timed with 0.
    pub eager: usize,
    /// How long it runs before.
    pub warm_up: Duration,
}

/// What a case took.
pub struct Measured {
    /// How it was cut.
    pub plan: Plan,
    /// One launch of a replayed graph, the slowest rank's median.
    pub replayed: Duration,
    /// One launch of those that were queued one by one.
    pub eager: Duration,
}

impl<'w, X: On> Bench<'w, X> {
    /// Launches each case as often as `counts` says of its bytes. Collective.
    pub fn new(world: &'w World, transport: &'w X, counts: fn(usize) -> Counts) -> fusewire::Result<Self> {
        Ok(Bench { world, transport, all: X::All::new(transport)?, counts })
    }

    /// Multiprocessors of the device.
    pub fn processors(&self) -> usize {
        Device::of(self.transport).processors()
    }

    /// Fresh data for one hook at one size.
    pub fn ready(
        &self,
        name: &str,
        symmetric: bool,
        bytes: usize,
        mut options: LaunchOptions,
    ) -> fusewire::Result<Ready> {
        let chunk = bytes / size_of::<Bf16>() / self.world.size();
        let (rows, cols) = reference::shape(chunk);
        let len = chunk * self.world.size();
        let (rank, ranks) = (self.world.rank(), self.world.size());
        let unfit = |what: String| Err(fusewire::Error::Misuse { what });
        if chunk == 0 {
            return unfit(format!(
                "{bytes} bytes over {ranks} ranks: each chunk has at least one element of 2 bytes"
            ));
        }
        if name == "permute" && !cols.is_multiple_of(8) {
            return unfit(format!(
                "`permute` of {bytes} bytes over {ranks} ranks has rows of {cols} elements: choose a size with rows of a multiple of 8"
            ));
        }
        if name == SENDRECV && ranks == 1 {
            return unfit("a rank alone has nobody to send to: `sendrecv` is for two or more".into());
        }
        let shape = Shape { rank, chunk, rows, cols, len };
        if name.starts_with("transpose") {
            options = options.shape(cols, rows);
        }
        let device = Device::of(self.transport);
        let fresh = |i| if name == "add" { before(shape.rank, i) } else { Bf16::from_bits64(0xffff) };
        let order =
            if name == "permute" { parallel(len / cols, |row| shape.order(row) as u32) } else { vec![] };
        let case = Case {
            name: name.into(),
            input: device.buffer_from(&parallel(len, |i| input(shape.rank, i)))?,
            order: device.buffer_from(&order)?,
            output: if symmetric { Buffer::symmetric(self.transport, len)? } else { device.buffer(len)? },
            width: cols as u32,
            options,
            ends: [Some((rank + 1) % ranks), Some((rank + ranks - 1) % ranks)],
        };
        let first = device.buffer_from(&parallel(len, fresh))?;
        Ok(Ready { stream: device.stream()?, case, shape, first, after: HashMap::new(), bytes })
    }

    /// Launches once and replays a graph of launches, each into an output that was filled before, and checks every element; the graph.
    pub fn checked(&self, all: &X::All, ready: &mut Ready) -> fusewire::Result<Graph> {
        ready.reset()?;
        all.launch(&ready.stream, &mut ready.case, None)?;
        ready.check(1, "an eager")?;
        let Counts { per_graph, .. } = (self.counts)(ready.bytes);
        let Ready { stream, case, .. } = ready;
        let graph = stream.capture(|| (0..per_graph).try_for_each(|_| all.launch(stream, case, None)))?;
        ready.reset()?;
        graph.launch(&ready.stream)?;
        ready.check(per_graph, "a replayed")?;
        Ok(graph)
    }

    /// A graph of as many copies of the input into the output by the driver.
    pub fn driver_copies(&self, ready: &mut Ready) -> fusewire::Result<Graph> {
        let Counts { per_graph, .. } = (self.counts)(ready.bytes);
        let Ready { stream, case, .. } = ready;
        stream.capture(|| (0..per_graph).try_for_each(|_| case.output.copy_from(stream, &case.input)))
    }

    /// Times of both graphs' launches, by turns: medians, in microseconds.
    pub fn by_turns(&self, ready: &Ready, graphs: [&Graph; 2]) -> fusewire::Result<[f64; 2]> {
        let mut times = [Vec::new(), Vec::new()];
        for turn in 0..2 * TURNS {
            times[turn % 2].push(self.replayed(ready, graphs[turn % 2])?);
        }
        Ok(times.map(|mut times: Vec<Duration>| {
            times.sort_unstable();
            times[TURNS / 2].as_secs_f64() * 1e6
        }))
    }

    /// How it is cut.
    pub fn plan(&self, ready: &mut Ready) -> fusewire::Result<Plan> {
        let mut plan = None;
        self.all.launch(&ready.stream, &mut ready.case, Some(&mut plan))?;
        Ok(plan.unwrap_or_else(|| unreachable!("asked for")))
    }

    /// Time of one of a replayed graph's launches.
    pub fn replayed(&self, ready: &Ready, graph: &Graph) -> fusewire::Result<Duration> {
        let Counts { per_graph, windows, replays, warm_up, .. } = (self.counts)(ready.bytes);
        timed_after(warm_up, self.world, &ready.stream, windows, replays * per_graph, || {
            (0..replays).try_for_each(|_| graph.launch(&ready.stream))
        })
    }

    /// Checks and times it. Collective.
    pub fn measure(&self, ready: &mut Ready) -> fusewire::Result<Measured> {
        let plan = self.plan(ready)?;
        let graph = self.checked(&self.all, ready)?;
        let replayed = self.replayed(ready, &graph)?;
        let Counts { windows, eager: count, warm_up, .. } = (self.counts)(ready.bytes);
        let Ready { stream, case, .. } = &mut *ready;
        let eager = match count {
            0 => Duration::ZERO,
            _ => timed_after(warm_up, self.world, stream, windows, count, || {
                (0..count).try_for_each(|_| self.all.launch(stream, case, None))
            })?,
        };
        // What the launches in a row left must be right too; sums have grown beyond what is worth computing.
        if ready.case.name != "add" {
            ready.check(1, "the last")?;
        }
        Ok(Measured { plan, replayed, eager })
    }
}

impl Ready {
    /// The same, launched otherwise.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.case.options.protocol = Some(protocol);
    }

    /// Fills the output. Peers store into a symmetric one once this rank has launched, hence after that.
    fn reset(&mut self) -> fusewire::Result<()> {
        self.case.output.copy_from(&self.stream, &self.first)
    }

    /// Compares all of the output with what `times` launches should have left.
    fn check(&mut self, times: usize, how: &str) -> fusewire::Result<()> {
        let got = self.case.output.read(&self.stream)?;
        let (shape, name) = (self.shape, &self.case.name);
        // Sums alone grow.
        let times = if name == "add" { times } else { 1 };
        let want =
            self.after.entry(times).or_insert_with(|| parallel(shape.len, |i| shape.want(name, i, times)));
        let same = got.iter().zip(want.iter()).all(|(a, b)| a.to_bits64() == b.to_bits64());
        assert!(same, "{how} {name} of {} bytes is wrong on rank {}", self.bytes, shape.rank);
        Ok(())
    }
}
