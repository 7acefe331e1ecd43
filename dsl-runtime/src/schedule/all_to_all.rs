//! Every rank sends one chunk to every rank.

use super::{LaunchOptions, Launcher, Plan};
use crate::kernel::HookSet;
use crate::tune::{Key, Space};
use crate::{Result, Stream, Transport};
use fusewire_device::schedule::AllToAll;

/// An all-to-all with hooks `H` on a transport.
///
/// Chunk `p` of a rank's index space goes to rank `p`; what arrives from rank `p` is chunk `p` of the receiver's. The chunk of a rank
/// to itself goes from `produce` to `consume` without a wire.
pub type AllToAllLauncher<X, H> = Launcher<AllToAll, X, H>;

impl<X: Transport, H: HookSet> AllToAllLauncher<X, H> {
    /// Queues one all-to-all on `stream`. Every rank launches it with the same number of elements.
    ///
    /// # Errors
    /// As for [`Launcher::launch_as`].
    pub fn launch(&self, stream: &Stream, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, args, &LaunchOptions::default())
    }

    /// As [`AllToAllLauncher::launch`], with options, which must be equal on all ranks.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch`], and options that cannot be.
    pub fn launch_with(&self, stream: &Stream, args: H::Args<'_>, options: &LaunchOptions) -> Result<()> {
        self.launch_as(stream, AllToAll, args, options)
    }

    /// How a launch with these arguments would be cut.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn explain(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
        self.explain_as(&AllToAll, args, options)
    }

    /// What a tuning table is asked for such a launch.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn key(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Key> {
        self.key_as(&AllToAll, args, options)
    }

    /// What can be tried for such a launch, the default's own protocol first.
    ///
    /// # Errors
    /// As for [`AllToAllLauncher::launch_with`].
    pub fn spaces(&self, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Vec<Space>> {
        self.spaces_as(&AllToAll, args, options)
    }
}
