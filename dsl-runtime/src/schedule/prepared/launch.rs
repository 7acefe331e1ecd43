//! The checks before a launch, and the launch.

use super::parameters::{Kept, Parameters};
use super::{Agreed, Prepared};
use crate::kernel::{Arguments, Binder, HostEntry, Place};
use crate::machine::{Crew, Op, Running};
use crate::residency::{self, Footprint};
use crate::schedule::copy::Chunk;
use crate::schedule::default::READ_PAST;
use crate::schedule::plan::Plan;
use crate::schedule::{LaunchOptions, Protocol};
use crate::stream::Kind;
use crate::{Error, Result, Stream, Transport};
use fusewire_device::launch::{BEHIND, EVICT_NORMAL, Grid, PREFETCH, Params, Shape, UNALIGNED, digest};
use fusewire_device::protocol::simple::channel;
use fusewire_driver as cuda;
use fusewire_transports::host::{Collective, Cut, OWN_SCHEDULE};
use std::sync::Arc;

/// What is launched, beside its arguments and the schedule.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c> {
    pub(crate) plan: &'c Plan,
    pub(crate) shape: Shape,
    pub(crate) options: &'c LaunchOptions,
    /// The schedule's, as peers that wait for it are told.
    pub(crate) name: &'static str,
    /// Of rooted schedules.
    pub(crate) root: Option<u32>,
    /// Every rank launches it, in the same order.
    pub(crate) collective: bool,
}

/// A launch that was noted.
pub(crate) struct Noted {
    /// What was compared with other ranks' launches.
    compared: Option<Collective>,
    /// Whether it is to be queued: [`note`](fusewire_transports::host::Link::note).
    goes: bool,
}

/// Input and output of a launch, as far as it has them.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) input: Option<Place<'a>>,
    pub(crate) output: Option<Place<'a>>,
}

impl<'a> Places<'a> {
    pub(crate) fn of(args: &'a impl Arguments) -> Self {
        Places { input: args.input(), output: args.output() }
    }

    /// How far input or output begin past a multiple of 16 bytes, if one does.
    pub(crate) fn unaligned(&self) -> Option<u64> {
        let places = [self.input, self.output].into_iter().flatten();
        places.map(|place| place.address % 16).find(|off| *off > 0)
    }

    /// Address of the input that is copied from.
    pub(crate) fn source(&self) -> Result<u64> {
        match self.input {
            Some(input) => Ok(input.address),
            None => Err(Error::misuse("copies are from `input`, which these arguments lack")),
        }
    }
}

/// As messages about launches say how bytes travel, by the protocol's number.
pub(crate) fn told_protocol(number: u8) -> &'static str {
    Protocol::of_number(number).map_or("", Protocol::how)
}

