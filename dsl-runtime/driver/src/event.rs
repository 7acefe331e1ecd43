//! Events: marks in a stream's queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;

use crate::context::release;
use crate::error::{Error, Result, check, is};
use crate::handle::Handle;
use crate::stream::poll_until;
use crate::{Context, Stream, symbols};

/// A mark in a stream's queue that others can wait for and, if made so, that tells the time. Clones share it.
#[derive(Clone)]
pub struct Event {
    inner: Arc<Inner>,
}

struct Inner {
    raw: Handle<sys::CUevent>,
    context: Context,
    timing: bool,
}

impl Event {
    /// An event that orders work and tells no time, which is the cheaper kind (`cuEventCreate`).
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn new(context: &Context) -> Result<Self> {
        Self::create(context, false)
    }

    /// An event that also tells the time.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn with_timing(context: &Context) -> Result<Self> {
        Self::create(context, true)
    }

    fn create(context: &Context, timing: bool) -> Result<Self> {
        use sys::CUevent_flags_enum::*;
        let flags = if timing { CU_EVENT_DEFAULT } else { CU_EVENT_DISABLE_TIMING } as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a valid out-pointer and a context is current.
        let result = context.within(|| unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        check(result, "cuEventCreate", || format!("making an event on {}", context.device()))?;
        Ok(Self { inner: Arc::new(Inner { raw: Handle(raw), context: context.clone(), timing }) })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Whether there are clones of it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Puts the mark behind everything that is in the stream's queue now (`cuEventRecord`).
    ///
    /// # Errors
    /// [`Error::Misuse`] if the stream is of another context, [`Error::Call`] otherwise.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context().expect_same(stream.context(), "an event and the stream that records it")?;
        self.context().bind()?;
        let _turn = self.context().submitting();
        // SAFETY: the event and the stream are alive and of one context.
        let result = unsafe { sys::cuEventRecord(self.as_raw(), stream.as_raw()) };
        check(result, "cuEventRecord", || format!("recording an event on {}", self.context().device()))
    }

    /// Whether the mark last recorded has been reached; true for an event that never was recorded
    /// (`cuEventQuery`).
    ///
    /// # Errors
    /// [`Error::Capture`] if it was recorded in a capture, [`Error::Call`] with the error of whatever failed.
    pub fn query(&self) -> Result<bool> {
        self.context().bind()?;
        // SAFETY: the event is alive.
        let result = unsafe { sys::cuEventQuery(self.as_raw()) };
        if is(result, sys::CUresult::CUDA_ERROR_NOT_READY) {
            return Ok(false);
        }
        check(result, "cuEventQuery", || self.waiting()).map(|()| true)
    }

    /// Waits, without a deadline, until the mark is reached (`cuEventSynchronize`).
    ///
    /// # Errors
    /// As [`Event::query`].
    pub fn synchronize(&self) -> Result<()> {
        self.context().bind()?;
        // SAFETY: the event is alive.
        let result = unsafe { sys::cuEventSynchronize(self.as_raw()) };
        check(result, "cuEventSynchronize", || self.waiting())
    }

    /// Waits until the mark is reached, at most `deadline`; whatever is still running goes on running.
    ///
    /// # Errors
    /// [`Error::Timeout`] at the deadline, else as [`Event::query`].
    pub fn synchronize_deadline(&self, deadline: Duration) -> Result<()> {
        poll_until(deadline, || self.waiting(), || self.query())
    }

    /// Milliseconds from `earlier` to this event, to about half a microsecond (`cuEventElapsedTime`).
    ///
    /// # Errors
    /// [`Error::Misuse`] unless both tell the time and are of one context; [`Error::Call`] with
    /// `CUDA_ERROR_NOT_READY` before both are reached.
    pub fn elapsed_ms_since(&self, earlier: &Self) -> Result<f32> {
        self.context().expect_same(earlier.context(), "two events with time between them")?;
        if !(self.inner.timing && earlier.inner.timing) {
            return Err(Error::misuse("only events made by `Event::with_timing` tell the time"));
        }
        let elapsed_time =
            symbols::elapsed_time().ok_or_else(|| Error::unsupported("measuring time between events"))?;
        self.context().bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and `milliseconds` is a valid out-pointer.
        let result = unsafe { elapsed_time(&mut milliseconds, earlier.as_raw(), self.as_raw()) };
        check(result, "cuEventElapsedTime", || "measuring between two events".to_owned())?;
        Ok(milliseconds)
    }

    fn waiting(&self) -> String {
        format!("waiting for an event of {}", self.context().device())
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> sys::CUevent {
        self.inner.raw.0
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner is going. The driver keeps an event until pending waits for it are over.
        release(Some(&self.context), || unsafe { sys::cuEventDestroy_v2(self.raw.0) });
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("context", self.context())
            .field("timing", &self.inner.timing)
            .finish_non_exhaustive()
    }
}
