//! A device crate that another one uses.
#![cfg_attr(target_arch = "nvptx64", no_std)]

/// Steps from one whole number to the next.
#[cfg(feature = "fine")]
pub const STEPS: u32 = 8;

#[cfg(not(target_arch = "nvptx64"))]
fusewire::device_crate! {}
