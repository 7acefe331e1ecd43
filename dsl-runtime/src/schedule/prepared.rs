//! What all launchers share: agreement, module loading, the checks before a launch, the launch.

use super::LaunchOptions;
use crate::kernel::{Arguments, Binder, Entry, HookSet, Image, Supports};
use crate::machine::Crew;
use crate::stream::Kind;
use crate::{Device, Error, Result, Stream, Transport};
use fusewire_device::ops::Ops;
use fusewire_device::pack::Pack;
use fusewire_device::schedule::{Grid, Params, Shape};
use fusewire_driver as cuda;
use fusewire_transports::host::{Link, Machine};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Threads of a block unless a launch says otherwise; kernels are compiled for at most as many.
pub(crate) const THREADS: u32 = 512;

/// How a launch is cut; `explain` of each launcher prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Elements of one peer's chunk.
    pub elements: usize,
    /// Wire bytes of one peer's chunk, without headers.
    pub wire_bytes: usize,
    /// Channels to each peer.
    pub channels: u32,
    /// Blocks in the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes that travel together on a channel.
    pub chunk: u64,
    /// Packs in flight per thread.
    pub unroll: u32,
    /// Blocks that the device holds at once, so that they can wait for each other.
    pub resident: u32,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} elements ({} wire bytes) to each peer over {} channels in chunks of {} bytes; {} blocks of {} threads (the device holds {}), \
             {} packs in flight",
            self.elements,
            self.wire_bytes,
            self.channels,
            self.chunk,
            self.blocks,
            self.threads,
            self.resident,
            self.unroll
        )
    }
}

/// A kernel that all ranks have agreed on, loaded on this rank.
pub(crate) struct Prepared<X: Transport> {
    pub(crate) ops: X::Ops,
    pub(crate) link: Arc<Link>,
    pub(crate) kernel: u64,
    name: &'static str,
    variants: Vec<Variant>,
}

struct Variant {
    entry: &'static Entry,
    function: Option<(cuda::Function, u32)>,
}

