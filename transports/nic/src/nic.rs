//! What a transport asks of an adapter.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an adapter refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is none to use.
    #[error("no adapter: {why}")]
    NoAdapter {
        /// What was looked for and what to do.
        why: String,
    },
    /// The caller asked for something that cannot be.
    #[error("{what}")]
    Misuse {
        /// What, and what to do instead.
        what: String,
    },
    /// The operating system or the adapter's driver refused something.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn misuse(what: impl Into<String>) -> Error {
        Error::Misuse { what: what.into() }
    }

    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}

/// Memory to be registered: one range, by every name it may be known by.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// Address as kernels know it; entries name memory by it.
    pub addr: u64,
    /// Bytes.
    pub bytes: u64,
    /// Address for the CPU, where it has one. An emulated adapter needs it.
    pub host: Option<NonNull<u8>>,
    /// File that the memory is a mapping of, and where in it: what a peer's emulated adapter maps, if its size is sealed.
    pub file: Option<(BorrowedFd<'a>, u64)>,
    /// DMA-buf of the allocation that holds it, and where in that: what a real adapter registers GPU memory by.
    pub dmabuf: Option<(BorrowedFd<'a>, u64)>,
}

/// Registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Address by which entries name its first byte: 0 if it is zero-based.
    pub addr: u64,
    /// Bytes.
    pub bytes: u64,
    /// Key for this rank's own entries.
    pub lkey: u32,
    /// Key for peers. mlx5 gives one number for both.
    pub rkey: u32,
}

/// What a peer must be told of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// Address by which entries name its first byte.
    pub addr: u64,
    /// Bytes.
    pub bytes: u64,
    /// Key.
    pub rkey: u32,
    /// The owner's process.
    pub process: u32,
    /// Address for the owner's CPU, or 0.
    pub host: u64,
    /// Where it begins in the file that is passed along, if one is.
    pub offset: u64,
}

/// What a peer must be given to reach a region.
#[derive(Debug)]
pub struct Share {
    /// In words.
    pub remote: Remote,
    /// The file that an emulated adapter maps; real ones need none.
    pub file: Option<OwnedFd>,
}

/// A place for queues, in memory that kernels and adapter both reach.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Address as kernels know it.
    pub addr: u64,
    /// Address for the CPU; `None` if the CPU has none (GPU memory).
    pub host: Option<NonNull<u8>>,
    /// Bytes.
    pub bytes: u64,
}

/// Gives memory for queues. It must outlive the adapter's queue pairs.
///
/// # Safety
/// Blocks are zeroed, as long as was asked for, given to nobody else, and stay where they are as long as the queues made in them.
pub unsafe trait QueueSource: Send + Sync {
    /// `bytes` zero bytes, aligned to 4096.
    ///
    /// # Errors
    /// If there are none.
    fn take(&self, bytes: u64) -> Result<Block>;
}

/// What a queue pair is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Kernels post to it; it is connected to a peer.
    Main,
    /// Kernels post to it; it may wait for other completion queues (core-direct master), and is connected to a responder of its own
    /// adapter.
    Companion,
    /// Nobody posts to it: the other end of a companion.
    Responder,
}

/// A queue pair to be made.
#[derive(Clone, Copy, Debug)]
pub struct QueueRequest {
    /// What for.
    pub kind: Kind,
    /// Entries of the send queue and of its completion queue; a power of two from 2 to 32,768.
    pub depth: u32,
}

/// A queue pair and its completion queue: where kernels find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// What for.
    pub kind: Kind,
    /// Number, 24 bits.
    pub number: u32,
    /// Number of the completion queue, 24 bits.
    pub cq_number: u32,
    /// Entries.
    pub depth: u32,
    /// Address of the send queue.
    pub sq: u64,
    /// Address of its doorbell record.
    pub sq_record: u64,
    /// Address of the doorbell.
    pub doorbell: u64,
    /// Address of the completion queue; entries are initialised as invalid.
    pub cq: u64,
    /// Address of its consumer index.
    pub cq_record: u64,
}

