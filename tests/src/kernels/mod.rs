//! Kernels of the suite. Each is compiled for every transport there is.

pub mod collectives;
pub mod copying;
pub mod faulty;
pub mod folds;
pub mod hooks;
pub mod in_place;
pub mod rows;
pub mod schedules;
pub mod structs;
pub mod teams;
pub mod windows;
pub mod wires;
