//! A schedule of the user's own.

use super::LaunchOptions;
use super::default::Pattern;
use super::prepared::{Call, Prepared};
use crate::kernel::{HookSet, Supports};
use crate::{Error, Result, Stream, Transport};
use fusewire_device::kernel::Custom;
use std::fmt;
use std::marker::PhantomData;

/// A schedule function on a transport. `S` names it, where it is one of a hook module's.
pub struct CustomLauncher<X: Transport, H, S = Custom> {
    prepared: Prepared<X>,
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
        Ok(Self { prepared: Prepared::new::<S, H>(transport, name)?, types: PhantomData })
    }

    /// Queues the schedule with `blocks` blocks. Blocks that use tiles use the channel of their index, so at most as many are allowed
    /// as the transport has channels.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is launched: buffers that overlap or are on another device, more blocks than the device
    /// holds at once. Faults of the kernel itself come from [`Stream::synchronize`].
    pub fn launch(&self, stream: &Stream, blocks: u32, args: H::Args<'_>) -> Result<()> {
        self.launch_with(stream, blocks, args, &LaunchOptions::default())
    }

    /// As [`CustomLauncher::launch`], with options.
    ///
    /// # Errors
    /// As for [`CustomLauncher::launch`].
    pub fn launch_with(
        &self,
        stream: &Stream,
        blocks: u32,
        args: H::Args<'_>,
        options: &LaunchOptions,
    ) -> Result<()> {
        if blocks == 0 {
            return Err(Error::misuse("0 blocks; a launch has at least one"));
        }
        let plan =
            self.prepared.plan(options.elements.unwrap_or(0), options, Pattern::custom(blocks), false)?;
        let shape = self.prepared.shape(&plan, options, None)?;
        let call = Call { plan: &plan, shape, options, name: "custom", root: None, collective: false };
        self.prepared.launch(stream, &args, &call, Custom, &Vec::new)
    }
}
