//! Events: points in a stream's work, and the time between them.

use crate::machine::Worker;
use crate::stream::{Kind, Queue};
use crate::{Error, Result, Stream};
use fusewire_driver as cuda;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A point in a stream's work.
#[derive(Clone, Debug)]
pub struct Event(Point);

#[derive(Clone, Debug)]
enum Point {
    Host(Arc<OnceLock<Instant>>),
    Cuda(cuda::Event),
}

impl Event {
    pub(crate) fn record(stream: &Stream) -> Result<Event> {
        Ok(Event(match &stream.0.kind {
            Kind::Host(worker) => Point::Host(passed(worker)),
            Kind::Cuda(s) => {
                let event = cuda::Event::with_timing(s.context())?;
                event.record(s)?;
                Point::Cuda(event)
            }
        }))
    }

    /// An event for other streams to wait for, which tells no time. `before` may be one that this is in place of: streams that wait for that
    /// already are not held up by this. One that the host still asks about stays as it is.
    pub(crate) fn mark(queue: &Queue, before: Option<Event>) -> Result<Event> {
        Ok(Event(match &queue.kind {
            Kind::Host(worker) => Point::Host(passed(worker)),
            Kind::Cuda(stream) => {
                let event = match before {
                    Some(Event(Point::Cuda(event))) if !event.is_shared() => event,
                    _ => cuda::Event::new(stream.context())?,
                };
                event.record(stream)?;
                Point::Cuda(event)
            }
        }))
    }

    /// Holds back what is queued from here on until the event has happened.
    pub(crate) fn hold(&self, queue: &Queue) -> Result<()> {
        match (&queue.kind, &self.0) {
            (Kind::Cuda(stream), Point::Cuda(event)) => Ok(stream.wait_event(event)?),
            (Kind::Host(worker), Point::Host(when)) => {
                let when = Arc::clone(when);
                worker.push(Arc::new(move |_| {
                    when.wait();
                }));
                Ok(())
            }
            _ => Err(Error::misuse("a stream cannot wait for one of another device")),
        }
    }

    /// Waits until it has happened.
    pub(crate) fn wait(&self) -> cuda::Result<()> {
        match &self.0 {
            Point::Host(when) => {
                when.wait();
                Ok(())
            }
            Point::Cuda(event) => event.synchronize(),
        }
    }

    /// Whether it has happened.
    pub(crate) fn has_happened(&self) -> Result<bool> {
        match &self.0 {
            Point::Host(when) => Ok(when.get().is_some()),
            Point::Cuda(event) => Ok(event.query()?),
        }
    }

    /// Time from `earlier` to this event, by the device's clock.
    ///
    /// # Errors
    /// [`Error::Misuse`] if one of them has not happened yet, or they are of different devices.
    pub fn since(&self, earlier: &Event) -> Result<Duration> {
        match (&self.0, &earlier.0) {
            (Point::Host(a), Point::Host(b)) => match (a.get(), b.get()) {
                (Some(a), Some(b)) => Ok(a.saturating_duration_since(*b)),
                _ => Err(Error::misuse("the event has not happened yet: synchronize its stream first")),
            },
            (Point::Cuda(a), Point::Cuda(b)) => {
                Ok(Duration::from_secs_f64(f64::from(a.elapsed_ms_since(b)?.max(0.0)) / 1e3))
            }
            _ => Err(Error::misuse("the two events are of different devices")),
        }
    }
}

/// When a thread has got to what it was given last.
fn passed(worker: &Worker) -> Arc<OnceLock<Instant>> {
    struct Passed(Arc<OnceLock<Instant>>);
    impl Drop for Passed {
        fn drop(&mut self) {
            let _ = self.0.set(Instant::now());
        }
    }
    let when = Arc::new(OnceLock::new());
    // Also if the thread ends before: nobody waits for it then.
    worker.drop_behind(Passed(Arc::clone(&when)));
    when
}
