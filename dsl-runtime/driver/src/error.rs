//! What can go wrong, and the one place where a driver's status becomes an [`Error`].

use std::ffi::{CStr, c_char};
use std::fmt;
use std::time::Duration;

use cudarc::driver::sys;

use crate::driver::Version;

/// The result of every operation in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A status returned by the CUDA driver: its number, its name and the driver's own description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    value: u32,
    name: String,
    description: String,
}

impl Code {
    /// The `CUresult` as a number, as in `cuda.h`.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// The symbolic name, `CUDA_ERROR_ILLEGAL_ADDRESS` for instance (`cuGetErrorName`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The driver's description in one sentence (`cuGetErrorString`).
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Asks the driver for the name and the description of a status it has just returned.
    fn of(result: sys::CUresult) -> Self {
        type Lookup = unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult;
        let text = |lookup: Lookup, otherwise: &str| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is a valid out-pointer. The driver sets it to a static C string, or to null for
            // a status it does not know.
            let known = unsafe { lookup(result, &mut text) };
            if known as u32 != 0 || text.is_null() {
                return otherwise.to_owned();
            }
            // SAFETY: the driver set `text` to a NUL-terminated string of static lifetime.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Self {
            value: result as u32,
            name: text(sys::cuGetErrorName, "CUDA_ERROR_UNNAMED"),
            description: text(sys::cuGetErrorString, "the driver gives no description"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.value, self.description)
    }
}

/// Why an operation failed, and what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver library cannot be used in this process.
    #[error(
        "no CUDA driver: {reason}; install the NVIDIA driver (or pass the GPUs into the container), then see \
         that `nvidia-smi` works"
    )]
    NoDriver {
        /// What was tried and what came of it.
        reason: String,
    },
    /// The driver lacks something that this crate needs.
    #[error(
        "the CUDA driver is too old: it supports CUDA {found} and CUDA {needed} is needed{}; install a newer \
         NVIDIA driver (550 or later)",
        .missing.map(|symbol| format!(" (it has no `{symbol}`)")).unwrap_or_default()
    )]
    OldDriver {
        /// The CUDA version that the driver supports.
        found: Version,
        /// The least version that this crate works with.
        needed: Version,
        /// A function that the driver lacks, where it was that which gave it away.
        missing: Option<&'static str>,
    },
    /// The driver works but shows no such device.
    #[error("no CUDA device: {reason}; look at `nvidia-smi -L` and at CUDA_VISIBLE_DEVICES")]
    NoDevice {
        /// Which device was asked for and what there is.
        reason: String,
    },
    /// A driver function returned an error.
    #[error("{function} failed while {what}: {code}")]
    Call {
        /// The driver function.
        function: &'static str,
        /// What the driver returned.
        code: Code,
        /// What it was called for.
        what: String,
    },
    /// The driver's compiler refused a module.
    #[error("the driver could not load {what}: {code}\n{log}")]
    Jit {
        /// What was loaded.
        what: String,
        /// What the driver returned.
        code: Code,
        /// The compiler's error log, with PTX line numbers; may be empty.
        log: String,
    },
    /// An allocation did not fit.
    #[error(
        "out of memory while {what}: {asked} bytes were asked for{}",
        .free.map(|free| format!(", {free} bytes are free")).unwrap_or_default()
    )]
    OutOfMemory {
        /// What was being allocated.
        what: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free on the device just afterwards, if the driver could tell.
        free: Option<u64>,
    },
    /// A wait reached its deadline. Nothing was stopped: the work may still be running.
    #[error("{what} was not done after {waited:?}; the work was left running")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long the wait lasted.
        waited: Duration,
    },
    /// An operation broke, or was refused because of, a stream capture.
    #[error("{function} failed while {what}: {code}; {reason}")]
    Capture {
        /// The driver function.
        function: &'static str,
        /// What the driver returned.
        code: Code,
        /// What it was called for.
        what: String,
        /// What this status means for the capture and what to change.
        reason: &'static str,
    },
    /// The device cannot do what was asked.
    #[error("not supported: {what}")]
    Unsupported {
        /// What is lacking and where.
        what: String,
    },
    /// The caller broke a rule of this crate; the driver was not asked.
    #[error("{what}")]
    Misuse {
        /// The rule, and what was given instead.
        what: String,
    },
}

impl Error {
    /// Whether the context is lost: the driver will return this error for every later operation on it.
    ///
    /// After such an error nothing on the device can be used any more; only ending the process recovers.
    pub fn is_sticky(&self) -> bool {
        match self {
            Self::Call { code, .. } | Self::Jit { code, .. } => is_sticky(code.value),
            _ => false,
        }
    }

    /// The driver's status, where the error came from the driver.
    pub fn code(&self) -> Option<&Code> {
        match self {
            Self::Call { code, .. } | Self::Jit { code, .. } | Self::Capture { code, .. } => Some(code),
            _ => None,
        }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }
}

/// The statuses after which `cuda.h` says that the process must be ended and started again.
fn is_sticky(value: u32) -> bool {
    use sys::CUresult::*;
    const STICKY: [sys::CUresult; 15] = [
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_CONTAINED,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED,
        CUDA_ERROR_TENSOR_MEMORY_LEAK,
        CUDA_ERROR_EXTERNAL_DEVICE,
    ];
    STICKY.iter().any(|&code| code as u32 == value)
}