/// How a peer reaches a queue pair. What each field means is the adapter's own affair; they travel unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Number of the queue pair.
    pub number: u32,
    /// Global identifier of the port; RoCE v2 puts an IP address there.
    pub gid: [u8; 16],
    /// Local identifier of the port on InfiniBand, else 0.
    pub lid: u16,
    /// Number of the first packet from there, 24 bits.
    pub first_packet: u32,
    /// Largest packet in bytes; the smaller of both ends counts.
    pub mtu: u32,
}

/// An adapter, opened for one rank.
///
/// Order at set-up: every rank creates its queue pairs and registers its memory; ranks exchange [`Nic::port`], [`Address`]es and
/// [`Share`]s; every rank admits its peers' and connects. [`Nic::connect`] and [`Nic::reset`] are for queue pairs with nothing in
/// flight at either end.
///
/// # Safety
/// The adapter writes to its queues and to registered memory alone, as entries say. Queues, records and doorbells are where
/// [`QueuePair`] says, until [`Nic::destroy`].
pub unsafe trait Nic: Send + Sync + fmt::Debug {
    /// Which adapter, for people.
    fn name(&self) -> String;

    /// Registers memory for entries of this rank and of peers.
    ///
    /// # Errors
    /// If the adapter cannot reach the memory.
    ///
    /// # Safety
    /// The memory stays valid until [`Nic::deregister`] has returned on this adapter.
    unsafe fn register(&self, memory: &Memory<'_>) -> Result<Region>;

    /// Registers memory that entries name by addresses from 0 on.
    ///
    /// # Errors
    /// As for [`Nic::register`].
    ///
    /// # Safety
    /// As for [`Nic::register`].
    unsafe fn register_zero_based(&self, memory: &Memory<'_>) -> Result<Region>;

    /// Takes a region's keys back. Entries that name them later fail.
    ///
    /// # Errors
    /// If there is no such region.
    fn deregister(&self, region: &Region) -> Result<()>;

    /// What peers need to reach a region.
    ///
    /// # Errors
    /// If there is no such region.
    fn share(&self, region: &Region) -> Result<Share>;

    /// Makes a queue pair with a completion queue of its own.
    ///
    /// # Errors
    /// If the depth cannot be, or the adapter has no more.
    fn create_queue(&self, request: &QueueRequest, memory: &dyn QueueSource) -> Result<QueuePair>;

    /// How a peer reaches a queue pair.
    ///
    /// # Errors
    /// If there is no such queue pair.
    fn address(&self, queue: &QueuePair) -> Result<Address>;

    /// What peers need to reach this adapter at all, to be passed to their [`Nic::admit_port`].
    ///
    /// # Errors
    /// If it cannot be passed on.
    fn port(&self) -> Result<Option<OwnedFd>>;

    /// Learns how to reach the adapter of rank `peer`.
    ///
    /// # Errors
    /// If it cannot be reached.
    fn admit_port(&self, peer: usize, port: Option<OwnedFd>) -> Result<()>;

    /// Learns how to reach a region of rank `peer`.
    ///
    /// # Errors
    /// If it cannot be reached.
    fn admit(&self, peer: usize, share: Share) -> Result<()>;

    /// Connects a queue pair to one of rank `peer`, or of this rank itself if `peer` is `None`.
    ///
    /// # Errors
    /// If the two do not fit.
    fn connect(&self, queue: &QueuePair, peer: Option<usize>, remote: &Address) -> Result<()>;

    /// Empties a queue pair and its completion queue, whatever state it is in, and connects it as before.
    ///
    /// # Errors
    /// If it was never connected, or was used and the adapter cannot empty a completion queue in place.
    fn reset(&self, queue: &QueuePair) -> Result<()>;

    /// Ends a queue pair: its memory is not touched any more.
    fn destroy(&self, queue: &QueuePair);

    /// Waits until nothing is in flight on a queue pair, for at most `patience`.
    ///
    /// # Errors
    /// If something still is.
    fn drain(&self, queue: &QueuePair, patience: std::time::Duration) -> Result<()>;

    /// Rank `peer` is gone: what is under way to it fails.
    fn lost(&self, peer: usize);
}
