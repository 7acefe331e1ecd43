//! `libfusewire_c.so`: the C interface with the shipped collectives, for programs that link it.
//!
//! A crate of its own, since Cargo keeps one file of a crate that is both a C library and a Rust one, whatever its features.

pub use fusewire_capi::*;
