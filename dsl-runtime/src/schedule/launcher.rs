//! One launcher for every schedule of legs.

use super::copy::Chunk;
use super::default::Pattern;
use super::prepared::{Agreed, Call, Places, Prepared};
use super::{LaunchOptions, Plan, Protocol};
use crate::kernel::{Arguments, HookSet, Supports};
use crate::tune::{Key, Layout, Space, Table};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::fold::MOST_RANKS;
use fusewire_device::launch::Shape;
use fusewire_device::schedule::{InPlace, Member, NOBODY, Schedule};
use std::fmt;
use std::marker::PhantomData;

/// Schedule `S` with hooks `H` on a transport, ready to launch. Shipped schedules have
/// methods of their own; any other is launched by [`Launcher::launch_as`].
pub struct Launcher<S, X: Transport, H> {
    pub(super) prepared: Prepared<X>,
    types: PhantomData<(S, H)>,
}

impl<S: Schedule, X: Transport, H> fmt::Debug for Launcher<S, X, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Launcher of {}, {}", *self.prepared, S::NAME)
    }
}

impl<S: Schedule, X: Transport, H: HookSet> Launcher<S, X, H> {
    #[doc(hidden)]
    pub fn new(transport: &X) -> Result<Self>
    where
        H: Supports<S, X>,
    {
        let prepared = Prepared::new::<S, H>(transport, S::NAME)?;
        let ranks = prepared.world();
        if S::FOLDS && !prepared.on_host() && ranks > MOST_RANKS as usize {
            return Err(Error::misuse(format!(
                "`{}` of {ranks} ranks: a GPU folds what at most {MOST_RANKS} ranks contribute; reduce within groups first",
                S::NAME
            )));
        }
        Ok(Self { prepared, types: PhantomData })
    }

    /// Queues one launch, in which this rank does what `schedule` says. Every rank launches it, with the same number of elements and the same
    /// options.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is launched: buffers that overlap or are on another device, a length that does not divide into
    /// the schedule's chunks, a peer that is this rank or no rank, more blocks than the device holds. Faults of the kernel itself come from [`Stream::synchronize`].
    pub fn launch_as(
        &self,
        stream: &Stream,
        schedule: S,
        args: H::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<()> {
        let me = self.member();
        another_ranks(&schedule, me)?;
        let (plan, shape) = self.cut(&schedule, &args, options)?;
        let [sends, receives] = [schedule.sends(me) > 0, schedule.receives(me) > 0];
        // A send alone is called so.
        let name = match (S::NAME, sends, receives) {
            ("sendrecv", true, false) => "send",
            ("sendrecv", false, true) => "recv",
            (name, ..) => name,
        };
        let call = Call { plan: &plan, shape, options, name, root: schedule.root() };
        if plan.elements == 0 || !(sends || receives || S::OWN) {
            self.prepared.note(stream, &call);
            return Ok(());
        }
        if plan.protocol == Protocol::Copy {
            let mut chunks = if H::IN_PLACE { copies(&InPlace(schedule), me) } else { copies(&schedule, me) };
            // In place it is there.
            chunks.retain(|chunk| !H::IN_PLACE || chunk.peer != me.rank as usize);
            return self.prepared.copy(stream, &args, &call, schedule, &chunks);
        }
        self.prepared.launch(stream, &args, &call, schedule)
    }

    /// The configuration of a launch with these arguments.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn explain_as(&self, schedule: &S, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
        another_ranks(schedule, self.member())?;
        Ok(self.cut(schedule, args, options)?.0)
    }

    /// The same launcher with a table of the caller's instead of [`Table::current`]. Collective.
    ///
    /// # Errors
    /// [`Error::Peer`] if the ranks' tables differ for this kernel.
    pub fn with_table(self, table: &Table) -> Result<Self> {
        Ok(Self { prepared: self.prepared.with_table(table)?, ..self })
    }

    /// The same launcher with other code for its kernels, to compare with: PTX whose entries have the symbols (`cargo fusewire ptx` lists
    /// them) and the parameters of what they stand in for. Kernels of which it has no entry stay.
    ///
    /// # Safety
    /// Each such entry works the transport's memory as the kernel does that it stands in for, and accesses nothing else; it begins with
    /// `griddepcontrol.wait`, since it may be set up while the kernel before it runs; all ranks run the same.
    ///
    /// # Errors
    /// [`Error::Misuse`] on CPU threads, or if there is no such entry; what the driver says of the PTX.
    pub unsafe fn with_ptx(self, text: &str) -> Result<Self> {
        // SAFETY: the caller's contract.
        Ok(Self { prepared: unsafe { self.prepared.with_ptx(text)? }, ..self })
    }

    /// The key of such a launch in a tuning table.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn key_as(&self, schedule: &S, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        let plan = self.cut(schedule, args, options)?.0;
        let symmetric = self.symmetric(schedule, args, plan.elements);
        Ok(self.prepared.key(plan.wire_bytes, Layout::of(options, symmetric)))
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn spaces_as(&self, schedule: &S, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        let elements = self.elements(schedule, args, options)?;
        let pattern = Pattern::of(schedule, self.member());
        let mut spaces =
            self.prepared.spaces(elements, options, pattern, self.symmetric(schedule, args, elements))?;
        if Places::of(args).unaligned().is_some() {
            spaces.retain(|space| space.start.protocol != Protocol::Bulk);
        }
        Ok(spaces)
    }

    pub(crate) fn member(&self) -> Member {
        Member { rank: self.prepared.rank() as u32, world: self.prepared.world() as u32 }
    }

