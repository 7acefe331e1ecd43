//! GPU-initiated InfiniBand: kernels write mlx5 work queue entries themselves and ring the doorbell.
//!
//! | file | what is there |
//! |---|---|
//! | [`buffer`](LocalBuffer) | plain values that name registered memory here and at a peer |
//! | [`wqe`] | the entries, byte by byte |
//! | [`Queue`] | a queue pair as kernels see it: reservation, readiness, doorbell, completions |
//! | [`Endpoint`] | operations of a thread or a group towards one peer |
//! | [`IbgdaOps`] | the seam that schedules use |
//! | `host` | queue pairs, keys, connection and memory, over a NIC |
//!
//! The same code runs on `nvptx64` and on CPU threads. Everything below the doorbell has so far met only the emulated NIC of
//! `fusewire-nic`, never an adapter.
//!
//! # Order
//! On one queue pair, data arrives before the signal posted after it. Between queue pairs there is no order; an [`Endpoint`] stays on
//! one. A local completion says that the peer's adapter has acknowledged, not that the peer's threads have seen anything. A counter
//! grows after the entries it counts: its addition waits, on a companion queue pair, for their completion.
//!
//! Signal and counter memory is the caller's: 8 aligned bytes each, written by adapters alone while in use, on 128-byte lines that
//! neither a GPU's atomics nor another adapter's share. The one exception is the abort word, see [`IbgdaOps`].
//!
//! Sources: mlx5 Programmer's Reference Manual and rdma-core's `mlx5dv.h` for the layouts; InfiniBand Architecture Specification
//! vol. 1, chapter 9, for the reliable connection.

mod buffer;
mod endpoint;
mod ops;
mod queue;
mod wait;
pub mod wqe;

pub use buffer::{Key, LocalBuffer, RemoteBuffer};
pub use endpoint::{Endpoint, IbgdaPeer, Pair, Posted, Work};
pub use ops::{IbgdaOps, PeerRegion, heap_copy_offset, outgoing_offset, region_bytes};
pub use queue::{Queue, QueueState, state_bytes};
pub use wait::{Broken, Compare, read_signal, wait_signal};

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use host::{Ibgda, IbgdaOptions, Memory};
