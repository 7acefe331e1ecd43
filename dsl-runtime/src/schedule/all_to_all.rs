//! Every rank sends one chunk to every rank.

use super::LaunchOptions;
use super::prepared::Prepared;
use super::{Plan, Protocol};
use crate::kernel::{Arguments, HookSet, Supports};
use crate::tune::{Key, Space, Table};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::schedule::Shape;
use std::marker::PhantomData;

/// The schedule, as a type.
#[derive(Debug)]
pub struct AllToAll;

/// An all-to-all with hooks `H` on a transport.
///
/// Chunk `p` of a rank's index space goes to rank `p`; what arrives from rank `p` is chunk `p` of the receiver's. The chunk of a rank
/// to itself goes from `produce` to `consume` without a wire.
pub struct AllToAllLauncher<X: Transport, H> {
    prepared: Prepared<X>,
    hooks: PhantomData<H>,
}

impl<X: Transport, H: HookSet> AllToAllLauncher<X, H> {
    #[doc(hidden)]
    pub fn new(transport: &X) -> Result<Self>
    where
        H: Supports<AllToAll, X>,
    {
        Ok(Self { prepared: Prepared::new::<AllToAll, H>(transport, "all_to_all")?, hooks: PhantomData })
    }

    /// Queues one all-to-all on `stream`. Every rank launches it with the same number of elements.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is launched: buffers that overlap, are unaligned or elsewhere, a length that the ranks do not
    /// divide, more blocks than the device holds. Faults of the kernel itself come from [`Stream::synchronize`].
    pub fn launch(&self, stream: &Stream, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, args, &LaunchOptions::default())
    }

    /// As [`AllToAllLauncher::launch`], with options, which must be equal on all ranks.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch`], and options that cannot be.
    pub fn launch_with(&self, stream: &Stream, args: H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        let (plan, shape) = self.cut(&args, options)?;
        if plan.elements == 0 {
            return Ok(());
        }
        self.prepared.launch(stream, &args, &plan, shape, options)
    }

    /// How a launch with these arguments would be cut.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn explain(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
        Ok(self.cut(args, options)?.0)
    }

    /// The same launcher with a table of the caller's instead of [`Table::current`]. Collective.
    ///
    /// # Errors
    /// [`Error::Peer`] if the ranks' tables differ in what they say of this kernel.
    pub fn with_table(self, table: &Table) -> Result<Self> {
        Ok(Self { prepared: self.prepared.with_table(table)?, ..self })
    }

    /// What a tuning table is asked for such a launch.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn key(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        Ok(self.prepared.key(self.explain(args, options)?.wire_bytes, options))
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn spaces(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        let elements = self.elements(args, options)?;
        self.prepared.spaces::<H>(elements, options, |protocol, channels| self.blocks(protocol, channels))
    }

    /// Elements of one peer's chunk.
    fn elements(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<usize> {
        let world = self.prepared.world();
        Ok(match (options.elements, args.output_len().or(args.input_len())) {
            (Some(n), _) => n,
            (None, Some(len)) if len.is_multiple_of(world) => len / world,
            (None, Some(len)) => {
                return Err(Error::misuse(format!(
                    "{len} elements cannot be cut into {world} equal chunks, one for each rank"
                )));
            }
            (None, None) => {
                return Err(Error::misuse(
                    "the arguments have neither `output` nor `input`: say `LaunchOptions::elements`",
                ));
            }
        })
    }

    /// Blocks that copy a rank's own chunk.
    fn diagonal(&self, channels: u32) -> u32 {
        if self.prepared.on_host() { 1 } else { channels }
    }

    /// The grid for so many channels.
    fn blocks(&self, protocol: Protocol, channels: u32) -> u32 {
        if self.prepared.on_host() && protocol == Protocol::Staged {
            return channels;
        }
        let ends = if protocol == Protocol::Lines { 1 } else { 2 };
        ends * (self.prepared.world() as u32 - 1) * channels + self.diagonal(channels)
    }

    fn cut(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<(Plan, Shape)> {
        let elements = self.elements(args, options)?;
        let plan = self.prepared.plan::<H>(elements, options, |p, channels| self.blocks(p, channels))?;
        let mut shape = self.prepared.shape(&plan, options)?;
        shape.diagonal = self.diagonal(plan.channels);
        Ok((plan, shape))
    }
}