impl<X: Transport> Prepared<X> {
    /// Collective: compares what the ranks are about to run, then loads it.
    pub(crate) fn new<S: 'static, H: Supports<S, X>>(transport: &X, schedule: &'static str) -> Result<Self> {
        let link = transport.link();
        let number = link.next_kernel();
        let wire = <H::Wire as fusewire_device::element::Element>::NAME;
        let fields = [
            ("protocol version", fusewire_device::PROTOCOL.to_string()),
            ("transport", X::NAME.to_string()),
            ("schedule", schedule.to_string()),
            ("kernel", H::NAME.to_string()),
            ("element type", H::ELEMENT.to_string()),
            ("wire type", wire.to_string()),
            ("hooks' fingerprint", format!("{:016x}", H::FINGERPRINT)),
            ("kernels made before on this transport", number.to_string()),
        ];
        link.world().agree("kernel", &fields)?;
        let kernel = H::FINGERPRINT ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ fnv(schedule);
        let variants = H::ENTRIES
            .iter()
            .map(|entry| {
                let function = match link.machine() {
                    Machine::Host => None,
                    Machine::Cuda(context) => Some(load(context, entry)?),
                };
                Ok(Variant { entry, function })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Prepared { ops: transport.ops(), link: Arc::clone(link), kernel, name: H::NAME, variants })
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

    fn variant(&self, unroll: Option<u32>) -> Result<&Variant> {
        match unroll {
            None => {
                self.variants.first().ok_or_else(|| Error::misuse(format!("`{}` has no kernels", self.name)))
            }
            Some(u) => self.variants.iter().find(|v| v.entry.unroll == u).ok_or_else(|| {
                Error::misuse(format!(
                    "`{}` has no variant with {u} packs in flight: name it in `unroll(..)`",
                    self.name
                ))
            }),
        }
    }

    /// Cuts a chunk. `blocks(channels)` is the grid that so many channels need.
    pub(crate) fn plan<H: HookSet>(
        &self,
        elements: usize,
        options: &LaunchOptions,
        blocks: impl Fn(u32) -> u32,
    ) -> Result<Plan> {
        let variant = self.variant(options.unroll)?;
        let threads = if self.on_host() { 1 } else { options.threads.unwrap_or(THREADS) };
        if !self.on_host() && (threads == 0 || threads > THREADS || !threads.is_multiple_of(32)) {
            return Err(Error::misuse(format!(
                "{threads} threads in a block; a block has a multiple of 32 up to {THREADS}"
            )));
        }
        let resident = match &variant.function {
            None => u32::MAX,
            Some((_, full)) if threads == THREADS => *full,
            Some((function, _)) => function.max_resident_blocks(threads, 0)?,
        };
        if options.deadline.is_some_and(|d| d.is_zero()) {
            return Err(Error::misuse("a deadline of 0 s; a wait needs some time"));
        }
        let layout = self.link.layout();
        // All ranks' chunks, in elements and in wire bytes, are numbers that fit.
        let packs = elements.div_ceil(Pack::<H::Wire>::LANES);
        let fits = |n: usize| {
            n.checked_mul(16).and_then(|n| n.checked_mul(self.world())).is_some_and(|n| n < 1 << 62)
        };
        if !fits(elements) || !fits(packs) {
            return Err(Error::misuse(format!(
                "{elements} elements to each of {} ranks are too many",
                self.world()
            )));
        }
        let wire_bytes = packs * 16;
        let channels = match options.channels {
            Some(c) => c,
            None => {
                let mut channels =
                    if self.on_host() { 1 } else { channels_for(wire_bytes) }.min(layout.channels);
                while channels > 1 && blocks(channels) > resident {
                    channels -= 1;
                }
                channels
            }
        };
        let chunk = options.chunk.map_or(layout.window / 4, |c| c as u64);
        self.link.check_transfer(channels, chunk)?;
        let grid = blocks(channels);
        if grid > resident {
            return Err(Error::misuse(format!(
                "{grid} blocks of {threads} threads wait for each other, but the device holds only {resident} at once: use fewer channels or threads"
            )));
        }
        let unroll = variant.entry.unroll;
        Ok(Plan { elements, wire_bytes, channels, blocks: grid, threads, chunk, unroll, resident })
    }

    /// The geometry of a plan, without peers.
    pub(crate) fn shape(&self, plan: &Plan, options: &LaunchOptions) -> Result<Shape> {
        let (rows, cols) = match options.shape {
            None => (1, plan.elements),
            Some((r, c)) if r.checked_mul(c) == Some(plan.elements) => (r, c),
            Some((r, c)) => {
                return Err(Error::misuse(format!(
                    "a shape of {r} x {c} for chunks of {} elements: it must hold just as many",
                    plan.elements
                )));
            }
        };
        Ok(Shape {
            elements: plan.elements as u64,
            rows: rows as u64,
            cols: cols as u64,
            chunk: plan.chunk,
            kernel: self.kernel,
            channels: plan.channels,
            diagonal: 0,
            send_peer: fusewire_device::schedule::NOBODY,
            recv_peer: fusewire_device::schedule::NOBODY,
        })
    }

    /// Launches with checked geometry.
    pub(crate) fn launch<A: Arguments>(
        &self,
        stream: &Stream,
        args: &A,
        plan: &Plan,
        shape: Shape,
        options: &LaunchOptions,
    ) -> Result<()> {
        let device = self.device();
        device.check_same(&stream.device().0, "the stream")?;
        let mut binder = Binder::new(device);
        let raw = args.bind(&mut binder)?;
        binder.use_on(stream)?;
        stream.touch(&self.link)?;
        let mut params = Params { ops: self.ops, control: self.link.control(options.deadline), shape, raw };
        let variant = self.variant(options.unroll)?;
        match (&stream.0.kind, &variant.function, variant.entry.host) {
            (Kind::Cuda(s), Some((function, _)), _) => {
                stream.captured(|c| c.modules.push(function.clone()));
                let config = cuda::LaunchConfig::new(plan.blocks, plan.threads);
                let at: *mut _ = &raw mut params;
                // SAFETY: the entry was compiled for these very parameter types; every buffer in them was checked and lives until
                // the stream is idle; the blocks are resident together.
                unsafe { cuda::launch_raw(function, &config, s, &mut [at.cast()])? };
            }
            (Kind::Host(_), _, Some(entry)) => {
                let (blocks, memory, link, ops) =
                    (plan.blocks, binder.memory(), Arc::clone(&self.link), self.ops);
                stream.push(Arc::new(move |crew: &mut Crew| {
                    let _held = (&memory, &link);
                    let at = Address((&raw const params).cast());
                    // SAFETY: parameters of the entry's own types, made by this checked launch; buffers are held by this operation.
                    let block = |block| unsafe { entry(Grid { block, blocks }, at.get()) };
                    crew.run(blocks, &block, &|code| tell_peers(&ops, code));
                }));
            }
            _ => return Err(Error::misuse(format!("`{}` was not compiled for this device", self.name))),
        }
        Ok(())
    }
}

/// Channels to each peer that a GPU uses for so many wire bytes, residency aside. From sweeps on 2 and 4 H200s (docs/performance.md).
fn channels_for(wire_bytes: usize) -> u32 {
    let most = if wire_bytes >= 64 << 20 { 24 } else { 32 };
    wire_bytes.div_ceil(8 << 10).clamp(1, most) as u32
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

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

type Modules = HashMap<(usize, *const u8), cuda::Module>;

/// Loads the newest image that the GPU runs; each image once per GPU.
fn load(context: &cuda::Context, entry: &Entry) -> Result<(cuda::Function, u32)> {
    struct Cache(Modules);
    // SAFETY: the pointers are keys, never followed.
    unsafe impl Send for Cache {}
    static MODULES: Mutex<Option<Cache>> = Mutex::new(None);
    let (major, minor) = context.device().compute_capability();
    let number = |i: &Image| i.arch.trim_start_matches("sm_").parse::<u32>().unwrap_or(u32::MAX);
    let image = entry
        .images
        .iter()
        .filter(|i| number(i) <= major * 10 + minor)
        .max_by_key(|i| number(i))
        .ok_or_else(|| {
            let have: Vec<&str> = entry.images.iter().map(|i| i.arch).collect();
            Error::misuse(format!(
                "`{}` has no PTX for {} (sm_{major}{minor}); it has [{}]. Name an older one in `archs(..)`{}",
                entry.symbol,
                context.device(),
                have.join(", "),
                if have.is_empty() { ", and build without FUSEWIRE_CHECK_ONLY" } else { "" }
            ))
        })?;
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = &mut modules.get_or_insert_with(|| Cache(HashMap::new())).0;
    let key = (context.device().ordinal(), image.text.as_ptr());
    let module = match cache.get(&key) {
        Some(module) => module.clone(),
        None => {
            let module = cuda::Module::load_ptx(context, image.text, &cuda::JitOptions::default())?;
            cache.insert(key, module.clone());
            module
        }
    };
    let function = module.function(entry.symbol)?;
    let resident = function.max_resident_blocks(THREADS, 0)?;
    Ok((function, resident))
}
