//! Streams: queues of work, and waiting for them.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use crate::context::release;
use crate::error::{Error, Result, check, is};
use crate::handle::Handle;
use crate::partition::Counted;
use crate::{Context, DeviceAttribute, DevicePtr, Event};

/// A queue of work on a device, done in order. Clones share the queue.
///
/// Streams made here do not wait for the legacy default stream, nor it for them
/// (`CU_STREAM_NON_BLOCKING`). Kernels run on the context's multiprocessors ([`Context::partition`]).
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    raw: Handle<sys::CUstream>,
    context: Context,
    /// Somebody else's, who destroys it.
    foreign: bool,
    _counted: Option<Counted>,
}

/// When a stream's wait for a value in memory ends (`CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCondition {
    /// `(memory - value) as i64 >= 0`: reached or passed, and right across a wrap-around.
    GreaterOrEqual,
    /// `memory == value`.
    Equal,
    /// `memory & value != 0`.
    And,
    /// `!(memory | value) != 0`; not every device has it.
    Nor,
}

impl Stream {
    /// A stream of the default priority.
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_priority(context, 0)
    }

    /// A stream of a given priority (`cuStreamCreateWithPriority`); the driver clamps it to
    /// [`Context::priority_range`].
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn with_priority(context: &Context, priority: i32) -> Result<Self> {
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is a valid out-pointer and a context is current.
        let make = || unsafe { sys::cuStreamCreateWithPriority(&mut raw, flags, priority) };
        let result = context.within(make)?;
        check(result, "cuStreamCreateWithPriority", || format!("making a stream on {}", context.device()))?;
        let _counted = context.count_stream();
        let inner = Inner { raw: Handle(raw), context: context.clone(), foreign: false, _counted };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn of_others(context: &Context, raw: sys::CUstream) -> Self {
        let inner = Inner { raw: Handle(raw), context: context.clone(), foreign: true, _counted: None };
        Self { inner: Arc::new(inner) }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Waits, without a deadline, until the queue is empty (`cuStreamSynchronize`).
    ///
    /// # Errors
    /// [`Error::Misuse`] while capturing (the capture stays valid); [`Error::Call`] with the error of whatever
    /// failed on the device.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_capture("synchronise with")?;
        self.context().bind()?;
        // SAFETY: the stream is alive.
        let result = unsafe { sys::cuStreamSynchronize(self.as_raw()) };
        check(result, "cuStreamSynchronize", || self.waiting())
    }

    /// Waits until the queue is empty, at most `deadline`, by asking again and again with growing pauses
    /// (`cuStreamQuery`). Whatever is still running then goes on running.
    ///
    /// # Errors
    /// [`Error::Timeout`] at the deadline, else as [`Stream::synchronize`].
    pub fn synchronize_deadline(&self, deadline: Duration) -> Result<()> {
        self.refuse_capture("synchronise with")?;
        poll_until(deadline, || self.waiting(), || self.query_unchecked())
    }

    /// Whether the queue is empty (`cuStreamQuery`).
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn query(&self) -> Result<bool> {
        self.refuse_capture("query")?;
        self.query_unchecked()
    }

    fn query_unchecked(&self) -> Result<bool> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        let result = unsafe { sys::cuStreamQuery(self.as_raw()) };
        if is(result, sys::CUresult::CUDA_ERROR_NOT_READY) {
            return Ok(false);
        }
        check(result, "cuStreamQuery", || self.waiting()).map(|()| true)
    }

    /// Whether a capture of this stream is going on, valid or invalidated (`cuStreamIsCapturing`).
    ///
    /// # Errors
    /// [`Error::Call`] if the driver fails.
    pub fn is_capturing(&self) -> Result<bool> {
        self.context().bind()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive and `status` is a valid out-pointer.
        let result = unsafe { sys::cuStreamIsCapturing(self.as_raw(), &mut status) };
        check(result, "cuStreamIsCapturing", || {
            format!("looking at a stream of {}", self.context().device())
        })?;
        Ok(status as u32 != 0)
    }

    /// Lets later work wait until `event` is reached (`cuStreamWaitEvent`); the event may be of another device.
    ///
    /// # Errors
    /// [`Error::Capture`] where the wait would cross the edge of a capture, [`Error::Call`] otherwise.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        let _turn = self.context().submitting();
        // SAFETY: the stream and the event are alive; zero is the default flag.
        let result = unsafe { sys::cuStreamWaitEvent(self.as_raw(), event.as_raw(), 0) };
        check(result, "cuStreamWaitEvent", || format!("letting a stream of {} wait", self.context().device()))
    }

    /// Runs `work` on a thread of the driver once everything before it is done, and holds back what comes
    /// after (`cuLaunchHostFunc`). A panic inside is caught and dropped.
    ///
    /// `work` must not call the CUDA driver, nor wait for anything that does: the driver forbids it and may
    /// deadlock. If the context is lost first, `work` is never run.
    ///
    /// # Errors
    /// [`Error::Misuse`] while capturing, as a graph could run it more than once; [`Error::Call`] otherwise.
    pub fn launch_host_fn(&self, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.refuse_capture("queue a one-time host function on")?;
        self.context().bind()?;
        let ticket = HostWork::enqueue(Box::new(work));
        let _turn = self.context().submitting();
        // SAFETY: `run_host_work` may be called with any ticket, at any time and any number of times.
        let result = unsafe {
            sys::cuLaunchHostFunc(self.as_raw(), Some(run_host_work), ptr::without_provenance_mut(ticket))
        };
        let queued = check(result, "cuLaunchHostFunc", || "queueing a host function".to_owned());
        if queued.is_err() {
            drop(HostWork::take(ticket));
        }
        queued
    }

    /// Stores `value` at `target` in stream order, with all earlier work of the stream visible before it
    /// (`cuStreamWriteValue64`).
    ///
    /// # Safety
    /// `target` is a multiple of 8 in memory that the device may write, and stays valid until the store is
    /// done, in every replay too if it is captured.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device lacks it, [`Error::Misuse`] for an unaligned target,
    /// [`Error::Call`] otherwise.
    pub unsafe fn write_value_u64(&self, target: DevicePtr, value: u64) -> Result<()> {
        self.expect_value_ops(target)?;
        let flags = sys::CUstreamWriteValue_flags_enum::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        let _turn = self.context().submitting();
        // SAFETY: the caller vouches for `target`.
        let result = unsafe { sys::cuStreamWriteValue64_v2(self.as_raw(), target.as_u64(), value, flags) };
        check(result, "cuStreamWriteValue64", || format!("queueing a store to {target}"))
    }

    /// Holds the stream until the 8 bytes at `source` meet `condition` (`cuStreamWaitValue64`). There is no
    /// deadline on the device.
    ///
    /// # Safety
    /// `source` is a multiple of 8 in memory that the device may read, and stays valid until the wait is over,
    /// in every replay too if it is captured.
    ///
    /// # Errors
    /// As [`Stream::write_value_u64`].
    pub unsafe fn wait_value_u64(
        &self,
        source: DevicePtr,
        value: u64,
        condition: WaitCondition,
    ) -> Result<()> {
        use sys::CUstreamWaitValue_flags_enum::*;
        self.expect_value_ops(source)?;
        let device = self.context().device();
        let flags = match condition {
            WaitCondition::GreaterOrEqual => CU_STREAM_WAIT_VALUE_GEQ,
            WaitCondition::Equal => CU_STREAM_WAIT_VALUE_EQ,
            WaitCondition::And => CU_STREAM_WAIT_VALUE_AND,
            WaitCondition::Nor if device.attribute(DeviceAttribute::CanUseStreamWaitValueNor)? == 0 => {
                return Err(Error::unsupported(format!("waiting for NOR of a value on {device}")));
            }
            WaitCondition::Nor => CU_STREAM_WAIT_VALUE_NOR,
        };
        let _turn = self.context().submitting();
        // SAFETY: the caller vouches for `source`.
        let result =
            unsafe { sys::cuStreamWaitValue64_v2(self.as_raw(), source.as_u64(), value, flags as u32) };
        check(result, "cuStreamWaitValue64", || format!("queueing a wait for {source}"))
    }

    fn expect_value_ops(&self, address: DevicePtr) -> Result<()> {
        let device = self.context().device();
        if !address.as_u64().is_multiple_of(8) {
            return Err(Error::misuse(format!(
                "a 64-bit stream operation needs an address of 8, not {address}"
            )));
        }
        if device.attribute(DeviceAttribute::CanUse64BitStreamMemOps)? == 0 {
            return Err(Error::unsupported(format!("64-bit stream memory operations on {device}")));
        }
        self.context().bind()
    }

    pub(crate) fn refuse_capture(&self, what: &str) -> Result<()> {
        if self.is_capturing()? {
            return Err(Error::misuse(format!(
                "you cannot {what} a stream while it is capturing: end the capture first"
            )));
        }
        Ok(())
    }

    fn waiting(&self) -> String {
        format!("waiting for a stream of {}", self.context().device())
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> sys::CUstream {
        self.inner.raw.0
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.foreign {
            return;
        }
        // SAFETY: the last owner is going. The driver finishes what is queued before it frees the stream.
        release(Some(&self.context), || unsafe { sys::cuStreamDestroy_v2(self.raw.0) });
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.inner.raw == other.inner.raw
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("context", self.context()).field("raw", &self.inner.raw.0).finish()
    }
}

