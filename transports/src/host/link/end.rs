//! How a link begins anew, and how it ends.

use super::Link;
use crate::host::Result;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

impl Link {
    /// See [`super::super::Transport::renew`].
    ///
    /// # Errors
    /// If a rank is lost or does not come.
    pub fn renew(self: &Arc<Self>) -> Result<()> {
        let all = self.with_joined();
        // Positions must not be cleared under a kernel.
        let _turns = idle(&all)?;
        self.renew_idle()
    }

    /// See [`super::super::Transport::close`].
    ///
    /// # Errors
    /// If a rank does not come; the first that is missing is named.
    pub fn close(self: &Arc<Self>) -> Result<()> {
        let all = self.with_joined();
        let turns = idle(&all)?;
        all.iter().for_each(|link| link.closed.store(true, Ordering::Release));
        drop(turns);
        let end = |link: &Arc<Link>| {
            link.region.quiesce()?;
            let name = link.teardown.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(name) = name else { return Ok(()) };
            link.world.end(name)?;
            link.ended.store(true, Ordering::Release);
            Ok(())
        };
        // All of them, whatever comes of one: peers wait.
        all.iter().map(end).fold(Ok(()), Result::and)
    }

    /// Whether every rank has closed it, or is gone.
    pub(in crate::host) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether dropping it, or what goes with it, waits for peers.
    pub fn waits_to_end(self: &Arc<Self>) -> bool {
        self.with_joined().iter().any(|link| !link.region.outlives_rank() && !link.has_ended())
    }

    /// With nothing queued, and nobody launching.
    fn renew_idle(&self) -> Result<()> {
        self.region.quiesce()?;
        self.world.barrier()?;
        // SAFETY: between two barriers, with nothing under way on any rank.
        self.renew_aborts(|| unsafe {
            if let Some(record) = &*self.record {
                record.clear();
            }
            self.region.clear()
        })?;
        self.board.clear();
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for joined in self.joined.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            joined.link.renew_idle()?;
        }
        self.world.barrier()?;
        Ok(())
    }
}

/// Waits until nothing is queued on these links, and keeps everybody from launching on them. Streams are not waited for under the locks, since
/// whoever ends there may launch.
fn idle(all: &[Arc<Link>]) -> Result<Vec<MutexGuard<'_, u64>>> {
    loop {
        let seen: Vec<u64> = all.iter().map(|link| *link.turns()).collect();
        for (stream, _) in all.iter().filter_map(|link| link.last_use()) {
            stream.wait_idle()?;
        }
        let turns: Vec<_> = all.iter().map(|link| link.turns()).collect();
        if turns.iter().map(|turns| **turns).eq(seen) {
            return Ok(turns);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.board.note(|notes| notes.left());
        self.stop_listening();
        let teardown = self.teardown.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Where peers keep what they have mapped, nobody is waited for. Else nobody lets go before every rank is done or known to be lost;
        // where that is not known in time, or was not when it was closed, the memory stays.
        let free = self.region.outlives_rank() || teardown.is_some_and(|name| self.world.teardown(name));
        if free || self.ended.load(Ordering::Acquire) {
            // SAFETY: the link is dropped once, and does not use region or record any more.
            unsafe {
                ManuallyDrop::drop(&mut self.region);
                ManuallyDrop::drop(&mut self.record);
            }
        }
    }
}
