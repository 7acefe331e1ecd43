//! Windows: signals, barriers, counters and data between a rank and its peers, for schedules of one's own.
//!
//! | part | where it lies | who writes | who waits |
//! |---|---|---|---|
//! | signal of (writer, id) | the receiver's inbox | one peer, `set` or `add` | its rank |
//! | barrier of (writer, id) | the receiver's inbox | one peer, `add` | its rank |
//! | counter of (peer, id) | this rank's inbox | its own adapter, or this rank itself | its rank |
//! | epochs | this rank's own memory | its rank | nobody |
//! | data | the registered buffer of each rank | `put` of any rank, by the user's protocol | |
//!
//! Every word stands on a 128-byte line of its own and has one writer. Peers whose memory can be stored to and peers that are reached
//! by an adapter have inboxes in different allocations, so that a processor's and an adapter's atomics never meet.
//!
//! **Replay.** Nothing is ever reset: barriers count arrivals, and [`Window::wait_next_from`] takes its threshold from an epoch in
//! device memory. A captured graph replays for ever. The waits that compare ([`Window::wait_signal_from`]) see what has been sent
//! since the window was made, or since its host half reset the signals.
//!
//! **Order.** What a group stored or put towards a peer before it signals is visible to whoever has seen that signal by a wait.
//! There is no order between different peers.
//!
//! **Faults.** A rank, id or offset that does not exist, and a wait that expires, end the kernel; the record names the line of the
//! call. After that no operation of the block does anything.
//!
//! Sources: the device windows of torchcomms' pipes (`DeviceWindow.cuh`) for what there is; PTX ISA, "Memory Consistency Model", for
//! why it is right; `docs/memory-order.md`.

mod barriers;
mod bound;
mod copy;
mod counters;
mod data;
mod layout;
mod peers;
mod poll;
mod rdma;
mod signals;

pub use bound::Window;
pub use layout::{WindowLayout, WindowPeer};
pub use peers::{DevicePeers, LinkKind, PeerSlot};
pub use rdma::{Add, LocalMemory, NoRdma, Rdma, Refused, RemoteMemory, Route, Transfer};

use crate::args::{Crosses, Lent, made_of};
use core::marker::PhantomData;

/// Operations of windows, as numbers in an abort record; [`NAMES`](operation::NAMES) has their names in the same order.
pub mod operation {
    use crate::wait::operation::WINDOW;
    macro_rules! operations {
        ($($name:ident $text:literal,)*) => {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Number { $($name,)* }
            $(#[doc = concat!("`", $text, "`")] pub const $name: u32 = WINDOW + Number::$name as u32;)*
            /// Names as users write them.
            pub const NAMES: &[&str] = &[$($text,)*];
        };
    }
    operations! {
        SIGNAL_PEER "signal_peer",
        SIGNAL_ALL "signal_all",
        WAIT_SIGNAL "wait_signal",
        WAIT_SIGNAL_FROM "wait_signal_from",
        WAIT_NEXT "wait_next",
        WAIT_NEXT_FROM "wait_next_from",
        READ_SIGNAL "read_signal",
        READ_SIGNAL_FROM "read_signal_from",
        BARRIER "barrier",
        BARRIER_PEER "barrier_peer",
        BARRIER_ARRIVE "barrier_arrive",
        BARRIER_ARRIVE_PEER "barrier_arrive_peer",
        BARRIER_WAIT "barrier_wait",
        BARRIER_WAIT_PEER "barrier_wait_peer",
        BARRIER_GRID "barrier_grid",
        WAIT_COUNTER "wait_counter",
        READ_COUNTER "read_counter",
        RESET_COUNTER "reset_counter",
        PUT "put",
        PUT_SIGNAL "put_signal",
        PUT_SIGNAL_COUNTER "put_signal_counter",
    }
}

/// How a value is compared with what a signal or counter holds; numbers are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// The signal is less.
    Lt,
    /// The signal is less or equal.
    Le,
    /// The signal is greater.
    Gt,
    /// The signal is greater or equal.
    Ge,
}

