//! What all launchers share: agreement, module loading, the checks before a launch, the launch.

use super::copy::Aside;
use super::plan::{HOST_BLOCKS, Plan, most_threads};
use super::{LaunchOptions, Protocol};
use crate::kernel::{Arguments, Binder, Entry, HookSet, Image, Place, Supports};
use crate::machine::{Crew, Running};
use crate::order::Used;
use crate::residency::{self, Footprint, Ledger};
use crate::stream::{Kind, Queue};
use crate::tune::{Key, Layout, Table, Tuned, bucket};
use crate::{Device, Error, Result, Stream, Transport};
use fusewire_device::launch::{Grid, Params, Shape};
use fusewire_device::ops::Ops;
use fusewire_device::protocol::direct::bulk;
use fusewire_device::protocol::simple::channel;
use fusewire_driver as cuda;
use fusewire_transports::host::{Cut, Link, Machine, OWN_SCHEDULE};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A kernel that all ranks have agreed on, loaded on this rank.
pub(crate) struct Prepared<X: Transport> {
    pub(crate) ops: X::Ops,
    pub(crate) link: Arc<Link>,
    /// All that kernels use, the link among them.
    pub(crate) links: Vec<Used>,
    pub(crate) kernel: u64,
    /// What the tuning table says of this kernel.
    pub(crate) tuned: Tuned,
    key: Key,
    name: &'static str,
    /// Where the hooks are written.
    file: &'static str,
    variants: Vec<Variant>,
    /// Threads of a block at most.
    threads: u32,
    /// Whether chunks are walked in tiles: `layout(transposed)`.
    shaped: bool,
    /// Why a launch needs the shape of its chunks, if it does.
    why_shape: Option<&'static str>,
    /// Whether launches may be set up while the kernel before them still runs.
    follows: bool,
    /// Multiprocessors of the smallest part, where ranks have parts of GPUs. The same on all ranks: plans depend on it.
    pub(crate) part: Option<u32>,
    /// What the GPU has room for, if there is one.
    ledger: Option<Arc<Ledger>>,
    /// For the copy engine; made when it is first used.
    pub(crate) aside: Mutex<Option<Arc<Aside>>>,
}

/// What is launched, beside its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c, S> {
    pub(crate) plan: &'c Plan,
    pub(crate) shape: Shape,
    pub(crate) options: &'c LaunchOptions,
    /// The schedule's, as peers that wait for it are told.
    pub(crate) name: &'static str,
    /// This rank's.
    pub(crate) schedule: S,
}

struct Variant {
    entry: &'static Entry,
    function: Option<cuda::Function>,
    /// Blocks that the device of each rank holds at once, the fewest of them, by the warps of a block from one on; empty on CPU threads.
    resident: Vec<u32>,
}

/// Threads of a warp.
const WARP: u32 = 32;

