//! One launcher for every schedule of legs.

use super::asked::{Asked, another_ranks, copies};
use super::prepared::{Agreed, Call, Places, Prepared};
use super::{LaunchOptions, Plan, Protocol};
use crate::kernel::{HookSet, Supports};
use crate::tune::{Key, Layout, Space, Table};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::fold::MOST_RANKS;
use fusewire_device::launch::Shape;
use fusewire_device::schedule::{Member, Schedule};
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
    /// the schedule's chunks, a peer that is this rank or no rank, more blocks than the device holds. [`crate::Error::Fault`] with [`crate::Operation::Disagreed`] if
    /// another rank of this host launches something else. Faults of the kernel itself come from [`Stream::synchronize`].
    pub fn launch_as(
        &self,
        stream: &Stream,
        schedule: S,
        args: H::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<()> {
        another_ranks(&schedule, self.member())?;
        let asked = self.ask(&schedule);
        let (plan, shape) = self.prepared.shaped(Places::of(&args), &asked, options)?;
        let (name, root, collective) = (asked.name, asked.pattern.root, asked.collective);
        let call = Call { plan: &plan, shape, options, name, root, collective };
        if plan.elements == 0 || !asked.takes_part {
            return self.prepared.note(stream, &call).map(drop);
        }
        let copies = &|| copies(&schedule, self.member(), H::IN_PLACE);
        self.prepared.launch(stream, &args, &call, schedule, copies)
    }

    /// The configuration of a launch with these arguments.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn explain_as(&self, schedule: &S, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
        another_ranks(schedule, self.member())?;
        Ok(self.prepared.shaped(Places::of(args), &self.ask(schedule), options)?.0)
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
        self.prepared.key_of(Places::of(args), &self.ask(schedule), options)
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn spaces_as(&self, schedule: &S, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        self.prepared.spaces_of(Places::of(args), &self.ask(schedule), options)
    }

    pub(crate) fn member(&self) -> Member {
        Member { rank: self.prepared.rank() as u32, world: self.prepared.world() as u32 }
    }

    fn ask(&self, schedule: &S) -> Asked {
        Asked::of(schedule, self.member(), H::IN_PLACE)
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

    /// Whether peers may store into the output.
    fn stored(&self, places: Places<'_>, asked: &Asked, elements: usize) -> bool {
        asked.stored && self.symmetric(places.output, elements, asked.chunks[1] as usize)
    }

    /// The key of a launch in a tuning table.
    fn key_of(&self, places: Places<'_>, asked: &Asked, options: &LaunchOptions) -> Result<Key> {
        let plan = self.shaped(places, asked, options)?.0;
        let symmetric = self.stored(places, asked, plan.elements);
        Ok(self.key(plan.wire_bytes, Layout::of(options, symmetric)))
    }

    /// What can be tried for a launch.
    fn spaces_of(&self, places: Places<'_>, asked: &Asked, options: &LaunchOptions) -> Result<Vec<Space>> {
        let elements = self.elements(places, asked.chunks, options)?;
        let symmetric = self.stored(places, asked, elements);
        let mut spaces = self.spaces(elements, options, asked.pattern, symmetric)?;
        if places.unaligned().is_some() {
            spaces.retain(|space| space.start.protocol != Protocol::Bulk);
        }
        Ok(spaces)
    }

    /// How a launch is cut, and its geometry.
    fn shaped(&self, places: Places<'_>, asked: &Asked, options: &LaunchOptions) -> Result<(Plan, Shape)> {
        let elements = self.elements(places, asked.chunks, options)?;
        let (pattern, chunks) = (asked.pattern, asked.chunks.map(|chunks| chunks as usize));
        let symmetric = self.stored(places, asked, elements);
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