/// Asks `ready` until it says yes, first without a pause and then with pauses that grow to half a millisecond.
pub(crate) fn poll_until(
    deadline: Duration,
    what: impl FnOnce() -> String,
    mut ready: impl FnMut() -> Result<bool>,
) -> Result<()> {
    const SPIN: Duration = Duration::from_micros(100);
    const LONGEST_PAUSE: Duration = Duration::from_micros(500);
    let start = Instant::now();
    let mut pause = Duration::from_micros(10);
    loop {
        if ready()? {
            return Ok(());
        }
        let waited = start.elapsed();
        if waited >= deadline {
            return Err(Error::Timeout { what: what(), waited });
        }
        if waited < SPIN {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(pause.min(deadline - waited));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Host functions that wait to be run, by ticket. A ticket that is unknown, or used up, is simply nothing to
/// do; so no pointer of ours is ever in the driver's hands.
#[derive(Default)]
struct HostWork {
    next: usize,
    waiting: HashMap<usize, Work>,
}

static HOST_WORK: LazyLock<Mutex<HostWork>> = LazyLock::new(Mutex::default);

impl HostWork {
    fn enqueue(work: Work) -> usize {
        let mut table = HOST_WORK.lock().unwrap_or_else(PoisonError::into_inner);
        table.next += 1;
        let ticket = table.next;
        table.waiting.insert(ticket, work);
        ticket
    }

    fn take(ticket: usize) -> Option<Work> {
        HOST_WORK.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&ticket)
    }
}

unsafe extern "C" fn run_host_work(ticket: *mut c_void) {
    if let Some(work) = HostWork::take(ticket.addr()) {
        let _: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn polling_ends_with_success_error_or_timeout() {
        let mut left = 5;
        let done = poll_until(
            Duration::from_secs(5),
            || unreachable!(),
            || {
                left -= 1;
                Ok(left == 0)
            },
        );
        assert!(done.is_ok());
        let failed = poll_until(Duration::from_secs(5), || unreachable!(), || Err(Error::misuse("no")));
        assert!(matches!(failed, Err(Error::Misuse { .. })));
        let late = poll_until(Duration::from_millis(3), || "a test".into(), || Ok(false));
        let Err(Error::Timeout { what, waited }) = late else { panic!("{late:?}") };
        assert_eq!(what, "a test");
        assert!(waited >= Duration::from_millis(3));
    }

    #[test]
    fn host_work_runs_once_and_survives_a_panic() {
        let runs = Arc::new(AtomicU32::new(0));
        let counter = runs.clone();
        let ticket = HostWork::enqueue(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("quiet"));
        }));
        for _ in 0..2 {
            // SAFETY: the function takes any ticket.
            unsafe { run_host_work(ptr::without_provenance_mut(ticket)) };
        }
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}