impl Agreed {
    /// The geometry of a plan, without peers, and of a schedule with `root`, if it has one.
    pub(crate) fn shape(&self, plan: &Plan, options: &LaunchOptions, root: Option<u32>) -> Result<Shape> {
        let why = match (self.facts.transposed, self.facts.asks_shape) {
            (true, _) => Some("is of `layout(transposed)`"),
            (false, true) => Some("reads what it sends transposed"),
            (false, false) => None,
        };
        let (rows, cols) = match (options.shape, why) {
            (None, Some(why)) => {
                return Err(Error::misuse(format!(
                    "`{}` {why}, so each launch says the shape of a chunk as it arrives: `LaunchOptions::default().shape(rows, cols)`",
                    self.facts.name
                )));
            }
            (None, None) => (1, plan.elements),
            (Some((r, _)), _) if self.facts.transposed && u32::try_from(r).is_err() => {
                return Err(Error::misuse(format!(
                    "{r} rows of a chunk, but `{}` is of `layout(transposed)`, which takes fewer than 2^32: let its rows be columns",
                    self.facts.name
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
        // By domains a stream may have several chunks, a piece of each in turn.
        let pieces = matches!(plan.protocol, Protocol::Bulk | Protocol::Hierarchical);
        let copy = if pieces { plan.chunk } else { 0 };
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
            self_copy: plan.self_copy,
            flags: 0,
            allocation: 0,
            cut: 0,
        };
        Ok(shape.name_cut(plan.protocol as u64, copy, root))
    }

    /// Whether peers may store `chunks` chunks of `elements` into the output of a launch.
    pub(crate) fn symmetric(&self, output: Option<Place<'_>>, elements: usize, chunks: usize) -> bool {
        output.is_some_and(|o| {
            let ours = o.symmetric.is_some_and(|s| s.link() == self.link.id());
            ours && elements.checked_mul(chunks).is_some_and(|n| n <= o.len)
        })
    }

    /// Tells a shape where the symmetric output of a launch is, and the input that is copied there.
    pub(crate) fn aim(&self, plan: &Plan, shape: &mut Shape, places: Places<'_>) -> Result<()> {
        let output = places.output.filter(|_| plan.protocol.stores());
        if let Some((place, memory)) = output.and_then(|o| Some((o, o.symmetric?))) {
            shape.outputs = memory.table();
            shape.output_offset = place.address - memory.own();
            shape.allocation = memory.number();
        }
        if plan.protocol == Protocol::Bulk {
            shape.input = places.source()?;
        }
        Ok(())
    }

    /// Notes a launch, or one that sends nothing since there are no elements, for peers that wait for it. Graphs note their replays: a capture keeps
    /// what those are to be compared by. Gives what was compared.
    pub(crate) fn note(&self, stream: &Stream, call: &Call<'_>) -> Result<Noted> {
        let Call { plan, shape, name, root, .. } = call;
        // Of two kernels around the copy engine's work the first.
        if shape.flags & BEHIND != 0 {
            return Ok(Noted { compared: None, goes: true });
        }
        let custom = *name == "custom";
        let by = if custom || plan.elements == 0 { "" } else { plan.protocol.how() };
        let rooted = root.map(|root| format!("{name} of root {root}"));
        let how = [if custom { OWN_SCHEDULE } else { rooted.as_deref().unwrap_or(name) }, by];
        let parts = match plan.protocol {
            _ if custom => plan.blocks,
            Protocol::Copy => 0,
            _ if plan.elements == 0 => 0,
            _ => plan.channels,
        };
        let cols = if self.facts.transposed && !custom { shape.cols } else { 0 };
        let cut = Cut { parts: parts.into(), cols, first: shape.first };
        // One of no elements queues nothing: whether a rank leaves it out makes no difference.
        let collective = (call.collective && plan.elements > 0).then(|| self.collective(call, cut));
        if stream.is_capturing() {
            if let Some(launch) = &collective {
                stream.records(&self.link, launch);
            }
            return Ok(Noted { compared: None, goes: true });
        }
        if collective.is_some() && stream.is_recorded_unseen()? {
            self.link.has_unseen();
        }
        let elements = (!custom).then_some(plan.elements as u64);
        let goes = self.link.note(self.facts.name, how, elements, cut, collective.as_ref(), told_protocol)?;
        Ok(Noted { compared: collective, goes })
    }

    /// A launch as ranks of one host compare it: by what its headers name as well. Hence threads and blocks count by what they make of the cut alone, and a deadline
    /// does not.
    fn collective(&self, call: &Call<'_>, cut: Cut) -> Collective {
        let Call { plan, shape, root, .. } = call;
        let digest = digest([shape.kernel, shape.cut, shape.elements]);
        let protocol = plan.protocol as u8;
        Collective {
            digest,
            launches: 1,
            kernel: self.number,
            elements: shape.elements,
            root: *root,
            protocol,
            cut,
        }
    }

    /// Refuses buffers too short for what goes through no hook, which would see where they end: so many chunks sent, and received.
    pub(crate) fn holds(&self, places: Places<'_>, elements: usize, chunks: [usize; 2]) -> Result<()> {
        let place = |as_is: bool, place| if as_is { place } else { None };
        let input = place(self.facts.sends_as_is, places.input);
        let output = place(self.facts.keeps_as_is, places.output);
        for (name, place, chunks) in [("input", input, chunks[0]), ("output", output, chunks[1])] {
            if let Some(Place { len, .. }) = place.filter(|place| place.len < chunks * elements) {
                return Err(Error::misuse(format!(
                    "`{}`: `{name}` has {len} elements, but this launch takes {chunks} chunks of {elements}, {} in all: give it as many, or say \
                     fewer in `LaunchOptions::elements`",
                    self.facts.name,
                    chunks * elements
                )));
            }
        }
        Ok(())
    }

    /// Launches with checked geometry: one kernel, or two around the `copies` of the copy engine.
    fn start(
        &self,
        stream: &Stream,
        binder: Binder,
        places: Places<'_>,
        call: &Call<'_>,
        mut params: Parameters<'_>,
        copies: &dyn Fn() -> Vec<Chunk>,
    ) -> Result<()> {
        let call = &self.told(&binder, call)?;
        let binder = &Arc::new(binder);
        // For all of it: other streams are not to come between.
        let _claims = binder.claim(stream)?;
        let _turns = stream.touch_all(&self.links)?;
        let mut queue = |call: &Call<'_>| self.queue(stream, binder, call, &mut params);
        match call.plan.protocol {
            Protocol::Copy => self.copied(stream, places, call, &copies(), &mut queue),
            _ => queue(call).map(drop),
        }
    }

    /// The call, whose kernel is told where buffers are not aligned, and how the L2 cache is best used. Rows are loaded and stored 16 bytes at a time.
    fn told<'c>(&self, binder: &Binder, call: &Call<'c>) -> Result<Call<'c>> {
        let mut flags = call.shape.flags;
        if call.plan.protocol == Protocol::Local {
            let (read, most) = binder.read_bytes();
            let keep = if READ_PAST.contains(&most) { 0 } else { EVICT_NORMAL };
            // What the cache holds is there without being asked for. With a second input, as which the output counts in place, it has enough to do.
            let one = most >= READ_PAST.start && 4 * (read - most) < read && !self.facts.in_place;
            let prefetch = if one { PREFETCH } else { 0 };
            flags |= keep | prefetch;
        }
        if let Some((name, off)) = binder.unaligned
            && self.facts.cols > 0
        {
            return Err(Error::misuse(format!(
                "buffer `{name}` begins {off} bytes past a multiple of 16, and `{}` works by rows: begin it at a multiple of 16 bytes",
                self.facts.name
            )));
        }
        if binder.unaligned.is_some() {
            flags |= UNALIGNED;
        }
        Ok(Call { shape: Shape { flags, ..call.shape }, ..*call })
    }

    /// Queues a kernel whose buffers are claimed; `false` if it was not to be queued.
    fn queue(
        &self,
        stream: &Stream,
        binder: &Arc<Binder>,
        call: &Call<'_>,
        params: &mut Parameters<'_>,
    ) -> Result<bool> {
        params.reshape(call.shape);
        let plan = call.plan;
        let variant = self.variant(plan.protocol, Some(plan.unroll))?;
        match (&stream.0.kind, &variant.code, variant.entry.host) {
            (Kind::Cuda(s), Some(code), _) => {
                let full = code.full.as_ref().filter(|_| plan.full);
                let function = full.map_or(&code.function, |full| &full.function);
                // Copies stand before and behind the copy engine's kernels.
                let may_follow = self.follows && plan.protocol != Protocol::Copy;
                let block = Footprint::of(function, plan.threads, plan.shared());
                // More are there only if they do not wait for each other.
                let grid = residency::Grid { block, blocks: plan.blocks.min(plan.resident) };
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
                    let launch = ledger.admit(stream.queue(), grid, may_follow)?;
                    follows = admitted.insert(launch).follows;
                }
                let config = cuda::LaunchConfig::new(plan.blocks, plan.threads);
                let config = config.programmatic_serialization(follows).dynamic_shared(plan.shared());
                // SAFETY: the entry was compiled for these very parameter types; every buffer in them was checked and lives until
                // the stream is idle; the blocks are resident together.
                let mut launch =
                    || unsafe { cuda::launch_raw(function, &config, s, &mut [params.address()]) };
                match stream.is_capturing() {
                    true => {
                        launch()?;
                        self.note(stream, call)?;
                    }
                    false => {
                        // Behind what can refuse it on this rank alone.
                        let Noted { compared, goes: true } = self.note(stream, call)? else {
                            return Ok(false);
                        };
                        let queued = stream.queue().pending.launch(s, 1, launch);
                        queued.inspect_err(|_| {
                            compared.iter().for_each(|launch| self.link.take_back(launch))
                        })?;
                    }
                }
            }
            (Kind::Host(_), _, Some(entry)) => {
                if !self.note(stream, call)?.goes {
                    return Ok(false);
                }
                stream.push(self.on_threads(entry, Arc::clone(binder), plan.blocks, params.kept()))
            }
            _ => {
                return Err(Error::misuse(format!("`{}` was not compiled for this device", self.facts.name)));
            }
        }
        Ok(true)
    }

    /// A kernel of so many blocks as what a CPU thread does.
    fn on_threads(&self, entry: HostEntry, held: Arc<Binder>, blocks: u32, params: Kept) -> Op {
        let running = Running { kernel: self.facts.name, file: self.facts.file, rank: self.rank() };
        Arc::new(move |crew: &mut Crew| {
            let _held = &held;
            // SAFETY: parameters of the entry's own types, made by a checked launch; buffers are held by this operation.
            let block = |block| unsafe { entry(Grid { block, blocks }, params.address()) };
            crew.run(blocks, running, &block, &|code| params.tell_peers(code));
        })
    }
}

impl<X: Transport> Prepared<X> {
    /// Launches with checked geometry. `copies` are the copy engine's, if the plan's protocol is [`Protocol::Copy`].
    pub(crate) fn launch<A: Arguments, S: Copy + Send + Sync + 'static>(
        &self,
        stream: &Stream,
        args: &A,
        call: &Call<'_>,
        schedule: S,
        copies: &dyn Fn() -> Vec<Chunk>,
    ) -> Result<()> {
        let device = self.device();
        device.check_stream(stream)?;
        let mut binder = Binder::new(device, &self.link);
        let raw = args.bind(&mut binder)?;
        let control = self.link.control(call.options.deadline);
        let mut params = Params { ops: self.ops, control, shape: call.shape, raw, schedule };
        self.start(stream, binder, Places::of(args), call, Parameters::of(&mut params), copies)
    }
}
