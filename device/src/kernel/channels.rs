//! Which channel a block's tiles travel on.

use super::Kernel;
use crate::ops::Ops;

impl<O: Ops> Kernel<O> {
    /// Channels to each peer. A block's tiles travel on the channel of its index, so blocks beyond these have none to begin with.
    #[inline(always)]
    pub fn channels(&self) -> usize {
        self.ops.channels() as usize
    }

    /// From here on this block's tiles travel on channel `channel`, and not on that of its index. So a launch may have more blocks than there are channels:
    /// half of them send and half receive, say, or each has peers of its own. The peer's block that works the other end of that channel is the one that meets its tiles. A
    /// channel that there is not ends the kernel on all ranks when a tile is sent or received.
    ///
    /// # Safety
    /// In this launch no other block sends to a peer on a channel on which this block sends to it, nor receives from a peer where this block does. To forward is to
    /// do both.
    ///
    /// # Panics
    /// Within a tile's hook, or within [`Kernel::teams`].
    #[inline(always)]
    #[track_caller]
    pub unsafe fn take_channel(&self, channel: usize) {
        self.whole();
        self.channel.set(channel.min(u32::MAX as usize) as u32);
    }
}
