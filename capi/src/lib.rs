//! The C interface of fusewire: `include/fusewire.h`.
//!
//! A library that is built from a crate of kernels has this interface and knows the kernels by name:
//!
//! ```
//! use fusewire::prelude::*;
//!
//! #[comm_kernel(transports(Shm), schedules(all_to_all))]
//! mod doubled {
//!     pub struct Args<'a> {
//!         pub input: &'a [f32],
//!         pub output: Out<'a, f32>,
//!     }
//!     pub fn produce(ctx: &Produce, args: &Args) -> f32 {
//!         2.0 * args.input[ctx.index()]
//!     }
//! }
//! fusewire_capi::export!(doubled);
//! ```
//!
//! with `crate-type = ["cdylib"]` in its manifest. C opens a world, a transport and a stream, finds a kernel by its name, schedule, transport
//! and element type, prepares it, and launches it with one value for each of its fields. Python's `fusewire.load` does the same.
//!
//! # Rules for callers
//! Pointers are valid and of the objects that they say, strings end with a zero byte, and an object is not used while or after it is freed.
//! Objects may be used by several threads. What is collective is called by every rank, in the same order. Each function says what it did by a
//! status; `fusewire_last_error` of the same thread has the words and the fields. Nothing unwinds out of a function.

#![allow(non_camel_case_types)]

#[cfg(feature = "collectives")]
pub mod collectives;
mod error;
mod export;
mod kernel;
mod launch;
mod stream;
mod transport;
mod world;

pub use error::*;
pub use export::*;
pub use kernel::*;
pub use launch::*;
pub use stream::*;
pub use transport::*;
pub use world::*;

/// Version of this interface: a library and its caller have the same.
pub const FUSEWIRE_ABI: u32 = 1;

/// The [`FUSEWIRE_ABI`] that the library was built with.
#[unsafe(no_mangle)]
pub extern "C" fn fusewire_abi() -> u32 {
    FUSEWIRE_ABI
}

/// What a pointer of C points to.
///
/// # Safety
/// It is null, or valid and not written for `'a`.
unsafe fn given<'a, T>(at: *const T, name: &str) -> fusewire::Result<&'a T> {
    // SAFETY: the caller's contract.
    unsafe { at.as_ref() }.ok_or_else(|| misuse(format!("`{name}` is null")))
}

/// A string of C.
///
/// # Safety
/// It is null, or ends with a zero byte and is not written for `'a`.
unsafe fn text<'a>(at: *const std::ffi::c_char, name: &str) -> fusewire::Result<&'a str> {
    // SAFETY: not null, by `given`; the caller's contract.
    let text = unsafe { std::ffi::CStr::from_ptr(given(at, name)?) };
    text.to_str().map_err(|_| misuse(format!("`{name}` is not UTF-8")))
}

/// Elements of C.
///
/// # Safety
/// There are `len` at `at`, not written for `'a`.
unsafe fn elements<'a, T>(at: *const T, len: usize, name: &str) -> fusewire::Result<&'a [T]> {
    match len {
        0 => Ok(&[]),
        // SAFETY: the caller's contract; not null.
        _ => Ok(unsafe { std::slice::from_raw_parts(given(at, name)?, len) }),
    }
}

/// Hands `value` to C.
///
/// # Safety
/// `out` is null, or valid for a write.
unsafe fn hand<T>(out: *mut *mut T, value: T) -> fusewire::Result<()> {
    if out.is_null() {
        return Err(misuse("`out` is null"));
    }
    // SAFETY: the caller's contract.
    unsafe { out.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Takes back what [`hand`] gave; null is nothing.
///
/// # Safety
/// It came from `hand`, is freed once, and used no more.
unsafe fn take<T>(at: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's contract.
    (!at.is_null()).then(|| unsafe { Box::from_raw(at) })
}

fn misuse(what: impl Into<String>) -> fusewire::Error {
    fusewire::Error::Misuse { what: what.into() }
}
