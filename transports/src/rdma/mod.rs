//! What the InfiniBand transports ask of an adapter, and two that fulfil it.
//!
//! | | connects | carries out requests |
//! |---|---|---|
//! | [`Fabric::Verbs`] | queue pairs of real adapters, soft-RoCE among them | the adapter |
//! | [`Fabric::Emulated`] | Unix sockets of one host | threads of both processes, with the same order, checks and failures |
//!
//! The emulation is for machines without an adapter: it has no speed to speak of, but wrong keys, writes past the end, missing
//! receives and dead peers fail in it as they do on an adapter, and what a fence keeps back may overtake without it.

pub(crate) mod bytes;
mod emulated;
mod verbs;

pub use emulated::Emulated;
pub use fusewire_verbs::{
    Access, Completion, Error, Filter, Local, PairOptions, Remote, Request, Result, Status, Work,
};
pub use verbs::Verbs;

use std::fmt;
use std::sync::Arc;

/// Memory that an adapter may reach, for as long as the value lives.
///
/// # Safety
/// The keys are of the memory that was registered, and reach it as long as the value lives and no longer.
pub unsafe trait Registration: Send + Sync + fmt::Debug {
    /// Address of the first byte, as requests name it.
    fn start(&self) -> u64;
    /// Bytes.
    fn bytes(&self) -> usize;
    /// What requests of this process name it by.
    fn lkey(&self) -> u32;
    /// What peers' requests name it by.
    fn rkey(&self) -> u32;
}

/// A reliable connection, carried out by an adapter.
///
/// Requests begin in the order in which they were posted. Writes take effect in that order, and after atomics and reads only if
/// fenced. After a failed request the pair is broken: the others end as [`Status::Flushed`].
///
/// # Safety
/// As for [`Adapter`]. A completion is of an operation that is over.
pub unsafe trait Pair: Send + fmt::Debug {
    /// What the peer's pair must be given to connect.
    fn endpoint(&self) -> Vec<u8>;
    /// Connects to the pair with that endpoint, which does the same.
    ///
    /// # Errors
    /// An endpoint that cannot be read or reached.
    fn connect(&mut self, peer: &[u8]) -> Result<()>;
    /// Posts a request; `false` if the queue is full. Never waits.
    ///
    /// # Errors
    /// A request that is refused at once.
    ///
    /// # Safety
    /// Nobody accesses what the request writes, here or at the peer, or writes what it reads, until it is complete, but as agreed with
    /// whom the memory belongs to: a key opens all of its registration.
    unsafe fn post(&self, request: &Request<'_>) -> Result<bool>;
    /// Posts a receive; `false` if the queue is full.
    ///
    /// # Errors
    /// A receive that is refused at once.
    ///
    /// # Safety
    /// Nobody accesses that memory until a message has arrived there.
    unsafe fn post_receive(&self, id: u64, local: Local) -> Result<bool>;
    /// Appends what has ended since the last call.
    ///
    /// # Errors
    /// If the adapter is gone.
    fn poll(&self, out: &mut Vec<Completion>) -> Result<()>;
    /// Ends the connection: what is outstanding is flushed, and the peer's requests fail.
    fn break_off(&self);
}

/// Something that registers memory and connects.
///
/// # Safety
/// Pairs move bytes between registered memory alone, and no longer than its registration lives; an operation that has not
/// been said to be complete may still be under way.
pub unsafe trait Adapter: Send + Sync + fmt::Debug {
    /// Its name.
    fn name(&self) -> &str;
    /// Registers memory that exists already.
    ///
    /// # Safety
    /// `bytes` bytes from `start` stay mapped until the registration is dropped; whoever reads or writes them meanwhile orders its
    /// accesses with the adapter's by a protocol.
    ///
    /// # Errors
    /// Memory that is not there, or too much of it.
    unsafe fn register(&self, start: *mut u8, bytes: usize, access: Access) -> Result<Box<dyn Registration>>;
    /// A pair that is not connected yet.
    ///
    /// # Errors
    /// More than the adapter has.
    fn pair(&self, options: &PairOptions) -> Result<Box<dyn Pair>>;
}

/// Which adapter to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fabric {
    /// A real one, chosen by the filter, by default `FUSEWIRE_IB_HCA`.
    #[default]
    Verbs,
    /// A real one, chosen by this filter.
    Among(Filter),
    /// None: requests are carried out by threads. All ranks on one host.
    Emulated,
}

impl Fabric {
    /// Opens an adapter; ranks of one host take turns over those there are.
    ///
    /// # Errors
    /// No adapter, in words that say what to do.
    pub fn open(&self, local_rank: usize) -> Result<Arc<dyn Adapter>> {
        match self {
            Fabric::Verbs => Ok(Arc::new(Verbs::open(&Filter::from_env()?, local_rank)?)),
            Fabric::Among(filter) => Ok(Arc::new(Verbs::open(filter, local_rank)?)),
            Fabric::Emulated => Ok(Arc::new(Emulated::late())),
        }
    }
}

/// Bytes of a registration, as requests name them.
pub fn local(memory: &dyn Registration, offset: u64, bytes: u32) -> Local {
    Local { address: memory.start() + offset, bytes, lkey: memory.lkey() }
}
