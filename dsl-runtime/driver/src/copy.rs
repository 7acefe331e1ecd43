//! Copying and setting memory by raw addresses.
//!
//! The synchronous forms have ended, on the device too, when they return. They are ordered with the legacy
//! default stream and **not** with a [`Stream`]: wait for that one first. None of them is allowed while the
//! thread captures a stream.
//!
//! With unified addressing an address says by itself which device (or the host) it is on, so a copy may go
//! from one device to another.

use std::ffi::c_void;

use bytemuck::Pod;
use cudarc::driver::sys;

use crate::error::{Error, Result, check};
use crate::{Context, DevicePtr, Stream};

/// Waits for the legacy default stream: the driver's synchronous copies from pageable memory, copies between
/// devices and sets may return before the device is done.
fn settle(context: &Context, what: impl FnOnce() -> String) -> Result<()> {
    debug_assert!(!context.as_raw().is_null());
    // SAFETY: a null handle names the legacy default stream of the current context.
    check(unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) }, "cuStreamSynchronize", what)
}

/// Copies `source` to `target` (`cuMemcpyHtoD`).
///
/// # Safety
/// `target` is writable on the device for as many bytes, and no kernel uses them meanwhile.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn h2d<T: Pod>(context: &Context, target: DevicePtr, source: &[T]) -> Result<()> {
    let bytes = size_of_val(source);
    if bytes == 0 {
        return Ok(());
    }
    let what = || format!("copying {bytes} bytes from the host to {target}");
    context.bind()?;
    let turn = context.submitting();
    // SAFETY: the source is a slice of that many bytes; the caller vouches for the target.
    let result = unsafe { sys::cuMemcpyHtoD_v2(target.as_u64(), source.as_ptr().cast(), bytes) };
    drop(turn);
    check(result, "cuMemcpyHtoD", what)?;
    settle(context, what)
}

/// Copies from `source` into `target` (`cuMemcpyDtoH`).
///
/// # Safety
/// `source` is readable on the device for as many bytes, and no kernel writes them meanwhile.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn d2h<T: Pod>(context: &Context, target: &mut [T], source: DevicePtr) -> Result<()> {
    let bytes = size_of_val(target);
    if bytes == 0 {
        return Ok(());
    }
    context.bind()?;
    let turn = context.submitting();
    // SAFETY: the target is an exclusive slice of that many bytes of a type that any bytes are valid for; the
    // caller vouches for the source.
    let result = unsafe { sys::cuMemcpyDtoH_v2(target.as_mut_ptr().cast(), source.as_u64(), bytes) };
    drop(turn);
    check(result, "cuMemcpyDtoH", || format!("copying {bytes} bytes from {source} to the host"))
}

/// Copies between device addresses (`cuMemcpyDtoD`).
///
/// # Safety
/// `source` is readable and `target` writable for `bytes`, they do not overlap, and no kernel touches either
/// in a racing way meanwhile.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn d2d(context: &Context, target: DevicePtr, source: DevicePtr, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let what = || format!("copying {bytes} bytes from {source} to {target}");
    context.bind()?;
    let turn = context.submitting();
    // SAFETY: the caller vouches for both addresses.
    let result = unsafe { sys::cuMemcpyDtoD_v2(target.as_u64(), source.as_u64(), bytes) };
    drop(turn);
    check(result, "cuMemcpyDtoD", what)?;
    settle(context, what)
}

/// Sets `bytes` bytes to `value` (`cuMemsetD8`).
///
/// # Safety
/// `target` is writable for `bytes`, and no kernel uses them meanwhile.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn memset_u8(context: &Context, target: DevicePtr, value: u8, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let what = || format!("setting {bytes} bytes at {target}");
    context.bind()?;
    let turn = context.submitting();
    // SAFETY: the caller vouches for the target.
    let result = unsafe { sys::cuMemsetD8_v2(target.as_u64(), value, bytes) };
    drop(turn);
    check(result, "cuMemsetD8", what)?;
    settle(context, what)
}

