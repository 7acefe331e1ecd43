//! A host stream's worker: runs operations in order.

use super::Crew;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Something a host stream does; kept by graphs, so it may run many times.
pub(crate) type Op = Arc<dyn Fn(&mut Crew) + Send + Sync>;

enum Job {
    Run(Op),
    Tell(Sender<()>),
    Drop(Box<dyn Send>),
}

thread_local! {
    static ON_STREAM: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a stream's own thread: what the last operation that used it lets go of must not wait for the stream here.
pub(crate) fn on_stream() -> bool {
    ON_STREAM.get()
}

/// What came of waiting for a stream's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Everything pushed before has run.
    Done,
    /// It was still busy.
    Late,
    /// The thread has ended, with work that it has not done.
    Gone,
}

/// A thread with a queue.
pub(crate) struct Worker {
    /// Operations that were pushed, and of them those that have run.
    pushed: AtomicU64,
    run: Arc<AtomicU64>,
    queue: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (sender, receiver) = channel::<Job>();
        let run = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&run);
        let thread = std::thread::Builder::new().name("stream".into()).spawn(move || {
            ON_STREAM.set(true);
            let mut crew = Crew::new();
            for job in receiver {
                match job {
                    Job::Run(op) => {
                        op(&mut crew);
                        drop(op);
                        count.fetch_add(1, Ordering::Release);
                    }
                    Job::Tell(waiting) => drop(waiting.send(())),
                    Job::Drop(what) => drop(what),
                }
            }
        })?;
        Ok(Worker {
            pushed: AtomicU64::new(0),
            run,
            queue: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(crate) fn push(&self, op: Op) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        self.send(Job::Run(op));
    }

    /// Drops `what` when everything pushed so far has run. It is no operation: whoever learns of it finds the thread idle.
    pub(crate) fn drop_behind(&self, what: impl Send + 'static) {
        self.send(Job::Drop(Box::new(what)));
    }

    /// Whether everything pushed so far has run.
    pub(crate) fn is_idle(&self) -> bool {
        self.run.load(Ordering::Acquire) == self.pushed.load(Ordering::Relaxed)
    }

    /// Waits until everything pushed so far has run, `limit` at most.
    pub(crate) fn wait(&self, limit: Option<std::time::Duration>) -> Waited {
        let (sender, receiver) = channel();
        self.send(Job::Tell(sender));
        match limit {
            None if receiver.recv().is_ok() => Waited::Done,
            None => Waited::Gone,
            Some(limit) => match receiver.recv_timeout(limit) {
                Ok(()) => Waited::Done,
                Err(RecvTimeoutError::Timeout) => Waited::Late,
                Err(RecvTimeoutError::Disconnected) => Waited::Gone,
            },
        }
    }

    fn send(&self, job: Job) {
        if let Some(queue) = &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = queue.send(job);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An operation may hold the stream's last handle: a thread does not join itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