impl Cmp {
    /// Whether `seen` compares so with `value`.
    #[inline(always)]
    pub const fn holds(self, seen: u64, value: u64) -> bool {
        match self {
            Cmp::Eq => seen == value,
            Cmp::Ne => seen != value,
            Cmp::Lt => seen < value,
            Cmp::Le => seen <= value,
            Cmp::Gt => seen > value,
            Cmp::Ge => seen >= value,
        }
    }
}

/// What a signal does to the word at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOp {
    /// Stores the value. Not over an adapter.
    Set,
    /// Adds the value; wraps.
    Add,
}

/// The kinds of link that a window's peers may have: what is not among them is left out when a kernel is compiled.
///
/// # Safety
/// The host half gives a kernel such a window only if every peer's link is of a kind that is `true` here.
pub unsafe trait Links: Copy + Send + Sync + 'static {
    /// Some peers' memory can be stored to.
    const MAPPED: bool;
    /// Some peers are reached by an adapter.
    const RDMA: bool;
    /// Operations of that adapter.
    type Adapter: Rdma;
}

/// Every peer's memory can be stored to: NVLink, or shared memory of the host.
#[derive(Clone, Copy, Debug)]
pub struct AllMapped;

// SAFETY: the host half checks it before each launch.
unsafe impl Links for AllMapped {
    const MAPPED: bool = true;
    const RDMA: bool = false;
    type Adapter = NoRdma;
}

/// A window as it crosses to a kernel: one flat value. [`Kernel::window`](crate::kernel::Kernel::window) gives its operations.
///
/// Kernels take it as an argument, `window: DeviceWindow` if every peer's memory can be stored to, `DeviceWindow<Mixed>` for any mix of
/// links; a launch is given the host half in its place. A kernel has it for `'a`, as long as it runs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceWindow<'a, L: Links = AllMapped> {
    parts: WindowParts<L>,
    life: PhantomData<&'a ()>,
}

impl<'a, L: Links> DeviceWindow<'a, L> {
    /// A window of these parts.
    ///
    /// # Safety
    /// Its tables and memory are as the parts say, as long as kernels use it, and every peer's link is of a kind that `L` admits. No
    /// access races with those of its operations.
    #[inline(always)]
    pub const unsafe fn new(parts: WindowParts<L>) -> Self {
        DeviceWindow { parts, life: PhantomData }
    }

    /// What it is made of.
    #[inline(always)]
    pub const fn parts(&self) -> &WindowParts<L> {
        &self.parts
    }

    /// The same for a shorter time.
    #[inline(always)]
    pub const fn lend<'b>(self, _: Lent<'b>) -> DeviceWindow<'b, L>
    where
        'a: 'b,
    {
        DeviceWindow { parts: self.parts, life: PhantomData }
    }
}

impl<L: Links> core::fmt::Debug for DeviceWindow<'_, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "DeviceWindow of rank {}, {:?}", self.parts.rank, self.parts.layout)
    }
}

// SAFETY: plain words, the same on both sides; the code is of windows, the links' kinds and the size of the adapter's part.
unsafe impl<L: Links> Crosses for DeviceWindow<'static, L> {
    const CODE: u64 =
        made_of(made_of(4, L::MAPPED as u64 | (L::RDMA as u64) << 1), size_of::<L::Adapter>() as u64);
}

/// What a [`DeviceWindow`] is made of: numbers and addresses, which nothing follows here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WindowParts<L: Links> {
    /// Counts of ranks, signals, barriers and counters.
    pub layout: WindowLayout,
    /// This rank.
    pub rank: u32,
    /// Key of this rank's data for its own adapter.
    pub data_key: u32,
    /// Address of a table of one [`WindowPeer`] for each rank.
    pub peers: u64,
    /// Address of the epochs, laid out by [`WindowLayout`].
    pub epochs: u64,
    /// Address of this rank's data; 0 without.
    pub data: u64,
    /// Bytes of it.
    pub data_bytes: u64,
    /// Address of a table of registered memory that is not the window's own data.
    pub sources: u64,
    /// Entries of it.
    pub sources_len: u64,
    /// The adapter's operations.
    pub adapter: L::Adapter,
}
