//! Contexts: a device made usable in this process.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;

use crate::Device;
use crate::error::{Error, Result, check, is};
use crate::handle::Handle;

/// The primary context of a device, retained while any clone or anything made from it lives.
///
/// It is the context that the CUDA runtime, and so PyTorch and NCCL, use. Every operation in this crate makes
/// its context current on the calling thread by itself.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    raw: Handle<sys::CUcontext>,
    device: Device,
    /// Unlike a handle, which the driver may give out again, never the same twice; never 0.
    id: u64,
}

thread_local! {
    /// The [`Inner::id`] that this thread made current last, 0 at first.
    static BOUND: Cell<u64> = const { Cell::new(0) };
}

/// The least and the greatest stream priority; the greatest is the smaller number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityRange {
    /// The priority of a stream that yields to all others, 0 as a rule.
    pub least: i32,
    /// The priority of a stream that goes first, a negative number as a rule.
    pub greatest: i32,
}

impl Context {
    /// Retains the primary context of `device` (`cuDevicePrimaryCtxRetain`) and makes it current.
    ///
    /// # Errors
    /// [`Error::Call`] if the device is in use exclusively elsewhere or has no memory for a context.
    pub fn new(device: &Device) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a valid out-pointer and the device exists.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device.as_raw()) };
        check(result, "cuDevicePrimaryCtxRetain", || format!("opening a context on {device}"))?;
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let context = Self { inner: Arc::new(Inner { raw: Handle(raw), device: device.clone(), id }) };
        context.bind()?;
        Ok(context)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Makes the context current on this thread (`cuCtxGetCurrent`, and `cuCtxSetCurrent` where it differs).
    ///
    /// A context that is current already costs some nanoseconds. Both the driver's thread-local value and one
    /// of this crate are compared: the former as another library on this thread may have set its own context,
    /// the latter as the handle may be that of an earlier context which is gone.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn bind(&self) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: `current` is a valid out-pointer.
        let result = unsafe { sys::cuCtxGetCurrent(&mut current) };
        check(result, "cuCtxGetCurrent", || "asking for the current context".to_owned())?;
        if current == self.inner.raw.0 && BOUND.get() == self.inner.id {
            return Ok(());
        }
        // SAFETY: the context is retained as long as `self` lives.
        let result = unsafe { sys::cuCtxSetCurrent(self.inner.raw.0) };
        check(result, "cuCtxSetCurrent", || format!("making the context of {} current", self.device()))?;
        BOUND.set(self.inner.id);
        Ok(())
    }

    /// Waits for everything on the device that this process has submitted (`cuCtxSynchronize`).
    ///
    /// This has no deadline; [`crate::Stream::synchronize_deadline`] has one.
    ///
    /// # Errors
    /// [`Error::Call`] with the error of whatever failed; [`Error::Capture`] while a stream is capturing.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the function has no arguments; the context is current.
        let result = unsafe { sys::cuCtxSynchronize() };
        check(result, "cuCtxSynchronize", || format!("waiting for {}", self.device()))
    }

    /// Bytes free and bytes in all on the device (`cuMemGetInfo`).
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both out-pointers are valid.
        let result = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
        check(result, "cuMemGetInfo", || format!("asking for the free memory of {}", self.device()))?;
        Ok((free as u64, total as u64))
    }

    /// The priorities a stream may have (`cuCtxGetStreamPriorityRange`).
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn priority_range(&self) -> Result<PriorityRange> {
        self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both out-pointers are valid.
        let result = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
        check(result, "cuCtxGetStreamPriorityRange", || format!("asking {} for priorities", self.device()))?;
        Ok(PriorityRange { least, greatest })
    }

    /// Lets kernels of this context reach memory that was allocated with `cuMemAlloc` in `peer`
    /// (`cuCtxEnablePeerAccess`), for the rest of both contexts' lives. Doing it twice is no error.
    ///
    /// Memory made by [`crate::memory::SharedMemory`] does not need it: its access is set per mapping.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a context of the same device, [`Error::Call`] if the devices cannot reach each other.
    pub fn enable_peer_access(&self, peer: &Self) -> Result<()> {
        if self.device() == peer.device() {
            return Err(Error::misuse("peer access is between two devices; both contexts are on one"));
        }
        self.bind()?;
        // SAFETY: both contexts are retained; zero is the only flag there is.
        let result = unsafe { sys::cuCtxEnablePeerAccess(peer.as_raw(), 0) };
        if is(result, sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
            return Ok(());
        }
        let what = || format!("letting {} reach the memory of {}", self.device(), peer.device());
        check(result, "cuCtxEnablePeerAccess", what)
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> sys::CUcontext {
        self.inner.raw.0
    }

    /// Refuses objects of two contexts in one operation.
    pub(crate) fn expect_same(&self, other: &Self, what: &str) -> Result<()> {
        if self == other {
            return Ok(());
        }
        Err(Error::misuse(format!(
            "{what} must belong to one context; they are on {} and {}",
            self.device(),
            other.device()
        )))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: this is the one release that balances the retain in `new`; every object made in the context
        // holds a clone and is therefore gone.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device.as_raw()) };
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        self.inner.raw == other.inner.raw
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device().ordinal()).finish_non_exhaustive()
    }
}

/// Runs a releasing call from a `Drop`, in `context` where the call needs one, and drops its status: there is
/// nobody to tell, and after a lost context or at the end of the process failing is normal.
///
/// The calling thread's capture mode is relaxed meanwhile, so that a value dropped inside a captured region
/// does not invalidate the capture.
pub(crate) fn release(context: Option<&Context>, call: impl FnOnce() -> sys::CUresult) {
    if context.is_some_and(|context| context.bind().is_err()) {
        return;
    }
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: `mode` is valid for reading and writing; the driver puts the former mode into it.
    let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    let _ = call();
    if exchanged as u32 == 0 {
        // SAFETY: as above; this restores the former mode.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
}
