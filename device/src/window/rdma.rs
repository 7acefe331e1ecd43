//! What a window asks of an adapter.

use crate::group::Group;
use crate::wait::Control;

/// Registered memory of this rank, as its own adapter names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct LocalMemory {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Key.
    pub key: u32,
    /// Not used; zero.
    pub reserved: u32,
}

/// Registered memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address, as the peer registered it.
    pub address: u64,
    /// Key.
    pub key: u32,
}

/// Why an operation was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue had no room before the deadline.
    Expired,
    /// The kernel was aborted meanwhile, or another thread of the group knows why.
    Stopped,
    /// The adapter ended an entry with an error.
    Adapter {
        /// Its own code for why.
        syndrome: u64,
        /// Index of the entry in its queue.
        entry: u64,
    },
}

/// What a put moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Registered memory of this rank.
    pub from: LocalMemory,
    /// Registered memory of the peer.
    pub to: RemoteMemory,
}

/// What a signal adds where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add {
    /// A word of 8 registered, aligned bytes, which adapters alone change.
    pub word: RemoteMemory,
    /// What is added.
    pub value: u64,
}

/// A peer of an adapter, and who asks.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Number of the peer among those that the adapter reaches.
    pub peer: u32,
    /// Block that asks: those of one block to one peer keep their order.
    pub block: u32,
    /// Deadline and abort word of the kernel.
    pub control: Control,
}

/// Operations of an adapter, as windows need them.
///
/// All threads of the group call, after a group sync, with the same arguments. Operations return when they are posted, not when they
/// are complete; those on one route take effect in order.
///
/// # Safety
/// Order is as said: who sees a signal sees everything that was put before on its route.
pub unsafe trait Rdma: Copy + Send + Sync + 'static {
    /// Moves bytes.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Safety
    /// Memory is registered, and not accessed by others meanwhile.
    unsafe fn put<G: Group>(&self, group: &G, route: Route, transfer: Transfer) -> Result<(), Refused>;

    /// Adds to a word, after everything put before.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Safety
    /// As [`Add`] says.
    unsafe fn signal<G: Group>(&self, group: &G, route: Route, signal: Add) -> Result<(), Refused>;

    /// The one, then the other.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Safety
    /// As for both.
    unsafe fn put_signal<G: Group>(
        &self,
        group: &G,
        route: Route,
        transfer: Transfer,
        signal: Add,
    ) -> Result<(), Refused>;

    /// Waits until everything posted on the route is complete, at the peer too: what other routes post afterwards comes after it.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Safety
    /// None beyond that of the trait.
    unsafe fn complete<G: Group>(&self, group: &G, route: Route) -> Result<(), Refused>;

    /// [`Rdma::put_signal`]; when both are complete, 1 is added to this rank's own word at `counter`.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Safety
    /// As for the others; the counter is registered, aligned to 8, and changed by adapters alone.
    unsafe fn put_signal_counter<G: Group>(
        &self,
        group: &G,
        route: Route,
        transfer: Transfer,
        signal: Add,
        counter: LocalMemory,
    ) -> Result<(), Refused>;
}

/// No adapter: where every peer's memory can be stored to. Never called.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NoRdma;

// SAFETY: nothing is ever posted.
unsafe impl Rdma for NoRdma {
    #[inline(always)]
    unsafe fn put<G: Group>(&self, _: &G, _: Route, _: Transfer) -> Result<(), Refused> {
        Err(Refused::Stopped)
    }
    #[inline(always)]
    unsafe fn signal<G: Group>(&self, _: &G, _: Route, _: Add) -> Result<(), Refused> {
        Err(Refused::Stopped)
    }
    #[inline(always)]
    unsafe fn put_signal<G: Group>(&self, _: &G, _: Route, _: Transfer, _: Add) -> Result<(), Refused> {
        Err(Refused::Stopped)
    }
    #[inline(always)]
    unsafe fn complete<G: Group>(&self, _: &G, _: Route) -> Result<(), Refused> {
        Err(Refused::Stopped)
    }
    #[inline(always)]
    unsafe fn put_signal_counter<G: Group>(
        &self,
        _: &G,
        _: Route,
        _: Transfer,
        _: Add,
        _: LocalMemory,
    ) -> Result<(), Refused> {
        Err(Refused::Stopped)
    }
}
