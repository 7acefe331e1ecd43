//! Launchers: a schedule, a hook set and a transport, ready to launch.

mod alike;
pub(crate) mod copy;
mod custom;
mod cut;
mod default;
mod launcher;
mod parts;
mod plan;
mod prepared;
mod rooted;
mod sendrecv;

pub use alike::{Alike, AllGatherLauncher, AllReduceLauncher, AllToAllLauncher, ReduceScatterLauncher};
pub use custom::CustomLauncher;
pub(crate) use default::Pattern;
pub use fusewire_device::kernel::Custom;
pub use fusewire_device::schedule::{
    AllGather, AllReduce, AllToAll, Broadcast, Gather, Leg, Member, Reduce, ReduceScatter, Scatter, Schedule,
    SendRecv, check,
};
pub use launcher::Launcher;
pub use plan::{Decided, Plan};
pub(crate) use prepared::Prepared;
pub(crate) use rooted::a_rank;
pub use rooted::{BroadcastLauncher, GatherLauncher, ReduceLauncher, ScatterLauncher};
pub use sendrecv::SendRecvLauncher;
pub(crate) use sendrecv::same_length;

use std::time::Duration;

/// How bytes travel. What NCCL has too has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Protocol {
    /// Through rings of staging in the receiver's memory, with credits: any size.
    Simple,
    /// In 128-byte lines that carry their flags: small chunks, at a fraction of the latency.
    Ll128,
    /// Straight into the peers' outputs ("zero copy"): where those are symmetric memory ([`Buffer::symmetric`](crate::Buffer::symmetric)) and the
    /// hooks have no `consume`. Nothing is staged, and no block receives.
    Direct,
    /// As `Direct`, by bulk copies through shared memory that one thread of each block asks for (the Tensor Memory Accelerator): for hooks
    /// that have no `produce` either, chunks of whole multiples of 16 bytes, and GPUs of compute capability 9.0 and later that let a block
    /// have 128 KiB of shared memory.
    Bulk,
    /// By the copy engine, straight into the peers' outputs, with no multiprocessor busy: as `Direct`, for hooks that have no `produce`
    /// either, on GPUs. The copies are queued behind the wait for the peers, and made even if it fails: after a fault, the outputs
    /// of a launch hold anything, also that of a rank which had not launched yet.
    Copy,
    /// Through staging twice ("two-shot"), for `all_reduce`: each rank folds a part of what all contribute, and passes the result on to all. A rank sends
    /// fewer bytes than by the others from three ranks on, about two chunks in all. What is passed on is of the output's type, or where the module
    /// has a `consume` of the accumulator's; neither may be narrower than the wire type. The bits are the same as by the others.
    TwoShot,
    /// As `TwoShot`, but in lines as `Ll128`: all-reduces among several ranks that are too long for one step by LL128, and too short for staging.
    Ll128TwoShot,
}

impl Protocol {
    /// Whether bytes travel in lines that carry their flags.
    pub(crate) fn lines(self) -> bool {
        matches!(self, Protocol::Ll128 | Protocol::Ll128TwoShot)
    }

    /// Whether what is folded is passed on.
    pub(crate) fn passes_on(self) -> bool {
        matches!(self, Protocol::TwoShot | Protocol::Ll128TwoShot)
    }

    /// Whether ranks write into their peers' outputs.
    pub(crate) fn stores(self) -> bool {
        matches!(self, Protocol::Direct | Protocol::Bulk | Protocol::Copy)
    }
}

/// What a launch may be told beside its arguments. Equal on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchOptions {
    /// Elements of one peer's chunk; by default the output's (or the input's) length divided by the ranks.
    pub elements: Option<usize>,
    /// Rows and columns of a chunk as it arrives, for hooks that ask `ctx.rows`, `ctx.cols`, `ctx.row_col()` or
    /// `ctx.transposed_index()`; needed with `layout(transposed)`.
    pub shape: Option<(usize, usize)>,
    /// How bytes travel; by default chosen from the size.
    pub protocol: Option<Protocol>,
    /// Channels to each peer; by default chosen from the size. Short all-to-alls by the simple protocol among several ranks have more than one block at each
    /// end of a channel, as far as multiprocessors go.
    pub channels: Option<u32>,
    /// Blocks for the self copy of an all-to-all, the chunk that a rank keeps. By default chosen from the channels.
    pub self_copy: Option<u32>,
    /// Threads of a block, a multiple of 32 up to 512, or 256 with `layout(transposed)` or `reduce(..)`; on the host always 1. With `Protocol::Bulk`
    /// one warp copies; the others of an all-to-all's send what chunks begin with, before the peers say *go*.
    pub threads: Option<u32>,
    /// Blocks in the grid at most, hence streaming multiprocessors that the launch holds; by default as many as pay. Give fewer to leave multiprocessors to other
    /// streams.
    pub blocks: Option<u32>,
    /// Bytes that travel together on a channel, a multiple of 128 up to a quarter of its staging; by default about 128 KiB, or that. With
    /// `Protocol::Bulk`, bytes of one copy, up to 16 KiB.
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

    /// Chooses a variant.
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
