//! Streams, for C.

use crate::{fusewire_status, fusewire_transport, given, guard, hand, take};
use fusewire::Stream;
use std::ffi::c_void;
use std::time::Duration;

/// A queue of launches that run in order.
pub struct fusewire_stream(pub(crate) Stream);

/// A new stream for kernels of a transport.
///
/// # Safety
/// As the crate says; `out` takes the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_stream_new(
    transport: *const fusewire_transport,
    out: *mut *mut fusewire_stream,
) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe { hand(out, fusewire_stream(given(transport, "transport")?.device.stream()?)) })
}

/// A stream of CUDA that somebody else made (`cudaStream_t` or `CUstream`; null is the legacy default stream), for kernels of a transport on
/// GPUs. Work that is queued on it by whomever keeps its order, and a capture that somebody has begun on it records launches.
///
/// # Safety
/// As the crate says; `out` takes the stream. `raw` is valid until `fusewire_stream_free`, and over a capture of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_stream_wrap(
    transport: *const fusewire_transport,
    raw: *mut c_void,
    out: *mut *mut fusewire_stream,
) -> fusewire_status {
    // SAFETY: the caller's contract.
    guard(|| unsafe {
        let device = &given(transport, "transport")?.device;
        hand(out, fusewire_stream(Stream::from_raw(device, raw, ())?))
    })
}

/// Its handle of CUDA; null for CPU threads.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_stream_raw(stream: *const fusewire_stream) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { stream.as_ref() }.map_or(std::ptr::null_mut(), |stream| stream.0.as_raw())
}

/// Waits for everything queued so far, `limit_ms` milliseconds at most; 0 is without limit. A fault of a kernel comes out here.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_stream_synchronize(
    stream: *const fusewire_stream,
    limit_ms: u64,
) -> fusewire_status {
    guard(|| {
        // SAFETY: the caller's contract.
        let stream = &unsafe { given(stream, "stream")? }.0;
        match limit_ms {
            0 => stream.synchronize(),
            ms => stream.synchronize_within(Duration::from_millis(ms)),
        }
    })
}

/// Lets go of it and waits for nothing. What is queued runs; what is queued when the process ends is lost.
///
/// # Safety
/// As the crate says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fusewire_stream_free(stream: *mut fusewire_stream) {
    // SAFETY: the caller's contract.
    drop(unsafe { take(stream) });
}
