//! A host stream's worker: runs operations in order.

use super::Crew;
use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Something a host stream does; kept by graphs, so it may run many times.
pub(crate) type Op = Arc<dyn Fn(&mut Crew) + Send + Sync>;

enum Job {
    Run(Op),
    Tell(Sender<()>),
}

thread_local! {
    static ON_STREAM: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a stream's own thread: what the last operation that used it lets go of must not wait for the stream here.
pub(crate) fn on_stream() -> bool {
    ON_STREAM.get()
}

/// A thread with a queue.
pub(crate) struct Worker {
    queue: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (sender, receiver) = channel::<Job>();
        let thread = std::thread::Builder::new().name("stream".into()).spawn(move || {
            ON_STREAM.set(true);
            let mut crew = Crew::new();
            for job in receiver {
                match job {
                    Job::Run(op) => op(&mut crew),
                    Job::Tell(waiting) => drop(waiting.send(())),
                }
            }
        })?;
        Ok(Worker { queue: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn push(&self, op: Op) {
        self.send(Job::Run(op));
    }

    /// Waits until everything pushed so far has run; `false` if `limit` passed first.
    pub(crate) fn wait(&self, limit: Option<std::time::Duration>) -> bool {
        let (sender, receiver) = channel();
        self.send(Job::Tell(sender));
        match limit {
            None => receiver.recv().is_ok(),
            Some(limit) => {
                !matches!(receiver.recv_timeout(limit), Err(std::sync::mpsc::RecvTimeoutError::Timeout))
            }
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