/// Queues a copy from the host (`cuMemcpyHtoDAsync`). From memory that is not page-locked it may not be
/// asynchronous, so it takes no turn with what other threads queue.
///
/// # Safety
/// As [`h2d`], and until the copy has ended both sides stay valid and the source unchanged; if captured, in
/// every replay.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn h2d_async<T: Pod>(stream: &Stream, target: DevicePtr, source: &[T]) -> Result<()> {
    let bytes = size_of_val(source);
    if bytes == 0 {
        return Ok(());
    }
    stream.context().bind()?;
    let from: *const c_void = source.as_ptr().cast();
    // SAFETY: the caller vouches for both sides until the copy has ended.
    let result = unsafe { sys::cuMemcpyHtoDAsync_v2(target.as_u64(), from, bytes, stream.as_raw()) };
    check(result, "cuMemcpyHtoDAsync", || format!("queueing a copy of {bytes} bytes to {target}"))
}

/// Queues a copy to the host (`cuMemcpyDtoHAsync`). To memory that is not page-locked it may not be
/// asynchronous, so it takes no turn with what other threads queue.
///
/// # Safety
/// As [`d2h`], and until the copy has ended both sides stay valid and nothing else reads or writes the target;
/// if captured, in every replay.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn d2h_async<T: Pod>(stream: &Stream, target: &mut [T], source: DevicePtr) -> Result<()> {
    let bytes = size_of_val(target);
    if bytes == 0 {
        return Ok(());
    }
    stream.context().bind()?;
    let to: *mut c_void = target.as_mut_ptr().cast();
    // SAFETY: the caller vouches for both sides until the copy has ended.
    let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to, source.as_u64(), bytes, stream.as_raw()) };
    check(result, "cuMemcpyDtoHAsync", || format!("queueing a copy of {bytes} bytes from {source}"))
}

/// Queues a copy between device addresses, of one device or two (`cuMemcpyDtoDAsync`).
///
/// # Safety
/// As [`d2d`], until the copy has ended; if captured, in every replay.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn d2d_async(stream: &Stream, target: DevicePtr, source: DevicePtr, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    stream.context().bind()?;
    let _turn = stream.context().submitting();
    // SAFETY: the caller vouches for both addresses until the copy has ended.
    let result =
        unsafe { sys::cuMemcpyDtoDAsync_v2(target.as_u64(), source.as_u64(), bytes, stream.as_raw()) };
    check(result, "cuMemcpyDtoDAsync", || {
        format!("queueing a copy of {bytes} bytes from {source} to {target}")
    })
}

/// Queues setting `count` bytes to `value` (`cuMemsetD8Async`).
///
/// # Safety
/// `target` is writable for `count` bytes until it is done, and nothing races; if captured, in every replay.
///
/// # Errors
/// [`Error::Call`] or [`Error::Capture`].
pub unsafe fn memset_u8_async(stream: &Stream, target: DevicePtr, value: u8, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    stream.context().bind()?;
    let _turn = stream.context().submitting();
    // SAFETY: the caller vouches for the target until it is done.
    let result = unsafe { sys::cuMemsetD8Async(target.as_u64(), value, count, stream.as_raw()) };
    check(result, "cuMemsetD8Async", || format!("queueing to set {count} bytes at {target}"))
}

/// Queues setting `count` 32-bit words to `value` (`cuMemsetD32Async`).
///
/// # Safety
/// `target` is writable for 4 × `count` bytes until it is done, and nothing races; if captured, in every
/// replay.
///
/// # Errors
/// [`Error::Misuse`] if `target` is not a multiple of 4, [`Error::Call`] or [`Error::Capture`].
pub unsafe fn memset_u32_async(stream: &Stream, target: DevicePtr, value: u32, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    if !target.as_u64().is_multiple_of(4) {
        return Err(Error::misuse(format!("setting 32-bit words needs an address of 4, not {target}")));
    }
    stream.context().bind()?;
    let _turn = stream.context().submitting();
    // SAFETY: the caller vouches for the target until it is done.
    let result = unsafe { sys::cuMemsetD32Async(target.as_u64(), value, count, stream.as_raw()) };
    check(result, "cuMemsetD32Async", || format!("queueing to set {count} words at {target}"))
}
