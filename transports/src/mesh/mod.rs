//! Two transports as one: peers of this rank's domain over `Intra`, all others over `Inter`. One collective, in one launch, uses both.
//!
//! `NvlMesh` is NVLink within a host and InfiniBand across hosts; `ShmMesh` is the same for CPU threads and processes. Each peer's tiles
//! and streams go over the link that reaches it. What belongs to a rank as a whole goes over `Inter`, which reaches every rank: abort
//! words, the symmetric heap (`put` and `get`), and signals of the user's own, which order themselves after puts. So raw puts within a
//! domain do not use the faster link.
//!
//! Where domains are aligned ([`Ops::domain`](fusewire_device::ops::Ops::domain)), all-reduces, all-gathers, reduce-scatters, broadcasts and reduces may go by
//! domains: `Protocol::Hierarchical` of the crate `fusewire`. Scatters, gathers and all-to-alls do not: each byte goes to one rank, and crosses once as it is.

mod ops;

pub use ops::{FAR, MeshOps};

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use host::Mesh;
