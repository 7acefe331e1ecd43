//! Host shared memory: ranks are threads or processes of one host, blocks are threads.

mod ops;

pub use ops::ShmOps;

#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
mod host;
#[cfg(all(feature = "host", not(target_arch = "nvptx64")))]
pub use host::Shm;
