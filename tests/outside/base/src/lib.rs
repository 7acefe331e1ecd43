//! A device crate that another one uses, and an ordinary crate for those who do not ask for the feature `fusewire`.
#![no_std]

/// Steps from one whole number to the next.
#[cfg(feature = "fine")]
pub const STEPS: u32 = 8;

#[cfg(all(feature = "fusewire", not(target_arch = "nvptx64")))]
fusewire::device_crate! {}
