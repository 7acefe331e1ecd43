//! Locks that outlive a panic: state behind them is only changed in whole steps.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0
}

/// The instant after `limit`; one that never comes where the clock does not reach so far.
pub(crate) fn after(limit: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(limit.min(FAR)).unwrap_or(now)
}

/// Waits until `ready` gives something; `None` when the deadline passes first.
pub(crate) fn wait_for<T, R>(
    mutex: &Mutex<T>,
    condvar: &Condvar,
    deadline: Instant,
    mut ready: impl FnMut(&mut T) -> Option<R>,
) -> Option<R> {
    let mut guard = lock(mutex);
    loop {
        if let Some(result) = ready(&mut guard) {
            return Some(result);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        guard = wait(condvar, guard, left);
    }
}
