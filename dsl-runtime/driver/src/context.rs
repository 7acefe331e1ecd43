//! Contexts: a device made usable in this process.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use crate::Device;
use crate::error::{Error, Result, check};
use crate::handle::Handle;
use crate::partition::{Counted, Partition};

/// The primary context of a device, retained while any clone or anything made from it lives.
///
/// It is the context that the CUDA runtime, and so PyTorch and NCCL, use. Every operation in this crate makes
/// its context current on the calling thread by itself.
///
/// [`Context::partition`] gives the same context confined to some multiprocessors: memory, modules and addresses
/// are those of the one context, and streams made of it run kernels there. Both compare equal.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
    part: Option<Arc<Partition>>,
}

struct Inner {
    raw: Handle<sys::CUcontext>,
    device: Device,
    /// Unlike a handle, which the driver may give out again, never the same twice; never 0.
    id: u64,
    /// Of the device: see [`Context::submitting`].
    submitting: &'static Mutex<()>,
}

/// What may be the matter where a context finds no room under MPS.
const MANY_CLIENTS: &str = " (under MPS all clients share the device's hardware queues: where CUDA_DEVICE_MAX_CONNECTIONS is set, set it to \
                            fewer, such as 2)";

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
        check(result, "cuDevicePrimaryCtxRetain", || {
            let mps = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").is_some();
            let hint = if mps { MANY_CLIENTS } else { "" };
            format!("opening a context on {device}{hint}")
        })?;
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let inner = Inner { raw: Handle(raw), device: device.clone(), id, submitting: turn(device) };
        let context = Self { inner: Arc::new(inner), part: None };
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

    /// The same context, confined to part `place` of `of` equal ones of the device's multiprocessors
    /// (`cuDevSmResourceSplitByCount`, `cuGreenCtxCreate`). Parts of one split have no multiprocessor in common, in other
    /// processes too; what does not divide evenly is in none. They are made once in a process and kept.
    ///
    /// The first call for a device and `of` waits for the kernels that run on the device.
    ///
    /// # Errors
    /// [`Error::Misuse`] unless `place < of`, for a context that is a part already, and while parts of another split of this device are
    /// in use; [`Error::Unsupported`] if the device does not divide into so many; [`Error::Call`] otherwise.
    pub fn partition(&self, place: u32, of: u32) -> Result<Self> {
        if self.part.is_some() {
            return Err(Error::misuse("a part of a device cannot be divided again"));
        }
        let part = Partition::get(self, place, of)?;
        Ok(Self { inner: Arc::clone(&self.inner), part: Some(part) })
    }

    /// The same context with all multiprocessors of the device.
    pub fn whole(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), part: None }
    }

    /// Which part of how many, if it is one.
    pub fn place(&self) -> Option<(u32, u32)> {
        self.part.as_ref().map(|part| part.place())
    }

    /// Multiprocessors that kernels on its streams run on.
    pub fn multiprocessors(&self) -> u32 {
        self.part.as_ref().map_or(self.device().sm_count(), |part| part.multiprocessors())
    }

    /// Streams that this process has of all parts of the device.
    pub fn streams_of_parts(&self) -> u32 {
        Counted::on(self.device().ordinal())
    }

    /// Counts a stream, if this is a part.
    pub(crate) fn count_stream(&self) -> Option<Counted> {
        self.part.as_ref().map(|_| Counted::new(self.device().ordinal()))
    }

    /// Held by whoever queues work on the device. Of launches that threads of one process make at the same time, drivers begin some only
    /// when another follows (seen with 580.159, in green contexts and without): a kernel that waits for such a one waits for ever. What
    /// may wait for a kernel must not hold it.
    pub(crate) fn submitting(&self) -> MutexGuard<'static, ()> {
        self.inner.submitting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `make` with the part current, if it is one, to which streams and events then belong.
    pub(crate) fn within<R>(&self, make: impl FnOnce() -> R) -> Result<R> {
        self.bind()?;
        let Some(part) = &self.part else { return Ok(make()) };
        part.set_current()?;
        let made = make();
        self.bind()?;
        Ok(made)
    }

    /// Lets kernels have stacks of `bytes` bytes a thread (`cuCtxSetLimit`). A launch that needs more than any before waits for all
    /// kernels of the context; behind this it does not.
    ///
    /// # Errors
    /// [`Error::Call`] if the device has no room for them.
    pub fn reserve_stack(&self, bytes: usize) -> Result<()> {
        self.bind()?;
        let (limit, mut now) = (sys::CUlimit_enum::CU_LIMIT_STACK_SIZE, 0);
        let what = || format!("reserving stacks of {bytes} bytes a thread on {}", self.device());
        // SAFETY: `now` is a valid out-pointer; the context is current.
        check(unsafe { sys::cuCtxGetLimit(&mut now, limit) }, "cuCtxGetLimit", what)?;
        if now >= bytes {
            return Ok(());
        }
        // SAFETY: the function takes numbers; the context is current.
        check(unsafe { sys::cuCtxSetLimit(limit, bytes) }, "cuCtxSetLimit", what)
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

/// The turn of whoever queues work on a device: one for a process.
fn turn(device: &Device) -> &'static Mutex<()> {
    static ALL: Mutex<Vec<&'static Mutex<()>>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    while all.len() <= device.ordinal() {
        all.push(Box::leak(Box::default()));
    }
    all[device.ordinal()]
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
        let (device, part) = (self.device().ordinal(), self.place());
        f.debug_struct("Context").field("device", &device).field("part", &part).finish_non_exhaustive()
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
    let _ = relaxed(call);
}

/// Runs `call` with the calling thread's capture mode relaxed (`cuThreadExchangeStreamCaptureMode`): other captures forbid what might wait, and
/// are invalidated by it. `call` does nothing to a stream that is captured. The driver is loaded.
pub fn relaxed<R>(call: impl FnOnce() -> R) -> R {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: `mode` is valid for reading and writing; the driver puts the former mode into it.
    let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    let result = call();
    if exchanged as u32 == 0 {
        // SAFETY: as above; this restores the former mode.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    }
    result
}
