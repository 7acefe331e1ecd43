//! What this crate asks of libibverbs and libmlx5: a seam, so that tests record what is asked.

mod libraries;
mod sys;

pub use libraries::{Libraries, is_mlx5};

use crate::prm::Command;
use fusewire_nic::Result;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// A thing of a library's, by its address. Ended once, by the driver that made it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub(crate) usize);

/// Memory for an adapter.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// Host memory.
    Host(NonNull<u8>, u64),
    /// A dma-buf, from an offset on.
    DmaBuf(BorrowedFd<'a>, u64, u64),
}

/// A page of the adapter's with a doorbell.
#[derive(Debug)]
pub struct Page {
    /// To end it.
    pub handle: Handle,
    /// Its number, for commands.
    pub number: u32,
    /// The doorbell, mapped for the CPU.
    pub doorbell: NonNull<u8>,
}

/// How the processor's caches treat a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Not cached, a page of its own.
    Dedicated,
    /// Not cached.
    NonCached,
    /// Write-combined; every adapter has it.
    BlueFlame,
}

/// Registered memory.
#[derive(Debug)]
pub struct Registered {
    /// To end it.
    pub handle: Handle,
    /// Key for own entries.
    pub lkey: u32,
    /// Key for peers.
    pub rkey: u32,
}

/// An open adapter.
pub trait Driver: Send + Sync {
    /// Runs a command that makes nothing.
    fn general(&self, command: &Command) -> Result<Vec<u8>>;

    /// Runs a command that makes something.
    fn create(&self, command: &Command) -> Result<(Handle, Vec<u8>)>;

    /// Runs a command that changes something.
    fn modify(&self, object: &Handle, command: &Command) -> Result<Vec<u8>>;

    /// Runs a command that asks about something.
    fn query(&self, object: &Handle, command: &Command) -> Result<Vec<u8>>;

    /// Ends what [`Driver::create`] made.
    fn destroy(&self, object: Handle) -> Result<()>;

    /// Registers memory for queues: its handle and number.
    ///
    /// # Safety
    /// The memory stays valid until [`Driver::unpin`].
    unsafe fn pin(&self, bytes: Bytes<'_>) -> Result<(Handle, u32)>;

    /// Takes [`Driver::pin`] back.
    fn unpin(&self, memory: Handle) -> Result<()>;

    /// Maps a doorbell.
    fn page(&self, kind: PageKind) -> Result<Page>;

    /// Unmaps a doorbell.
    fn free_page(&self, page: Handle);

    /// Number of the protection domain.
    fn domain(&self) -> Result<u32>;

    /// Number of the event queue that completion queues name.
    fn event_queue(&self) -> Result<u32>;

    /// Registers memory for entries, which name it by addresses from `address` on; peers may write, read and do atomics.
    ///
    /// # Safety
    /// The memory stays valid until [`Driver::deregister`].
    unsafe fn register(&self, bytes: Bytes<'_>, address: u64) -> Result<Registered>;

    /// Takes [`Driver::register`] back.
    fn deregister(&self, region: Handle) -> Result<()>;

    /// MAC address of the next hop to `gid`, from the own GID of this index.
    fn mac(&self, gid: [u8; 16], index: u8, hop_limit: u8) -> Result<[u8; 6]>;
}