impl<X: Transport> Prepared<X> {
    /// Collective: compares what the ranks are about to run, then loads it.
    pub(crate) fn new<S: 'static, H: Supports<S, X>>(transport: &X, schedule: &'static str) -> Result<Self> {
        let link = transport.link();
        let number = link.next_kernel();
        let wire = <H::Wire as fusewire_device::element::Element>::NAME;
        let key = Key {
            world: link.world().size(),
            transport: X::NAME.into(),
            device: match link.machine() {
                Machine::Host => "host".into(),
                Machine::Cuda(context) => context.device().name().into(),
            },
            schedule: schedule.into(),
            variant: H::NAME.into(),
            element: wire.into(),
            layout: Layout::default(),
            bytes: 0,
        };
        let tuned = Tuned::of(&*Table::current()?, &key, H::COPIES);
        let fields = [
            ("protocol version", fusewire_device::PROTOCOL.to_string()),
            ("transport", X::NAME.to_string()),
            ("schedule", schedule.to_string()),
            ("kernel", H::NAME.to_string()),
            ("element type", H::ELEMENT.to_string()),
            ("wire type", wire.to_string()),
            ("hooks' fingerprint", format!("{:016x}", H::FINGERPRINT)),
            ("kernels made before on this transport", number.to_string()),
            ("tuned configurations", tuned.digest()),
        ];
        link.world().agree("kernel", &fields)?;
        let kernel = H::FINGERPRINT ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ fnv(schedule);
        let entries = runnable(link, H::ENTRIES)?;
        let (functions, follows, ledger) = match link.machine() {
            Machine::Host => (entries.iter().map(|_| None).collect::<Vec<_>>(), false, None),
            Machine::Cuda(context) => {
                // All ranks are here, so that no kernel that runs needs a launch that is to come: loading waits for those that run.
                let functions = load(context, &entries)?.into_iter().map(Some).collect();
                (functions, follows(context), Some(Ledger::of(context)?))
            }
        };
        let variants = entries.into_iter().zip(functions);
        let variants = variants.map(|(entry, function)| Variant { entry, function, resident: Vec::new() });
        let mut variants: Vec<Variant> = variants.collect();
        let part = agree_residency(link, ledger.as_deref(), &mut variants, most_threads::<H>())?;
        Ok(Prepared {
            // SAFETY: the link is kept beside it, and with each launch; schedules stay within what there is.
            ops: unsafe { transport.ops() },
            link: Arc::clone(link),
            links: Used::by(link),
            kernel,
            tuned,
            key,
            name: H::NAME,
            file: H::FILE,
            variants,
            threads: most_threads::<H>(),
            shaped: H::TRANSPOSED,
            why_shape: match (H::TRANSPOSED, H::ASKS_SHAPE) {
                (true, _) => Some("is of `layout(transposed)`"),
                (false, true) => Some("reads what it sends transposed"),
                (false, false) => None,
            },
            follows,
            part,
            ledger,
            aside: Mutex::default(),
        })
    }

    /// The same with another table. Collective: ranks compare theirs.
    pub(crate) fn with_table<H: HookSet>(self, table: &Table) -> Result<Self> {
        let tuned = Tuned::of(table, &self.key, H::COPIES);
        self.link.world().agree("tuning table", &[("tuned configurations", tuned.digest())])?;
        Ok(Prepared { tuned, ..self })
    }

    /// The same with other code for the kernels whose symbols `text` has. Collective: ranks compare how many blocks fit.
    ///
    /// # Safety
    /// Those entries do what the kernels do, with the same parameters.
    pub(crate) unsafe fn with_ptx(mut self, text: &str) -> Result<Self> {
        let Machine::Cuda(context) = self.link.machine() else {
            return Err(Error::misuse("PTX for CPU threads; other code is for kernels on GPUs"));
        };
        let module = cuda::Module::load_ptx(context, text, &cuda::JitOptions::default())?;
        let mut found = false;
        for variant in &mut self.variants {
            if let Ok(function) = module.function(variant.entry.symbol) {
                (variant.function, found) = (Some(ready(function, variant.entry)?), true);
            }
        }
        if found {
            agree_residency(&self.link, self.ledger.as_deref(), &mut self.variants, self.threads)?;
            return Ok(self);
        }
        let symbols: Vec<&str> = self.variants.iter().map(|v| v.entry.symbol).collect();
        Err(Error::misuse(format!("PTX without an entry for any of [{}]", symbols.join(", "))))
    }

    /// The key of launches with that many wire bytes.
    pub(crate) fn key(&self, wire_bytes: usize, layout: Layout) -> Key {
        Key { layout, bytes: bucket(wire_bytes), ..self.key.clone() }
    }

    pub(crate) fn world(&self) -> usize {
        self.link.world().size()
    }

    pub(crate) fn rank(&self) -> usize {
        self.link.world().rank()
    }

    pub(crate) fn device(&self) -> Device {
        Device(self.link.machine().clone())
    }

    pub(crate) fn on_host(&self) -> bool {
        matches!(self.link.machine(), Machine::Host)
    }

    fn variant(&self, protocol: Protocol, unroll: Option<u32>) -> Result<&Variant> {
        let fits = |v: &&Variant| v.entry.protocol == protocol && unroll.is_none_or(|u| v.entry.unroll == u);
        self.variants.iter().find(fits).ok_or_else(|| match unroll {
            Some(u) => Error::misuse(format!(
                "`{}` has no {protocol:?} variant with {u} packs in flight: name it in `unroll(..)`",
                self.name
            )),
            None => {
                let why = match protocol {
                    Protocol::Staged => "every transport stages all-to-alls and sends",
                    Protocol::Lines => "lines need peers' memory that kernels store to",
                    Protocol::Direct => {
                        "stores into peers' outputs need their memory mapped, and hooks without `consume`"
                    }
                    Protocol::Bulk => {
                        "bulk copies need peers' memory mapped, neither `produce` nor `consume`, and GPUs of compute capability 9.0 with 128 KiB of shared memory for a block"
                    }
                    Protocol::Copy => {
                        "the copy engine needs peers' memory mapped, and neither `produce` nor `consume`"
                    }
                };
                Error::misuse(format!(
                    "`{}` has no {protocol:?} kernel for this schedule and transport: {why}",
                    self.name
                ))
            }
        })
    }

    pub(crate) fn has(&self, protocol: Protocol) -> bool {
        self.variants.iter().any(|v| v.entry.protocol == protocol)
    }

    /// The protocols that this kernel can run.
    pub(crate) fn protocols(&self) -> BTreeSet<Protocol> {
        self.variants.iter().map(|v| v.entry.protocol).collect()
    }

    /// The packs in flight of a protocol's variants.
    pub(crate) fn unrolls(&self, protocol: Protocol) -> Vec<u32> {
        self.variants.iter().filter(|v| v.entry.protocol == protocol).map(|v| v.entry.unroll).collect()
    }

    pub(crate) fn unroll(&self, protocol: Protocol, unroll: Option<u32>) -> Result<u32> {
        Ok(self.variant(protocol, unroll)?.entry.unroll)
    }

    /// Blocks of `threads` that every rank's device holds at once: plans depend on it, and all ranks must make the same.
    pub(crate) fn resident(&self, protocol: Protocol, unroll: Option<u32>, threads: u32) -> Result<u32> {
        let variant = self.variant(protocol, unroll)?;
        Ok(variant.resident.get((threads / WARP).saturating_sub(1) as usize).copied().unwrap_or(HOST_BLOCKS))
    }

    /// The geometry of a plan, without peers.
    pub(crate) fn shape(&self, plan: &Plan, options: &LaunchOptions) -> Result<Shape> {
        let (rows, cols) = match (options.shape, self.why_shape) {
            (None, Some(why)) => {
                return Err(Error::misuse(format!(
                    "`{}` {why}, so each launch says the shape of a chunk as it arrives: `LaunchOptions::default().shape(rows, cols)`",
                    self.name
                )));
            }
            (None, None) => (1, plan.elements),
            (Some((r, _)), _) if self.shaped && u32::try_from(r).is_err() => {
                return Err(Error::misuse(format!(
                    "{r} rows of a chunk, but `{}` is of `layout(transposed)`, which takes fewer than 2^32: let its rows be columns",
                    self.name
                )));
            }
            (Some((r, c)), _) if r.checked_mul(c) == Some(plan.elements) => (r, c),
            (Some((r, c)), _) => {
                return Err(Error::misuse(format!(
                    "a shape of {r} x {c} for chunks of {} elements: it must hold just as many",
                    plan.elements
                )));
            }
        };
        let (share, own_share) = plan.shares();
        let copy = if plan.protocol == Protocol::Bulk { plan.chunk } else { 0 };
        let shape = Shape {
            elements: plan.elements as u64,
            rows: rows as u64,
            cols: cols as u64,
            chunk: plan.chunk,
            kernel: channel::Call::ended(self.kernel, plan.rest),
            share,
            own_share,
            first: plan.first,
            outputs: 0,
            output_offset: 0,
            input: 0,
            tiles: u64::from(plan.tiles),
            channels: plan.channels,
            diagonal: plan.diagonal,
            phase: 0,
            allocation: 0,
            cut: 0,
        };
        Ok(shape.name_cut(plan.protocol as u64, copy))
    }

    /// Whether peers may store `chunks` chunks of `elements` into the output of a launch.
    pub(crate) fn symmetric(&self, output: Option<Place<'_>>, elements: usize, chunks: usize) -> bool {
        output.is_some_and(|o| {
            let ours = o.symmetric.is_some_and(|s| s.link() == self.link.id());
            ours && elements.checked_mul(chunks).is_some_and(|n| n <= o.len)
        })
    }

    /// Tells a shape where the symmetric output of a launch is, and the input that is copied there.
    pub(crate) fn aim(&self, plan: &Plan, shape: &mut Shape, args: &impl Arguments) -> Result<()> {
        let output = args.output().filter(|_| plan.protocol.stores());
        if let Some((place, memory)) = output.and_then(|o| Some((o, o.symmetric?))) {
            shape.outputs = memory.table();
            shape.output_offset = place.address - memory.own();
            shape.allocation = memory.number();
        }
        if plan.protocol == Protocol::Bulk {
            shape.input = input(args)?;
        }
        Ok(())
    }

    /// Notes a launch, or one that sends nothing since there are no elements, for peers that wait for it. Graphs note their replays.
    pub(crate) fn note<S>(&self, stream: &Stream, call: &Call<'_, S>) {
        let Call { plan, shape, name, .. } = call;
        // Of two kernels around the copy engine's work the first.
        if stream.is_capturing() || shape.phase > 0 {
            return;
        }
        let custom = *name == "custom";
        let by = match plan.protocol {
            _ if custom || plan.elements == 0 => "",
            Protocol::Staged => "by staging",
            Protocol::Lines => "in lines",
            Protocol::Direct => "straight into outputs",
            Protocol::Bulk => "by bulk copies",
            Protocol::Copy => "by the copy engine",
        };
        let how = [if custom { OWN_SCHEDULE } else { name }, by];
        let parts = match plan.protocol {
            _ if custom => plan.blocks,
            Protocol::Copy => 0,
            _ if plan.elements == 0 => 0,
            _ => plan.channels,
        };
        let cols = if self.shaped && !custom { shape.cols } else { 0 };
        let cut = Cut { parts: parts.into(), cols, first: shape.first };
        self.link.note(self.name, how, (!custom).then_some(plan.elements as u64), cut);
    }

    /// Launches with checked geometry.
    pub(crate) fn launch<A: Arguments, S: Copy + Send + Sync + 'static>(
        &self,
        stream: &Stream,
        args: &A,
        call: &Call<'_, S>,
    ) -> Result<()> {
        let (binder, raw) = self.bind(stream, args)?;
        let _claims = binder.claim(stream)?;
        let _turns = stream.touch_all(&self.links)?;
        self.queue(stream, &binder, raw, call)
    }

    /// Checks the arguments of a launch.
    pub(crate) fn bind<A: Arguments>(&self, stream: &Stream, args: &A) -> Result<(Arc<Binder>, A::Raw)> {
        let device = self.device();
        device.check_stream(stream)?;
        let mut binder = Binder::new(device, &self.link);
        let raw = args.bind(&mut binder)?;
        Ok((Arc::new(binder), raw))
    }

    /// Queues a kernel whose buffers are claimed.
    pub(crate) fn queue<R: Copy + Send + Sync + 'static, S: Copy + Send + Sync + 'static>(
        &self,
        stream: &Stream,
        binder: &Arc<Binder>,
        raw: R,
        call: &Call<'_, S>,
    ) -> Result<()> {
        self.note(stream, call);
        let Call { plan, shape, options, schedule, .. } = *call;
        let control = self.link.control(options.deadline);
        let mut params = Params { ops: self.ops, control, shape, raw, schedule };
        let variant = self.variant(plan.protocol, Some(plan.unroll))?;
        match (&stream.0.kind, &variant.function, variant.entry.host) {
            (Kind::Cuda(s), Some(function), _) => {
                // Copies stand before and behind the copy engine's kernels.
                let may_follow = self.follows && plan.protocol != Protocol::Copy;
                let block = Footprint::of(function, plan.threads, plan.shared());
                let grid = residency::Grid { block, blocks: plan.blocks };
                let ledger = self.ledger.as_deref().expect("a GPU has a ledger");
                let (mut follows, mut admitted) = (false, None);
                if stream.is_capturing() {
                    stream.captured(|c| {
                        c.modules.push(function.clone());
                        follows = c.demand.captured(ledger, grid, may_follow);
                    });
                } else {
                    // What was queued last may be the wait for another stream.
                    let may_follow = !stream.queue().take_behind() && may_follow;
                    let launch = ledger.admit(stream.queue(), grid, may_follow, Queue::is_idle)?;
                    follows = admitted.insert(launch).follows;
                }
                let config = cuda::LaunchConfig::new(plan.blocks, plan.threads);
                let config = config.programmatic_serialization(follows).dynamic_shared(plan.shared());
                let at: *mut _ = &raw mut params;
                // SAFETY: the entry was compiled for these very parameter types; every buffer in them was checked and lives until
                // the stream is idle; the blocks are resident together.
                let launch = || unsafe { cuda::launch_raw(function, &config, s, &mut [at.cast()]) };
                match stream.is_capturing() {
                    true => launch()?,
                    false => stream.queue().pending.launch(s, 1, launch)?,
                }
            }
            (Kind::Host(_), _, Some(entry)) => {
                let (blocks, held, ops) = (plan.blocks, Arc::clone(binder), self.ops);
                let running = Running { kernel: self.name, file: self.file, rank: self.rank() };
                stream.push(Arc::new(move |crew: &mut Crew| {
                    let _held = &held;
                    let at = Address((&raw const params).cast());
                    // SAFETY: parameters of the entry's own types, made by this checked launch; buffers are held by this operation.
                    let block = |block| unsafe { entry(Grid { block, blocks }, at.get()) };
                    crew.run(blocks, running, &block, &|code| tell_peers(&ops, code));
                }));
            }
            _ => return Err(Error::misuse(format!("`{}` was not compiled for this device", self.name))),
        }
        Ok(())
    }
}

