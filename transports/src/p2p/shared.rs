//! One transport, several users.

use super::{Error, P2pHostTransport, Result};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A transport that several threads have. Its operations need the guard that [`Shared::lock`] gives.
#[derive(Debug)]
pub struct Shared {
    transport: Mutex<Box<dyn P2pHostTransport>>,
    /// The thread that has the guard, or 0.
    holder: AtomicU64,
}

/// The transport, for as long as it is held.
#[derive(Debug)]
pub struct Guard<'a> {
    transport: MutexGuard<'a, Box<dyn P2pHostTransport>>,
    holder: &'a AtomicU64,
}

impl Shared {
    pub(crate) fn new(transport: Box<dyn P2pHostTransport>) -> Self {
        Shared { transport: Mutex::new(transport), holder: AtomicU64::new(0) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this thread has it already: it would wait for ever.
    pub fn lock(&self) -> Result<Guard<'_>> {
        let me = this_thread();
        if self.holder.load(Ordering::Relaxed) == me {
            return Err(Error::misuse(
                "this thread holds the transport's guard already: drop it, or pass it on",
            ));
        }
        let transport = self.transport.lock().unwrap_or_else(PoisonError::into_inner);
        self.holder.store(me, Ordering::Relaxed);
        Ok(Guard { transport, holder: &self.holder })
    }
}

impl Deref for Guard<'_> {
    type Target = dyn P2pHostTransport;

    fn deref(&self) -> &Self::Target {
        &**self.transport
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut **self.transport
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

/// A number that no other running thread has.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}
