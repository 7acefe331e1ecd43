//! Transports: one folder each, with a device half (`ops`) and a host half.
//!
//! | transport | peers | device half | host half |
//! |---|---|---|---|
//! | [`shm`] | threads and processes of one host | stores into mapped memory | memfd, passed over Unix sockets |
//! | [`nvl`] | GPUs that reach each other's memory | stores over NVLink | CUDA VMM allocations, passed as file descriptors |
//! | [`ibgda`] | any rank with an adapter | mlx5 work queue entries written by kernels | queue pairs over a NIC, so far tested only on the emulated one |
//! | [`mesh`] | the peers of two transports | each operation on the link that reaches the peer | a table that maps each peer to its transport |
//! | [`host_ib`] | anywhere an RDMA adapter reaches | commands to a proxy thread | verbs, or threads that emulate an adapter |
//! | [`template`] | none | documented skeleton | documented skeleton |
//!
//! For the device the crate is compiled without its default feature `host`; it then contains only the device halves.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod host_ib;
pub mod ibgda;
pub mod mesh;
pub mod mixed;
pub mod nvl;
pub mod shm;
pub mod template;

// By this name so that a test can compile device halves over words of its own.
use fusewire_device as device;

/// What schedule functions see of this crate, beside the device crate's prelude.
pub mod prelude {
    pub use crate::mixed::{AllRdma, Mixed};
}

/// The device half of every transport, by one name each: what generated kernels refer to.
pub mod ops {
    pub use crate::host_ib::HostIbOps;
    pub use crate::ibgda::IbgdaOps;
    pub use crate::nvl::NvlOps;
    pub use crate::shm::ShmOps;

    /// Of `NvlMesh`.
    pub type NvlMeshOps = crate::mesh::MeshOps<NvlOps, IbgdaOps>;
    /// Of `ShmMesh`.
    pub type ShmMeshOps = crate::mesh::MeshOps<ShmOps, IbgdaOps>;
}

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub mod p2p;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub mod peers;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub mod rdma;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use {
    host::Transport,
    host_ib::{HostIb, HostIbOptions},
    ibgda::Ibgda,
    mesh::Mesh,
    nvl::Nvl,
    peers::MultiPeerTransport,
    shm::Shm,
};

/// NVLink within a domain, GPU-initiated InfiniBand across.
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub type NvlMesh = Mesh<Nvl, Ibgda>;
/// Host shared memory within a domain, GPU-initiated InfiniBand across.
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub type ShmMesh = Mesh<Shm, Ibgda>;