/// What a capture status means, for the range of statuses that concern captures.
fn capture_reason(value: u32) -> Option<&'static str> {
    Some(match value {
        900 => {
            "the operation is not allowed while a stream is capturing, and the capture is lost: allocate, load and \
             synchronise before the capture"
        }
        901 => {
            "an earlier operation in the captured region was not allowed (a synchronisation, an allocation, a \
             query or the legacy stream) and made the capture invalid"
        }
        902 => "the operation would have joined two separate captures: capture them one after the other",
        903 => "no capture was begun on this stream",
        904 => {
            "the capture spread to another stream that was not joined again: let the captured stream wait for an \
             event recorded last on each other stream"
        }
        905 => {
            "a dependency would cross the edge of the captured region: wait only for events recorded within the \
             same capture"
        }
        906 => {
            "the legacy default stream would have been made to depend on the capture: do not use it meanwhile"
        }
        907 => "the event was last recorded in a capture: it cannot be queried or waited for by the host",
        908 => "a capture must be ended by the thread that began it",
        _ => return None,
    })
}

/// Whether `result` is the given status, compared as numbers.
///
/// A newer driver may return a status that the bindings' enum does not list, so nothing here matches on the
/// enum itself.
pub(crate) fn is(result: sys::CUresult, status: sys::CUresult) -> bool {
    result as u32 == status as u32
}

/// Turns the status of the driver function `function` into a result; `what` ends "failed while ...".
#[inline]
pub(crate) fn check(
    result: sys::CUresult,
    function: &'static str,
    what: impl FnOnce() -> String,
) -> Result<()> {
    if result as u32 == 0 { Ok(()) } else { Err(failed(result, function, what())) }
}

#[cold]
fn failed(result: sys::CUresult, function: &'static str, what: String) -> Error {
    let code = Code::of(result);
    match capture_reason(code.value) {
        Some(reason) => Error::Capture { function, code, what, reason },
        None => Error::Call { function, code, what },
    }
}

/// [`check`] for an allocation of `asked` bytes: a lack of memory becomes [`Error::OutOfMemory`].
pub(crate) fn check_alloc(
    result: sys::CUresult,
    function: &'static str,
    asked: usize,
    what: impl FnOnce() -> String,
) -> Result<()> {
    if !is(result, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
        return check(result, function, what);
    }
    let (mut free, mut total) = (0, 0);
    // SAFETY: both out-pointers are valid; without a current context the driver only returns an error.
    let known = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
    let free = (known as u32 == 0).then_some(free as u64);
    Err(Error::OutOfMemory { what: what(), asked: asked as u64, free })
}

/// [`check`] for loading a module: what the compiler has to say becomes [`Error::Jit`].
pub(crate) fn check_jit(result: sys::CUresult, what: &str, log: String) -> Result<()> {
    use sys::CUresult::*;
    const REFUSED: [sys::CUresult; 7] = [
        CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CUDA_ERROR_INVALID_PTX,
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CUDA_ERROR_JIT_COMPILATION_DISABLED,
        CUDA_ERROR_INVALID_SOURCE,
    ];
    if result as u32 == 0 {
        return Ok(());
    }
    if !log.is_empty() || REFUSED.iter().any(|&code| is(result, code)) {
        return Err(Error::Jit { what: what.to_owned(), code: Code::of(result), log });
    }
    check(result, "cuModuleLoadDataEx", || format!("loading {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(value: u32) -> Error {
        let code = Code { value, name: "CUDA_ERROR_X".into(), description: "it broke".into() };
        Error::Call { function: "cuFoo", code, what: "doing a thing".into() }
    }

    #[test]
    fn a_call_error_names_function_purpose_and_code() {
        assert_eq!(call(7).to_string(), "cuFoo failed while doing a thing: CUDA_ERROR_X (7): it broke");
        assert_eq!(call(7).code().map(Code::value), Some(7));
    }

    #[test]
    fn only_errors_that_lose_the_context_are_sticky() {
        for lost in [214, 220, 700, 702, 709, 710, 715, 716, 719] {
            assert!(call(lost).is_sticky(), "{lost}");
        }
        for kept in [1, 2, 100, 218, 500, 600, 701, 720, 900, 901, 999] {
            assert!(!call(kept).is_sticky(), "{kept}");
        }
        assert!(!Error::misuse("no").is_sticky());
    }

    #[test]
    fn optional_facts_are_left_out_of_messages() {
        let out = |free| Error::OutOfMemory { what: "allocating x".into(), asked: 64, free };
        assert_eq!(
            out(Some(3)).to_string(),
            "out of memory while allocating x: 64 bytes were asked for, 3 bytes are free"
        );
        assert_eq!(out(None).to_string(), "out of memory while allocating x: 64 bytes were asked for");
        let old = |missing| Error::OldDriver {
            found: Version::from_raw(12020),
            needed: Version::from_raw(12040),
            missing,
        };
        assert!(
            old(None)
                .to_string()
                .starts_with("the CUDA driver is too old: it supports CUDA 12.2 and CUDA 12.4 is needed;")
        );
        assert!(old(Some("cuFuncLoad")).to_string().contains("(it has no `cuFuncLoad`)"));
    }

    #[test]
    fn success_asks_for_no_text() {
        assert!(check(sys::CUresult::CUDA_SUCCESS, "cuFoo", || unreachable!()).is_ok());
    }

    #[test]
    fn every_capture_status_has_a_reason() {
        assert!((900..=908).all(|value| capture_reason(value).is_some()));
        assert!(capture_reason(899).is_none() && capture_reason(909).is_none());
    }
}