    /// Whether peers may store into the output.
    fn symmetric(&self, schedule: &S, args: &H::Args<'_>, elements: usize) -> bool {
        let (stored, chunks) = (stored(schedule, self.member()), Self::chunks(schedule, self.member()));
        stored && self.prepared.symmetric(args.output(), elements, chunks[1] as usize)
    }

    /// Chunks of the input and of the output; in place those of the one buffer, twice.
    fn chunks(schedule: &S, me: Member) -> [u32; 2] {
        if H::IN_PLACE { InPlace(*schedule).chunks(me) } else { schedule.chunks(me) }
    }

    /// Elements of one peer's chunk.
    fn elements(&self, schedule: &S, args: &H::Args<'_>, options: &LaunchOptions) -> Result<usize> {
        self.prepared.elements(Places::of(args), Self::chunks(schedule, self.member()), options)
    }

    fn cut(&self, schedule: &S, args: &H::Args<'_>, options: &LaunchOptions) -> Result<(Plan, Shape)> {
        let me = self.member();
        let (pattern, stored) = (Pattern::of(schedule, me), stored(schedule, me));
        self.prepared.shaped(Places::of(args), Self::chunks(schedule, me), pattern, stored, options)
    }
}

impl Agreed {
    /// Elements of one peer's chunk, where there are so many in the input and in the output.
    fn elements(&self, places: Places<'_>, chunks: [u32; 2], options: &LaunchOptions) -> Result<usize> {
        if let Some(elements) = options.elements {
            return Ok(elements);
        }
        let [inputs, outputs] = chunks;
        let input = places.input.map(|p| ("input", p.len, inputs));
        let output = places.output.map(|p| ("output", p.len, outputs));
        let found = if outputs > 0 { output.or(input) } else { input.or(output) };
        let Some((name, len, chunks)) = found else {
            return Err(Error::misuse(format!(
                "`{}`: the arguments have neither `output` nor `input`: say `LaunchOptions::elements`",
                self.facts.name
            )));
        };
        let chunks = chunks.max(1) as usize;
        if len.is_multiple_of(chunks) {
            return Ok(len / chunks);
        }
        let each = if chunks == self.world() { ", one for each rank" } else { "" };
        Err(Error::misuse(format!(
            "`{}`: the {len} elements of its {name} cannot be cut into {chunks} equal chunks{each}: make it a multiple of {chunks} long, or say \
             `LaunchOptions::elements`",
            self.facts.name
        )))
    }

    /// How a launch is cut, and its geometry. `stored`: see [`stored`].
    fn shaped(
        &self,
        places: Places<'_>,
        chunks: [u32; 2],
        pattern: Pattern,
        stored: bool,
        options: &LaunchOptions,
    ) -> Result<(Plan, Shape)> {
        let elements = self.elements(places, chunks, options)?;
        let chunks = chunks.map(|chunks| chunks as usize);
        let symmetric = stored && self.symmetric(places.output, elements, chunks[1]);
        let mut plan = self.plan(elements, options, pattern, symmetric)?;
        if let (Protocol::Bulk, Some(off)) = (plan.protocol, places.unaligned()) {
            if options.protocol.is_some() {
                return Err(Error::misuse(format!(
                    "input or output of `{}` begins {off} bytes past a multiple of 16, at which bulk copies begin: use `Protocol::Direct`",
                    self.facts.name
                )));
            }
            let stores = options.clone().protocol(Protocol::Direct);
            plan = Plan { decided: plan.decided, ..self.plan(elements, &stores, pattern, symmetric)? };
        }
        self.holds(places, elements, chunks)?;
        let mut shape = self.shape(&plan, options, pattern.root)?;
        self.aim(&plan, &mut shape, places)?;
        Ok((plan, shape))
    }
}

/// Whether what arrives may be stored into this rank's output: it sends and receives, and nothing is folded, so that plans and rows of tables of folds
/// are the same wherever the output is. Where ranks may send without receiving, those need not have an output, so that both ends agree on storing there
/// only where every rank does both.
fn stored<S: Schedule>(schedule: &S, me: Member) -> bool {
    !S::FOLDS && (S::MUTUAL || (schedule.sends(me) > 0 && schedule.receives(me) > 0))
}

/// The copies of the copy engine: the rank's own chunk first, since another engine copies it; then each peer's, from the next neighbour on.
fn copies<S: Schedule>(schedule: &S, me: Member) -> Vec<Chunk> {
    let own = schedule.own(me).map(|chunk| chunk as usize);
    let own = (S::OWN && own[0] != NOBODY as usize).then(|| Chunk {
        peer: me.rank as usize,
        from: own[0],
        to: own[1],
    });
    let legs = (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg));
    let legs = legs.map(|leg| [leg.peer, leg.chunk, leg.theirs].map(|n| n as usize));
    own.into_iter().chain(legs.map(|[peer, from, to]| Chunk { peer, from, to })).collect()
}

/// Refuses a schedule whose peers are not all other ranks.
fn another_ranks<S: Schedule>(schedule: &S, me: Member) -> Result<()> {
    let to = (1..=schedule.sends(me)).map(|leg| schedule.to(me, leg));
    let from = (1..=schedule.receives(me)).map(|leg| schedule.from(me, leg));
    to.chain(from).try_for_each(|leg| another_rank(me, leg.peer as usize))
}

/// Refuses a peer that does not exist, or that is this rank.
pub(super) fn another_rank(me: Member, peer: usize) -> Result<()> {
    let [rank, world] = [me.rank, me.world].map(|n| n as usize);
    if peer >= world {
        return Err(Error::misuse(format!("peer {peer} in a world of {world} ranks")));
    }
    if peer == rank {
        return Err(Error::misuse(format!(
            "rank {peer} cannot send to itself; `all_to_all` copies a rank's own chunk"
        )));
    }
    Ok(())
}
