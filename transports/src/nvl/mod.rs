//! GPUs that reach each other over NVLink (or PCIe peer access).

mod ops;

pub use ops::NvlOps;

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use host::Nvl;
