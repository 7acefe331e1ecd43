//! Host programs to host programs: transports of chunks between two ranks, by queue pairs, without kernels.
//!
//! | | what arrives where | completion at the receiver |
//! |---|---|---|
//! | [`ZeroCopy`] | in the buffer that the receiver exported | one notification a chunk, counted by channel |
//! | [`CopyBased`] | in staging of the receiver, from staging of the sender | a state machine a slot, credits by remote atomics, hooks on both sides |
//!
//! Algorithms see a [`P2pHostTransport`] behind a [`Guard`]: [`Shared::lock`] is the only way to one that others have too, so an
//! operation without the lock does not compile. [`exchange`] is such an algorithm; [`mock`] is a transport without an adapter, to test
//! them with.
//!
//! # Contract
//! Chunks of one (channel, slot) arrive in order; there is no other order. An algorithm issues and tests at most once for each channel
//! in a pass, and calls [`P2pHostTransport::progress`] once in it: one that waits for a single channel can keep the peer from giving
//! credit on another. `test_chunk` and `test_ctrl` call `progress` themselves.

mod buffer;
mod copy_based;
mod error;
mod exchange;
mod mapper;
pub mod mock;
mod shared;
mod wires;
mod zero_copy;

pub use buffer::{Counts, HostBuffer, Registered, Registrations};
pub use copy_based::CopyBased;
pub use error::{Error, Result};
pub use exchange::{Transfer, exchange};
pub use mapper::{Mapper, MapperOptions};
pub use shared::{Guard, Shared};
pub use zero_copy::ZeroCopy;

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How chunks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Straight into the exported buffer.
    ZeroCopy,
    /// Through staging on both sides.
    CopyBased,
}

/// A message beside the chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CtrlMessage {
    /// What it is; see [`kind`].
    pub kind: u32,
    /// Up to [`CTRL_BYTES`] bytes.
    pub payload: Vec<u8>,
}

/// Most bytes of a control message.
pub const CTRL_BYTES: usize = 240;

/// Kinds of control messages; those from 16 on are the caller's.
pub mod kind {
    /// Names a registered buffer.
    pub const EXPORT: u32 = 1;
    /// Says that the sender receives through staging.
    pub const SYNC: u32 = 2;
}

/// A control message under way, by its sequence number among those sent, or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtrlRequest {
    /// One that is sent.
    Send(u64),
    /// One that is to come.
    Receive(u64),
}

/// Where chunks for the peer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteBuffer {
    /// Into this buffer of the peer's.
    ZeroCopy(Exported),
    /// Into staging.
    CopyBased,
}

/// A buffer that the peer exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    address: u64,
    rkey: u32,
    bytes: u64,
}

impl Exported {
    /// The buffer of `bytes` at an address of the peer's, by its key.
    ///
    /// # Safety
    /// The peer exported it, for this connection to write.
    pub const unsafe fn new(address: u64, rkey: u32, bytes: u64) -> Self {
        Exported { address, rkey, bytes }
    }

    /// Address of its first byte there.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Its key.
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A chunk, as hooks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkContext {
    /// The peer.
    pub peer: usize,
    /// Channel.
    pub channel: usize,
    /// Slot of the staging.
    pub slot: usize,
    /// The caller's number of the chunk.
    pub round: u64,
    /// Bytes.
    pub bytes: usize,
}

/// What the sender does in place of copying: the host's `produce`.
pub trait SendHooks: Send {
    /// Fills the staging, or begins to.
    fn prepare(&mut self, chunk: &ChunkContext, staging: &mut [u8]);
    /// Whether the staging is filled. Asked again until it is.
    fn is_ready(&mut self, _chunk: &ChunkContext, _staging: &mut [u8]) -> bool {
        true
    }
    /// The staging has been sent.
    fn on_done(&mut self, _chunk: &ChunkContext) {}
}

/// What the receiver does in place of copying: the host's `consume`.
pub trait RecvHooks: Send {
    /// Takes what has arrived, or begins to.
    fn process(&mut self, chunk: &ChunkContext, staging: &[u8]);
    /// Whether it is taken. Asked again until it is.
    fn is_done(&mut self, _chunk: &ChunkContext, _staging: &[u8]) -> bool {
        true
    }
    /// The staging has been given back.
    fn on_done(&mut self, _chunk: &ChunkContext) {}
}

/// A chunk to send. What one mode does not use, it ignores.
#[derive(Default)]
pub struct SendChunk {
    /// From here; may be absent where hooks make the bytes.
    pub buffer: Option<HostBuffer>,
    /// Offset there, and in the peer's buffer.
    pub offset: usize,
    /// How much.
    pub bytes: usize,
    /// By which channel.
    pub channel: usize,
    /// Zero-copy: where to.
    pub to: Option<RemoteBuffer>,
    /// Copy-based: through which slot.
    pub slot: usize,
    /// Copy-based: the caller's number, for hooks.
    pub round: u64,
    /// Copy-based: in place of copying from `buffer`.
    pub hooks: Option<Box<dyn SendHooks>>,
}

/// A chunk to receive.
#[derive(Default)]
pub struct RecvChunk {
    /// To here; may be absent where hooks take the bytes.
    pub buffer: Option<HostBuffer>,
    /// Offset there.
    pub offset: usize,
    /// How much.
    pub bytes: usize,
    /// By which channel.
    pub channel: usize,
    /// Copy-based: through which slot.
    pub slot: usize,
    /// Copy-based: the caller's number, for hooks.
    pub round: u64,
    /// Copy-based: in place of copying to `buffer`.
    pub hooks: Option<Box<dyn RecvHooks>>,
}

/// A chunk under way, by its sequence number in its channel (zero-copy) or slot (copy-based).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRequest {
    /// Whether it is sent.
    pub sends: bool,
    /// Channel.
    pub channel: usize,
    /// Slot.
    pub slot: usize,
    /// Number, from 1.
    pub number: u64,
}

