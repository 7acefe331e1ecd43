//! Counters: how many of this rank's own puts to a peer are complete.

use super::bound::Call;
use super::poll::acquire;
use super::{Cmp, Links, Window, operation};
use crate::atomic::{self, Relaxed, System};
use crate::group::Group;
use crate::mapped::LINE;
use crate::ops::Ops;
use crate::wait::{Fault, Flow};
use core::panic::Location;

impl<O: Ops, L: Links> Window<'_, O, L> {
    /// Waits until counter `id` of operations to `peer` compares with `value` as `cmp` says. Then the operations that count there are
    /// complete here: their source may be written again.
    #[inline(always)]
    #[track_caller]
    pub fn wait_counter<G: Group>(&self, group: &G, peer: usize, id: usize, cmp: Cmp, value: u64) -> Flow {
        let call = Call::new(operation::WAIT_COUNTER, peer, id, Location::caller());
        let at = self.counter(call, peer, id)?;
        let mut fault = Fault::NONE;
        if group.leads() {
            // SAFETY: a live word of this window.
            fault = unsafe { self.poll_word(at, value, |seen| cmp.holds(seen, value)) };
        }
        self.settle(group, call, fault)
    }

    /// Counter `id` of operations to `peer`.
    #[inline(always)]
    #[track_caller]
    pub fn read_counter(&self, peer: usize, id: usize) -> Flow<u64> {
        let call = Call::new(operation::READ_COUNTER, peer, id, Location::caller());
        let at = self.counter(call, peer, id)?;
        // SAFETY: a live word of this window.
        Ok(unsafe { acquire(at) })
    }

    /// Sets counter `id` of operations to `peer` to 0. None may be under way.
    #[inline(always)]
    #[track_caller]
    pub fn reset_counter<G: Group>(&self, group: &G, peer: usize, id: usize) -> Flow {
        let call = Call::new(operation::RESET_COUNTER, peer, id, Location::caller());
        let at = self.counter(call, peer, id)?;
        self.ready(group)?;
        if group.leads() {
            // SAFETY: a live word of this window, which nobody changes meanwhile if the caller keeps the rule above.
            unsafe { atomic::store::<System, Relaxed, u64>(at as *mut u64, 0) };
        }
        group.sync();
        Ok(())
    }

    #[inline(always)]
    pub(super) fn counter(&self, call: Call, peer: usize, id: usize) -> Flow<u64> {
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.counters)?;
        Ok(entry.counters + LINE * id as u64)
    }
}
