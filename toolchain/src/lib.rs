//! Finds or prepares a Rust compiler for nvptx64 and caches what it makes.
//!
//! Every rustc can emit PTX; what most of them lack is `core` for the target. This crate looks, in this order, at
//!
//! 1. `FUSEWIRE_DEVICE_RUSTC` (and `FUSEWIRE_DEVICE_SYSROOT`), a compiler named by the caller;
//! 2. a rustup toolchain with the target's standard library (`rustup target add nvptx64-nvidia-cuda`);
//! 3. a rustup toolchain with the `rust-src` component, from which `core` is built once;
//! 4. on Debian and Ubuntu, the distribution's own rustc packages, unpacked (never installed) into the cache.
//!
//! [`Toolchain::find`] only looks and is cheap; [`Toolchain::prepare`] downloads and builds what is missing.
//! [`Toolchain::library`] and [`Toolchain::kernel`] compile, and keep what they made under [`cache::dir`].
//!
//! ```no_run
//! use fusewire_toolchain::{Arch, Target, Toolchain, Unit};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let toolchain = Toolchain::find()?;
//! let target = Target::new(Arch::SM_90);
//! let source = r#"
//!     #![no_std]
//!     #![feature(abi_ptx)]
//!     #[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }
//!     #[unsafe(no_mangle)] pub extern "ptx-kernel" fn nothing() {}
//! "#;
//! let ptx = toolchain.kernel(&Unit::new("example", source, &target))?;
//! assert!(ptx.text.contains(".visible .entry nothing"));
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

pub mod cache;
mod command;
mod compile;
mod diagnostic;
mod error;
pub mod expanded;
mod hash;
mod progress;
pub mod ptxas;
mod source;
mod sources;
mod sysroot;
mod target;
mod toolchain;
mod trust;
mod version;

pub use compile::{Library, Ptx, Rlib, Unit};
pub use diagnostic::{DiagSpan, Diagnostic, Level};
pub use error::{Attempt, CompileError, Error};
pub use progress::{Progress, Step};
pub use source::Source;
pub use target::{Arch, ParseArchError, Target};
pub use toolchain::Toolchain;

/// The rustc target that every kernel is compiled for.
pub const DEVICE_TARGET: &str = "nvptx64-nvidia-cuda";
