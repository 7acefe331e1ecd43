//! Every rank's chunk goes to every rank.

use super::{LaunchOptions, Launcher, Plan};
use crate::kernel::HookSet;
use crate::tune::{Key, Space};
use crate::{Result, Stream, Transport};
use fusewire_device::schedule::AllGather;

/// An all-gather with hooks `H` on a transport.
///
/// A rank's input is one chunk; chunk `p` of every rank's output is what rank `p` sent. `produce` is called once for each element, whatever the
/// number of ranks; `consume` once for each element of each rank.
pub type AllGatherLauncher<X, H> = Launcher<AllGather, X, H>;

impl<X: Transport, H: HookSet> AllGatherLauncher<X, H> {
    /// Queues one all-gather on `stream`. Every rank launches it with the same number of elements.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn launch(&self, stream: &Stream, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, args, &LaunchOptions::default())
    }

    /// As [`AllGatherLauncher::launch`], with options, which must be equal on all ranks.
    ///
    /// # Errors
    /// As for [`AllGatherLauncher::launch`], and options that cannot be.
    pub fn launch_with(&self, stream: &Stream, args: H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        self.launch_as(stream, AllGather, args, options)
    }

    /// How a launch with these arguments would be cut.
    ///
    /// # Errors
    /// As for [`AllGatherLauncher::launch_with`].
    pub fn explain(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
        self.explain_as(&AllGather, args, options)
    }

    /// What a tuning table is asked for such a launch.
    ///
    /// # Errors
    /// As for [`AllGatherLauncher::launch_with`].
    pub fn key(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        self.key_as(&AllGather, args, options)
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`AllGatherLauncher::launch_with`].
    pub fn spaces(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        self.spaces_as(&AllGather, args, options)
    }
}
