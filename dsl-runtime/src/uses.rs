//! Which streams use the memory of a buffer: one that writes it, or any number that read.

use crate::stream::Queue;
use crate::{Error, Result, Stream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a stream's work does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: the host reads it once the stream is idle.
    Look,
    Read,
    /// Perhaps reading as well.
    Write,
}

/// The streams whose queued work uses a buffer's memory.
#[derive(Default)]
pub(crate) struct Uses(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whose work wrote it last. Kept: a fault of that work is a matter of all who read the results.
    wrote: Option<Arc<Queue>>,
    /// Whether that work has been waited for.
    written: bool,
    /// Who has read it since, and whether that was queued work, which may not have ended. One whose stream is gone was waited for then.
    read: Vec<(Weak<Queue>, bool)>,
}

impl Uses {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before work on `stream` uses the memory: waits for the other streams whose work must come first. Faults of kernels that wrote what
    /// is there, which their stream has not reported yet, are then `stream`'s to report, too.
    ///
    /// # Errors
    /// [`Error::Misuse`] if another stream that must come first is capturing.
    pub(crate) fn enter(&self, stream: &Stream, access: Access) -> Result<()> {
        let state = &mut *self.state();
        let own = Arc::as_ptr(stream.queue());
        let before = state.read.iter_mut().find(|(q, _)| q.as_ptr() == own);
        match (access, before) {
            (Access::Write, _) => {
                state.readers().filter(|q| Arc::as_ptr(q) != own).try_for_each(|q| wait(&q, stream))?;
            }
            (_, Some((_, queued))) => {
                *queued |= access == Access::Read;
                return Ok(());
            }
            (_, None) => {}
        }
        if let Some(writer) = state.wrote.as_ref().filter(|q| Arc::as_ptr(q) != own) {
            if !state.written {
                wait(writer, stream)?;
                state.written = true;
            }
            stream.answer_for(writer);
        }
        match access {
            Access::Look | Access::Read => {
                state.read.retain(|(q, _)| q.strong_count() > 0);
                state.read.push((Arc::downgrade(stream.queue()), access == Access::Read));
            }
            Access::Write => {
                (state.wrote, state.written) = (Some(Arc::clone(stream.queue())), false);
                state.read.clear();
            }
        }
        Ok(())
    }

    /// Waits for all of them, whatever comes of one; `look` may refuse one before it is waited for.
    pub(crate) fn wait_idle(&self, look: impl Fn(&Queue) -> Result<()>) -> Result<()> {
        let state = self.state();
        let mut first = Ok(());
        for queue in state.readers().chain(state.wrote.clone()) {
            look(&queue)?;
            // What a capture recorded has not begun.
            if !queue.is_capturing() {
                first = first.and(queue.wait_idle());
            }
        }
        first
    }
}

impl State {
    /// The streams whose queued work reads.
    fn readers(&self) -> impl Iterator<Item = Arc<Queue>> {
        self.read.iter().filter(|(_, queued)| *queued).filter_map(|(q, _)| q.upgrade())
    }
}

/// Waits for `other`, whose work `stream`'s is to follow.
fn wait(other: &Queue, stream: &Stream) -> Result<()> {
    if other.is_capturing() {
        return Err(Error::misuse(match stream.is_capturing() {
            true => "a buffer is used by two captures at once, and one of them writes it",
            false => "a buffer is used on a stream while a capture on another uses it; end the capture first",
        }));
    }
    other.wait_idle()
}