/// The kernel, and the transport it is for.
impl<X: Transport> fmt::Display for Prepared<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on {:?}", self.name, self.link)
    }
}

/// A pointer that blocks' threads share; what it points to is plain data that nobody writes.
struct Address(*const u8);

impl Address {
    fn get(&self) -> *const u8 {
        self.0
    }
}

// SAFETY: see the type.
unsafe impl Sync for Address {}

fn tell_peers<O: Ops>(ops: &O, code: u64) {
    for peer in (0..ops.world()).filter(|p| *p != ops.rank()) {
        ops.raise_abort(peer, code);
    }
}

/// Refuses buffers too short for what goes through no hook, which would see where they end: so many chunks sent, and received.
pub(crate) fn holds<H: HookSet>(
    args: &H::Args<'_>,
    elements: usize,
    sent: usize,
    received: usize,
) -> Result<()> {
    let place = |as_is: bool, place| if as_is { place } else { None };
    let (input, output) = (place(H::SENDS_AS_IS, args.input()), place(H::KEEPS_AS_IS, args.output()));
    for (name, place, chunks) in [("input", input, sent), ("output", output, received)] {
        if let Some(Place { len, .. }) = place.filter(|place| place.len < chunks * elements) {
            return Err(Error::misuse(format!(
                "`{}`: `{name}` has {len} elements, but this launch takes {chunks} chunks of {elements}, {} in all: give it as many, or say \
                 fewer in `LaunchOptions::elements`",
                H::NAME,
                chunks * elements
            )));
        }
    }
    Ok(())
}

