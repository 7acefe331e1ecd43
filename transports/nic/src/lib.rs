//! Adapters for GPU-initiated InfiniBand.
//!
//! | module | what is there |
//! |---|---|
//! | crate root | [`Nic`]: what a transport asks of an adapter, in mlx5's terms |
//! | [`emulated`] | an adapter in software that reads the same queues and entries as the real one |
//!
//! Nothing here knows how kernels write entries: the emulated adapter has its own decoder, so that a mistake must be made twice to
//! pass.

pub mod emulated;
mod nic;

pub use emulated::Emulated;
pub use nic::{
    Address, Block, Error, Kind, Memory, Nic, QueuePair, QueueRequest, QueueSource, Region, Remote, Result,
    Share,
};
