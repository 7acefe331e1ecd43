//! From one rank, the root, to every rank, or from every rank to it.

use super::{LaunchOptions, Launcher, Plan};
use crate::kernel::HookSet;
use crate::{Error, Result, Stream, Transport};
use fusewire_device::schedule::{Broadcast, Gather, Member, Reduce, Scatter};

/// A broadcast with hooks `H` on a transport.
///
/// The root's input is one chunk, and so is every rank's output, including the root's. The other ranks' inputs are not read. `produce` is called
/// only on the root, once for each element, and `consume` on every rank.
pub type BroadcastLauncher<X, H> = Launcher<Broadcast, X, H>;

/// A scatter with hooks `H` on a transport.
///
/// Rank `p` gets chunk `p` of the root's input; its output is one chunk. `produce` is called only on the root.
pub type ScatterLauncher<X, H> = Launcher<Scatter, X, H>;

/// A gather with hooks `H` on a transport.
///
/// Every rank's input is one chunk. Chunk `p` of the root's output comes from rank `p`. `consume` is called only on the root.
pub type GatherLauncher<X, H> = Launcher<Gather, X, H>;

/// A reduce with hooks `H` on a transport.
///
/// Every rank's input is one chunk. The root's output is one chunk: the fold of all ranks' contributions. `consume` is called only on the root.
pub type ReduceLauncher<X, H> = Launcher<Reduce, X, H>;

macro_rules! rooted {
    ($($schedule:ident, $launcher:ident, $what:literal;)*) => {$(
        impl<X: Transport, H: HookSet> $launcher<X, H> {
            #[doc = concat!("Queues one ", $what, " on `stream`. Every rank launches it with the same root and the same number of elements.")]
            ///
            /// # Errors
            /// As for [`Launcher::launch_as`]; also for a root that is no rank.
            pub fn launch(&self, stream: &Stream, root: usize, args: H::Args<'_>) -> Result<()> {
                self.launch_with(stream, root, args, &LaunchOptions::default())
            }

            #[doc = concat!("As [`", stringify!($launcher), "::launch`], with options, which must be equal on all ranks.")]
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($launcher), "::launch`], and options that cannot be.")]
            pub fn launch_with(
                &self,
                stream: &Stream,
                root: usize,
                args: H::Args<'_>,
                options: &LaunchOptions,
            ) -> Result<()> {
                let root = a_rank(self.member(), root)?;
                self.launch_as(stream, $schedule { root }, args, options)
            }

            /// The configuration of a launch with these arguments.
            ///
            /// # Errors
            #[doc = concat!("As for [`", stringify!($launcher), "::launch_with`].")]
            pub fn explain(&self, root: usize, args: &H::Args<'_>, options: &LaunchOptions) -> Result<Plan> {
                let root = a_rank(self.member(), root)?;
                self.explain_as(&$schedule { root }, args, options)
            }
        }
    )*};
}

rooted! {
    Broadcast, BroadcastLauncher, "broadcast";
    Scatter, ScatterLauncher, "scatter";
    Gather, GatherLauncher, "gather";
    Reduce, ReduceLauncher, "reduce";
}

pub(crate) fn a_rank(me: Member, root: usize) -> Result<u32> {
    match u32::try_from(root).ok().filter(|root| *root < me.world) {
        Some(root) => Ok(root),
        None => Err(Error::misuse(format!("root {root} in a world of {} ranks", me.world))),
    }
}