/// Address of the input that is copied from.
pub(crate) fn input(args: &impl Arguments) -> Result<u64> {
    match args.input() {
        Some(input) => Ok(input.address),
        None => Err(Error::misuse("copies are from `input`, which these arguments lack")),
    }
}

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// The entries that the GPUs of all ranks can run: bulk copies are of compute capability 9.0, and of blocks with much shared memory, which
/// some newer GPUs lack. Collective if there are such.
fn runnable(link: &Link, entries: &'static [Entry]) -> Result<Vec<&'static Entry>> {
    let is_bulk = |e: &&Entry| e.protocol == Protocol::Bulk;
    let has = match link.machine() {
        Machine::Host => true,
        Machine::Cuda(context) => {
            // Beside what the kernel has of its own.
            let needed = most_shared(Protocol::Bulk) + 1024;
            let device = context.device();
            device.compute_capability().0 >= 9 && device.max_shared_per_block_optin() >= needed
        }
    };
    let all =
        !entries.iter().any(|e| is_bulk(&e)) || link.world().all_gather_as(&has)?.into_iter().all(|has| has);
    Ok(entries.iter().filter(|e| all || !is_bulk(e)).collect())
}

/// Shared memory that a launch gives to each block at most.
fn most_shared(protocol: Protocol) -> u32 {
    if protocol == Protocol::Bulk { bulk::shared_bytes(bulk::MOST) } else { 0 }
}

/// A function that may have the shared memory it needs.
fn ready(function: cuda::Function, entry: &Entry) -> Result<cuda::Function> {
    // Else the first launch would wait for all kernels that run.
    function.context().reserve_stack(function.attributes().local_bytes as usize)?;
    let shared = most_shared(entry.protocol);
    if shared > 0 {
        function.set_max_dynamic_shared(shared)?;
    }
    Ok(function)
}

/// Finds out how many blocks every rank's device holds of each variant, with up to `most` threads. Collective where kernels run on GPUs.
/// Ranks that share a GPU have a part of it each, by multiprocessors or else by blocks: the fewest multiprocessors of a part, if there is one.
fn agree_residency(
    link: &Link,
    ledger: Option<&Ledger>,
    variants: &mut [Variant],
    most: u32,
) -> Result<Option<u32>> {
    let (Machine::Cuda(context), Some(ledger)) = (link.machine(), ledger) else { return Ok(None) };
    let (world, card) = (link.world(), (context.device().uuid(), std::process::id()));
    let cards: Vec<([u8; 16], u32)> = world.all_gather_as(&card)?;
    let here: Vec<u32> =
        cards.iter().filter(|(uuid, _)| *uuid == card.0).map(|(_, process)| *process).collect();
    let mut sharers = 1;
    if context.place().is_none() {
        ledger.shared_by(here.iter().collect::<BTreeSet<_>>().len() as u32);
        sharers = here.len() as u32;
    }
    let mut own = Vec::new();
    for Variant { entry, function, .. } in &*variants {
        for warps in 1..=most / WARP {
            let function = function.as_ref().expect("a variant of a GPU is loaded");
            let each = function.max_active_blocks_per_sm(warps * WARP, most_shared(entry.protocol))?;
            own.push(each * context.multiprocessors() / sharers);
        }
    }
    let part = context.place().map(|_| context.multiprocessors());
    let all: Vec<(Option<u32>, Vec<u32>)> = world.all_gather_as(&(part, own))?;
    let fewest = |at: usize| all.iter().filter_map(|(_, rank)| rank.get(at)).min().copied().unwrap_or(0);
    let each = (most / WARP) as usize;
    for (number, variant) in variants.iter_mut().enumerate() {
        variant.resident = (number * each..(number + 1) * each).map(fewest).collect();
    }
    Ok(all.iter().filter_map(|(part, _)| *part).min())
}

/// Modules by GPU, image and the first of the entries that were loaded from it.
type Modules = HashMap<(usize, *const u8, &'static str), cuda::Module>;

/// The newest image of an entry that the GPU runs.
fn image(context: &cuda::Context, entry: &Entry) -> Result<&'static Image> {
    let (major, minor) = context.device().compute_capability();
    let number = |i: &Image| i.arch.trim_start_matches("sm_").parse::<u32>().unwrap_or(u32::MAX);
    let fitting = entry.images.iter().filter(|i| number(i) <= major * 10 + minor);
    fitting.max_by_key(|i| number(i)).ok_or_else(|| {
        let have: Vec<&str> = entry.images.iter().map(|i| i.arch).collect();
        Error::misuse(format!(
            "`{}` has no PTX for {} (sm_{major}{minor}); it has [{}]. Name an older one in `archs(..)`{}",
            entry.symbol,
            context.device(),
            have.join(", "),
            if have.is_empty() { ", and build without FUSEWIRE_CHECK_ONLY" } else { "" }
        ))
    })
}

/// Whether kernels of this GPU may be set up while the one before them on their stream still runs (programmatic dependent launch: from
/// compute capability 9.0 on). `FUSEWIRE_FOLLOW=0` turns it off.
fn follows(context: &cuda::Context) -> bool {
    context.device().compute_capability().0 >= 9
        && std::env::var_os("FUSEWIRE_FOLLOW").is_none_or(|v| v != "0")
}

/// Loads the entries, once per GPU. An image has those of other transports and schedules too: the driver is given what these entries
/// need.
fn load(context: &cuda::Context, entries: &[&'static Entry]) -> Result<Vec<cuda::Function>> {
    struct Cache(Modules);
    // SAFETY: the pointers are keys, never followed.
    unsafe impl Send for Cache {}
    static MODULES: Mutex<Option<Cache>> = Mutex::new(None);
    let images = entries.iter().map(|e| image(context, e)).collect::<Result<Vec<_>>>()?;
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = &mut modules.get_or_insert_with(|| Cache(HashMap::new())).0;
    let function = |(entry, own): (&&'static Entry, &&'static Image)| {
        let of_image = entries.iter().zip(&images).filter(|(_, i)| i.text.as_ptr() == own.text.as_ptr());
        let symbols: Vec<&'static str> = of_image.map(|(e, _)| e.symbol).collect();
        let key = (context.device().ordinal(), own.text.as_ptr(), symbols[0]);
        let module = match cache.get(&key) {
            Some(module) => module.clone(),
            None => {
                let part = cuda::ptx::part(own.text, &symbols);
                let text = cuda::ptx::raised(&part, context.device().compute_capability().0);
                let module = cuda::Module::load_ptx(context, &text, &cuda::JitOptions::default())?;
                cache.insert(key, module.clone());
                module
            }
        };
        ready(module.function(entry.symbol)?, entry)
    };
    entries.iter().zip(&images).map(function).collect()
}
