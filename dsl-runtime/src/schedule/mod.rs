//! Launchers: a schedule, a hook set and a transport, ready to launch.

mod alike;
mod asked;
pub(crate) mod copy;
mod custom;
mod cut;
mod default;
mod facts;
mod launcher;
mod parts;
mod plan;
mod prepared;
mod protocol;
mod rooted;
mod sendrecv;

pub use alike::{Alike, AllGatherLauncher, AllReduceLauncher, AllToAllLauncher, ReduceScatterLauncher};
pub use custom::{Blocks, CustomLauncher};
pub(crate) use default::Pattern;
pub use fusewire_device::kernel::Custom;
pub use fusewire_device::schedule::{
    AllGather, AllReduce, AllToAll, Broadcast, Gather, Leg, Member, Reduce, ReduceScatter, Scatter, Schedule,
    SendRecv, check,
};
pub use launcher::Launcher;
pub use plan::{Decided, Plan};
pub(crate) use prepared::{Agreed, told_protocol};
pub use protocol::Protocol;
pub(crate) use rooted::a_rank;
pub use rooted::{BroadcastLauncher, GatherLauncher, ReduceLauncher, ScatterLauncher};
pub use sendrecv::SendRecvLauncher;
pub(crate) use sendrecv::same_length;

use std::time::Duration;

/// What a launch may be told beside its arguments. Equal on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchOptions {
    /// Elements of one peer's chunk; by default the output's (or the input's) length divided by the ranks.
    pub elements: Option<usize>,
    /// Rows and columns of a chunk as it arrives, for hooks that ask `ctx.rows`, `ctx.cols`, `ctx.row_col()` or
    /// `ctx.transposed_index()`; needed with `layout(transposed)`.
    pub shape: Option<(usize, usize)>,
    /// How bytes travel; by default chosen from the size. On CPU threads LL, LL128, direct stores and bulk copies need the feature `cpu-protocols`.
    pub protocol: Option<Protocol>,
    /// Channels to each peer; by default chosen from the size. Short all-to-alls by the simple protocol among several ranks have more than one block at each
    /// end of a channel, as far as multiprocessors go.
    pub channels: Option<u32>,
    /// Blocks for the self copy of an all-to-all, the chunk that a rank keeps. By default chosen from the channels.
    pub self_copy: Option<u32>,
    /// Threads of a block, a multiple of 32 up to 512, or 256 with `layout(transposed)`, `reduce(..)` or `grain = row(..)`; on the host always 1. With `Protocol::Bulk`
    /// one warp copies; the others of an all-to-all's send what chunks begin with, before the peers say *go*.
    pub threads: Option<u32>,
    /// Blocks in the grid at most, hence streaming multiprocessors that the launch holds; by default as many as pay. Give fewer to leave multiprocessors to other
    /// streams.
    pub blocks: Option<u32>,
    /// Bytes that travel together on a channel, a multiple of 128 up to a quarter of its staging; by default an eighth of what the channel carries up to
    /// 256 KiB, but 32 to 128 KiB of short calls, by what hooks do. With `Protocol::Bulk`, bytes of one copy, up to 16 KiB.
    pub chunk: Option<usize>,
    /// The variant with that many packs in flight; by default the first.
    pub unroll: Option<u32>,
    /// How long one wait may last; by default the transport's.
    pub deadline: Option<Duration>,
}

impl LaunchOptions {
    /// The same, with all that is about cutting left open.
    pub(crate) fn open(&self) -> Self {
        let LaunchOptions { elements, shape, blocks, deadline, .. } = *self;
        LaunchOptions { elements, shape, blocks, deadline, ..Self::default() }
    }

    /// Sets the elements of one peer's chunk.
    #[must_use]
    pub fn elements(mut self, elements: usize) -> Self {
        self.elements = Some(elements);
        self
    }

    /// Sets rows and columns of a chunk.
    #[must_use]
    pub fn shape(mut self, rows: usize, cols: usize) -> Self {
        self.shape = Some((rows, cols));
        self
    }

    /// Chooses how bytes travel.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Sets the channels to each peer.
    #[must_use]
    pub fn channels(mut self, channels: u32) -> Self {
        self.channels = Some(channels);
        self
    }

    /// Sets the blocks that copy the rank's own chunk.
    #[must_use]
    pub fn self_copy(mut self, blocks: u32) -> Self {
        self.self_copy = Some(blocks);
        self
    }

    /// Sets the threads of a block.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the most blocks.
    #[must_use]
    pub fn blocks(mut self, blocks: u32) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Sets the bytes that travel together.
    #[must_use]
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes);
        self
    }

    /// Chooses a variant. A schedule of one's own has a single one.
    #[must_use]
    pub fn unroll(mut self, packs: u32) -> Self {
        self.unroll = Some(packs);
        self
    }

    /// Sets the deadline of waits.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}
