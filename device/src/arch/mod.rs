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

/// Loads 16 bytes of an input: by a policy of [`cache_policy`], or as what is read once.
///
/// # Safety
/// As for [`load_16`].
#[inline(always)]
pub unsafe fn load_input(cache_policy: Option<u64>, at: *const u8) -> [u32; 4] {
    match cache_policy {
        // SAFETY: the caller's contract.
        None => unsafe { load_16_once(at) },
        // SAFETY: the same.
        Some(policy) => unsafe { load_16_by(at, policy) },
    }
}
