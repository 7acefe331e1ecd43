//! Transports: one folder each, device half (`ops`) and host half side by side.
//!
//! | transport | peers | device half | host half |
//! |---|---|---|---|
//! | [`shm`] | threads and processes of one host | stores into mapped memory | memfd, passed over Unix sockets |
//! | [`nvl`] | GPUs that reach each other's memory | stores over NVLink | CUDA VMM allocations, passed as file descriptors |
//! | [`ibgda`] | any with an adapter | mlx5 work queue entries written by kernels | queue pairs over a NIC, so far the emulated one |
//! | [`template`] | nobody's | documented blanks | documented blanks |
//!
//! The crate is compiled for the device without its default feature `host`; then only the device halves are there.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod ibgda;
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
    pub use crate::ibgda::IbgdaOps;
    pub use crate::nvl::NvlOps;
    pub use crate::shm::ShmOps;
}

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub mod peers;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use {host::Transport, ibgda::Ibgda, nvl::Nvl, peers::MultiPeerTransport, shm::Shm};
