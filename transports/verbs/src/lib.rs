//! A small safe layer over libibverbs, loaded at run time.
//!
//! The build needs no system package, and a binary with this crate in it starts where there is no libibverbs: the first call says
//! "no RDMA adapter" and what to do. The declarations in [`sys`] are rdma-core's, written by hand and pinned by offsets.
//!
//! | | |
//! |---|---|
//! | [`Adapter`] | an open device, its port, GID and protection domain |
//! | [`Memory`] | a registration of memory that exists already: heap, memfd, GPU memory by dma-buf |
//! | [`CompletionQueue`] | reports |
//! | [`QueuePair`] | a reliable connection: write, write with immediate, read, send, receive, fetch-add, compare-and-swap, inline, fence |
//!
//! Only registering is `unsafe`: it is there that the caller vouches for memory which the adapter then writes on its own. Requests
//! name addresses and keys, and the adapter refuses wrong ones.
//!
//! For direct verbs (mlx5 queues driven by a GPU), [`Adapter::as_raw_context`], [`Adapter::as_raw_domain`], [`QueuePair::as_raw`],
//! [`Memory::register_dmabuf`] and [`library::mlx5`] are the way in.
//!
//! Memory order: a write of a reliable queue pair becomes visible after the writes before it. The InfiniBand specification promises
//! that only for what a receive or an atomic reports; adapters do it for all memory that is not registered for relaxed ordering, and
//! NCCL, NVSHMEM and MPI libraries rely on it as this project does. Reads and atomics may be overtaken by later requests of the same
//! pair; [`Request::fence`] keeps those back.

mod adapter;
mod error;
mod filter;
pub mod library;
mod memory;
mod pair;
mod queue;
pub mod sys;

pub use adapter::{Adapter, Limits, Port, adapters};
pub use error::{Error, Result};
pub use filter::Filter;
pub use memory::{Access, Memory};
pub use pair::{Endpoint, Local, PairOptions, QueuePair, Remote, Request, Work, first_packet};
pub use queue::{Completion, CompletionQueue, Status};