/// A connection to one peer.
pub trait P2pHostTransport: Send + fmt::Debug {
    /// The peer.
    fn peer(&self) -> usize;
    /// How chunks travel.
    fn mode(&self) -> Mode;
    /// Virtual channels: queue pairs.
    fn channels(&self) -> usize;
    /// Slots of staging in each direction; 0 without staging.
    fn pipeline_depth(&self) -> usize;
    /// Most bytes of a chunk; 0 where a chunk may be the whole.
    fn chunk_bytes(&self) -> usize;

    /// Chunks of a transfer of `total` bytes.
    fn total_chunks(&self, total: usize) -> usize {
        match self.chunk_bytes() {
            0 => usize::from(total > 0),
            chunk => total.div_ceil(chunk),
        }
    }

    /// Bytes of chunk `index` of such a transfer; empty past the last.
    fn chunk_range(&self, total: usize, index: usize) -> Range<usize> {
        let chunk = if self.chunk_bytes() == 0 { total } else { self.chunk_bytes() };
        let start = index.saturating_mul(chunk).min(total);
        start..start.saturating_add(chunk).min(total)
    }

    /// Moves everything on that can be, without waiting.
    ///
    /// # Errors
    /// [`Error::Failed`], then and ever after.
    fn progress(&mut self) -> Result<()>;

    /// Sends a control message; its payload is taken now.
    ///
    /// # Errors
    /// [`Error::Misuse`] for more than [`CTRL_BYTES`] bytes, [`Error::Failed`].
    fn send_ctrl(&mut self, kind: u32, payload: &[u8]) -> Result<CtrlRequest>;
    /// Asks for the peer's next control message that nobody has asked for.
    ///
    /// # Errors
    /// [`Error::Failed`].
    fn recv_ctrl(&mut self) -> Result<CtrlRequest>;
    /// Whether it is done: for one that was sent, a message without payload; for one received, the message, which is given out once.
    ///
    /// # Errors
    /// [`Error::Failed`].
    fn test_ctrl(&mut self, request: &CtrlRequest) -> Result<Option<CtrlMessage>>;

    /// Whether a chunk can be sent by this channel and slot now. Moves nothing on.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a channel or slot that does not exist.
    fn ready_for_send(&self, channel: usize, slot: usize) -> Result<bool>;
    /// Whether a chunk can be received by this channel and slot now. Moves nothing on.
    ///
    /// # Errors
    /// As for [`P2pHostTransport::ready_for_send`].
    fn ready_for_recv(&self, channel: usize, slot: usize) -> Result<bool>;
    /// Begins to send a chunk.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a chunk that cannot be, or a slot that is not ready; [`Error::Failed`].
    fn send_chunk(&mut self, chunk: SendChunk) -> Result<ChunkRequest>;
    /// Begins to receive a chunk.
    ///
    /// # Errors
    /// As for [`P2pHostTransport::send_chunk`].
    fn recv_chunk(&mut self, chunk: RecvChunk) -> Result<ChunkRequest>;
    /// Whether the chunk is done: sent, and its buffer free; or received, and taken.
    ///
    /// # Errors
    /// [`Error::Failed`].
    fn test_chunk(&mut self, request: &ChunkRequest) -> Result<bool>;

    /// What the peer has to be told so that it can send into `buffer`.
    ///
    /// # Errors
    /// If the buffer cannot be registered.
    fn export_recv_buf(&mut self, buffer: &HostBuffer) -> Result<CtrlMessage>;
    /// What the peer's message says.
    ///
    /// # Errors
    /// [`Error::Unexpected`] for any other message.
    ///
    /// # Safety
    /// The message came from the peer of this connection, where [`P2pHostTransport::export_recv_buf`] made it: chunks go where it says.
    unsafe fn import_remote(&self, message: &CtrlMessage) -> Result<RemoteBuffer>;

    /// Waits until a control message is done.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`, [`Error::Failed`].
    fn wait_ctrl(&mut self, request: &CtrlRequest, limit: Duration) -> Result<CtrlMessage> {
        let (start, mut turn) = (Instant::now(), 0u32);
        loop {
            if let Some(message) = self.test_ctrl(request)? {
                return Ok(message);
            }
            expired(self.peer(), "a control message", start, limit)?;
            fusewire_device::arch::relax(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Waits until a chunk is done.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`, [`Error::Failed`].
    fn wait_chunk(&mut self, request: &ChunkRequest, limit: Duration) -> Result<()> {
        let (start, mut turn) = (Instant::now(), 0u32);
        while !self.test_chunk(request)? {
            expired(
                self.peer(),
                if request.sends { "a chunk to be taken" } else { "a chunk" },
                start,
                limit,
            )?;
            fusewire_device::arch::relax(turn);
            turn = turn.saturating_add(1);
        }
        Ok(())
    }
}

/// [`Error::Timeout`], if `limit` has passed.
fn expired(peer: usize, what: &'static str, start: Instant, limit: Duration) -> Result<()> {
    let waited = start.elapsed();
    if waited < limit { Ok(()) } else { Err(Error::Timeout { peer, what, waited }) }
}

fn in_range(what: &str, given: usize, limit: usize) -> Result<()> {
    if given < limit { Ok(()) } else { Err(Error::misuse(format!("{what} {given}; there are {limit}"))) }
}
