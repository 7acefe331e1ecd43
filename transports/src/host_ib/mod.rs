//! InfiniBand and RoCE through the host: kernels write commands into a ring, a proxy thread posts verbs.
//!
//! | memory | where | who writes | registered for |
//! |---|---|---|---|
//! | lines, incoming staging, heap, aborts of peers | host | peers' adapters | peers |
//! | outgoing staging, bounce memory | host | own kernels | own requests |
//! | ring of commands, record | host | own kernels, proxy | nobody |
//! | abort word, channel states, tickets | machine of the kernels | own kernels | nobody |
//!
//! A block stores into its outgoing ring and posts a write and a signal: two commands, carried out in order on one queue pair, so the
//! signal is seen after what was written. A retransmission may read bytes that the block has overwritten meanwhile, once the peer has
//! freed them; that is harmless, since the peer has received every packet up to its signal by then and drops duplicates. `get` reads
//! into the own heap and waits for the completion before its block goes on, so no signal of the block overtakes it.
//! No word is changed both by an adapter and by kernels: what peers write, this rank only reads.
//!
//! A fault of this rank is in its record, which the proxy watches; it tells the peers by a write into their inboxes, and raises this
//! rank's abort word when a peer has written into its own. After a fault the proxy carries nothing out until `renew`, whatever is
//! still in the ring, and connects anew where a queue pair was broken. What is acknowledged need not be in the peer's memory yet: `renew`
//! reads there before anything is cleared.
//!
//! On a GPU all staging is pinned host memory, which kernels store to and poll over PCIe.

mod ops;
mod ring;

pub use ops::HostIbOps;

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod memory;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod proxy;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use host::{HostIb, HostIbOptions};
#[cfg(all(test, feature = "host", not(target_arch = "nvptx64")))]
mod tests;
