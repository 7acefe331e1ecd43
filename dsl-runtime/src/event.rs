//! Events: points in a stream's work, and the time between them.

use crate::stream::Kind;
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
            Kind::Host(_) => {
                let when = Arc::new(OnceLock::new());
                let told = Arc::clone(&when);
                stream.push(Arc::new(move |_| {
                    let _ = told.set(Instant::now());
                }));
                Point::Host(when)
            }
            Kind::Cuda(s) => {
                let event = cuda::Event::with_timing(s.context())?;
                event.record(s)?;
                Point::Cuda(event)
            }
        }))
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
