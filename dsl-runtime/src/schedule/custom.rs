//! A schedule of the user's own.

use super::default::Pattern;
use super::prepared::{Call, Prepared};
use super::{LaunchOptions, Plan, Protocol};
use crate::kernel::{HookSet, Supports};
use crate::tune::{Key, Layout, Space, Table};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::kernel::Custom;
use std::fmt;
use std::marker::PhantomData;

/// A schedule function on a transport. `S` names it, where it is one of a hook module's.
pub struct CustomLauncher<X: Transport, H, S = Custom> {
    prepared: Prepared<X>,
    /// The schedule's.
    name: &'static str,
    types: PhantomData<(H, S)>,
}

impl<X: Transport, H, S> fmt::Debug for CustomLauncher<X, H, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomLauncher of {}", *self.prepared)
    }
}

impl<X: Transport, H: HookSet, S: 'static> CustomLauncher<X, H, S> {
    #[doc(hidden)]
    pub fn new(transport: &X) -> Result<Self>
    where
        H: Supports<S, X>,
    {
        Self::named(transport, "custom")
    }

    #[doc(hidden)]
    pub fn named(transport: &X, name: &'static str) -> Result<Self>
    where
        H: Supports<S, X>,
    {
        Ok(Self { prepared: Prepared::new::<S, H>(transport, name)?, name, types: PhantomData })
    }

    /// Queues the schedule with so many blocks: a number, or [`Blocks::Planned`]. Every rank says the same. A block's tiles travel on the
    /// channel of its index, so there are at most as many blocks as channels, unless the schedule calls `kernel.channels()` or `kernel.take_channel(..)`. This goes by
    /// the text of the function, and of the module's functions that it calls: more blocks are refused where that text sends or receives tiles and names neither method. What
    /// macros or other crates' functions do is not seen; a tile on a channel that there is not ends the kernel then.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is launched: buffers that overlap or are on another device, more blocks than the device
    /// holds at once or than there are channels. Faults of the kernel itself come from [`Stream::synchronize`].
    pub fn launch(&self, stream: &Stream, blocks: impl Into<Blocks>, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, blocks, args, &LaunchOptions::default())
    }

    /// As [`CustomLauncher::launch`], with options.
    ///
    /// # Errors
    /// As for [`CustomLauncher::launch`].
    pub fn launch_with(
        &self,
        stream: &Stream,
        blocks: impl Into<Blocks>,
        args: H::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<()> {
        let plan = self.explain(blocks, options)?;
        let shape = self.prepared.shape(&plan, options, None)?;
        let call = Call { plan: &plan, shape, options, name: "custom", root: None, collective: false };
        self.prepared.launch(stream, &args, &call, Custom, &Vec::new)
    }

    /// The configuration of a launch.
    ///
    /// # Errors
    /// [`Error::Misuse`]: no blocks, or more than the device holds at once; what the options say of the cut does not fit.
    pub fn explain(&self, blocks: impl Into<Blocks>, options: &LaunchOptions) -> Result<Plan> {
        let elements = options.elements.unwrap_or(0);
        let only = self.prepared.unroll(Protocol::Simple, None)?;
        if let Some(unroll) = options.unroll.filter(|unroll| *unroll != only) {
            return Err(Error::misuse(format!(
                "`{}` with {unroll} packs in flight: a schedule of one's own has as many as its hooks say, {only} here; leave `LaunchOptions::unroll` out",
                self.prepared.facts.name
            )));
        }
        match blocks.into() {
            Blocks::Exactly(0) => Err(Error::misuse("0 blocks; a launch has at least one")),
            Blocks::Exactly(blocks) if self.by_index() && blocks > self.channels() => {
                Err(Error::misuse(format!(
                    "`{}` with {blocks} blocks, each of which has its tiles on the channel of its index, but there are {} channels: launch as many, give the rendezvous more \
                     `Options::channels`, or let the schedule say which blocks have which, by `kernel.channels()` and `kernel.take_channel(..)`",
                    self.prepared.facts.name,
                    self.channels()
                )))
            }
            Blocks::Exactly(blocks) => self.prepared.plan(elements, options, Pattern::custom(blocks), false),
            Blocks::Planned => {
                let plan = self.prepared.plan(self.planned_for(options), options, Pattern::tiles(), false)?;
                // What is told is of the caller's elements, also where the blocks are as for large messages.
                Ok(Plan { elements, wire_bytes: self.prepared.facts.wire_bytes_of(elements), ..plan })
            }
        }
    }

    /// The same launcher with a table of the caller's instead of [`Table::current`]. Collective.
    ///
    /// # Errors
    /// [`Error::Peer`] if the ranks' tables differ for this kernel.
    pub fn with_table(self, table: &Table) -> Result<Self> {
        Ok(Self { prepared: self.prepared.with_table(table)?, ..self })
    }

    /// The key of a launch with [`Blocks::Planned`] in a tuning table.
    pub fn key(&self, options: &LaunchOptions) -> Key {
        let wire_bytes = self.prepared.facts.wire_bytes_of(self.planned_for(options));
        self.prepared.key(wire_bytes, Layout::of(options, false))
    }

    /// What can be tried for such a launch: [`Config::options`](crate::tune::Config::options) of each, with [`Blocks::Planned`].
    ///
    /// # Errors
    /// As for [`CustomLauncher::explain`].
    pub fn spaces(&self, options: &LaunchOptions) -> Result<Vec<Space>> {
        self.prepared.spaces(self.planned_for(options), options, Pattern::tiles(), false)
    }

    /// Whether its blocks have the channels of their indices.
    fn by_index(&self) -> bool {
        self.prepared.facts.by_index.contains(&self.name)
    }

    fn channels(&self) -> u32 {
        self.prepared.link.layout().channels
    }

    /// Elements to each peer that blocks are planned for.
    fn planned_for(&self, options: &LaunchOptions) -> usize {
        options.elements.unwrap_or(MANY_BYTES / 16 * self.prepared.facts.lanes)
    }
}

/// What a launch that does not say how much it sends is planned for.
const MANY_BYTES: usize = 1 << 30;

/// How many blocks a launch of a schedule of one's own has: the same on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocks {
    /// As many as the tuning table says, else as many channels as pay for what [`LaunchOptions::elements`] says is sent to a peer, in elements of the hooks'
    /// wire type; of a schedule function, whose tiles may have several, in bytes. Without it, as for large messages. Never more than there are channels, than the device holds, or
    /// than [`LaunchOptions::blocks`]. [`LaunchOptions::channels`] sets them.
    #[default]
    Planned,
    /// So many.
    Exactly(u32),
}

impl From<u32> for Blocks {
    fn from(blocks: u32) -> Self {
        Blocks::Exactly(blocks)
    }
}
