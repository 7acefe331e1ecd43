//! Every intrinsic there is, one file per target, the same names in both.
//!
//! Nothing outside this folder contains inline assembly, and nothing inside it knows of channels or hooks.

#[cfg(target_arch = "nvptx64")]
mod nvptx;
#[cfg(target_arch = "nvptx64")]
pub use nvptx::*;

#[cfg(not(target_arch = "nvptx64"))]
mod host;
#[cfg(not(target_arch = "nvptx64"))]
pub use host::*;
