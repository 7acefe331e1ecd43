//! A device crate: the transport [`Tube`], the schedule [`Shift`], the handle [`DeviceScales`] and shared functions of hooks.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod curve;
mod ops;
mod scales;
mod shift;

pub use ops::TubeOps;
pub use scales::DeviceScales;
pub use shift::Shift;

#[cfg(not(target_arch = "nvptx64"))]
mod host;
#[cfg(not(target_arch = "nvptx64"))]
pub use {host::Tube, scales::Scales};

#[cfg(not(target_arch = "nvptx64"))]
fusewire::device_crate! {
    uses base;
    transport Tube = TubeOps: threads, gpus;
}
