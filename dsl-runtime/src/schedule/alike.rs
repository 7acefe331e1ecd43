//! Launchers of schedules that take no argument.

use super::{LaunchOptions, Launcher, Plan};
use crate::kernel::HookSet;
use crate::tune::{Key, Space};
use crate::{Result, Stream, Transport};
use fusewire_device::schedule::{AllGather, AllReduce, AllToAll, ReduceScatter, Schedule};

/// A schedule of which every rank launches the same value: its default.
pub trait Alike: Schedule + Default {}

impl Alike for AllToAll {}
impl Alike for AllGather {}
impl Alike for ReduceScatter {}
impl Alike for AllReduce {}

/// An all-to-all with hooks `H` on a transport.
///
/// Chunk `p` of a rank's index space goes to rank `p`; what arrives from rank `p` is chunk `p` of the receiver's. The chunk of a rank
/// to itself goes from `produce` to `consume` without a wire.
pub type AllToAllLauncher<X, H> = Launcher<AllToAll, X, H>;

/// An all-gather with hooks `H` on a transport.
///
/// A rank's input is one chunk; chunk `p` of every rank's output is what rank `p` sent. `produce` is called once for each element, whatever the
/// number of ranks; `consume` once for each element of each rank.
pub type AllGatherLauncher<X, H> = Launcher<AllGather, X, H>;

/// A reduce-scatter with hooks `H` on a transport.
///
/// Chunk `p` of a rank's input is what it contributes to rank `p`, whose output is one chunk: what all ranks contributed, folded. `produce` is
/// called once for each element of the input, `consume` once for each of the output.
pub type ReduceScatterLauncher<X, H> = Launcher<ReduceScatter, X, H>;

/// An all-reduce with hooks `H` on a transport.
///
/// A rank's input is one chunk, and so is its output: what all ranks contributed, folded, the same bits on every rank. `consume` is called once
/// for each element. `produce` is called once on CPU threads; on GPUs twice, once for all peers and once for this rank.
pub type AllReduceLauncher<X, H> = Launcher<AllReduce, X, H>;

impl<S: Alike, X: Transport, H: HookSet> Launcher<S, X, H> {
    /// Queues one launch on `stream`. Every rank launches it with the same number of elements.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn launch(&self, stream: &Stream, args: H::Args<'_>) -> Result<()> {
        self.launch_as(stream, S::default(), args, &LaunchOptions::default())
    }

    /// The same with options, which must be equal on all ranks.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`], and options that cannot be.
    pub fn launch_with(&self, stream: &Stream, args: H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        self.launch_as(stream, S::default(), args, options)
    }

    /// How a launch with these arguments would be cut.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn explain(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
        self.explain_as(&S::default(), args, options)
    }

    /// What a tuning table is asked for such a launch.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn key(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        self.key_as(&S::default(), args, options)
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn spaces(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        self.spaces_as(&S::default(), args, options)
    }
}
