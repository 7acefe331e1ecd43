//! Signals.

use super::bound::Call;
use super::poll::{acquire, reached};
use super::{Add, Cmp, Links, Rdma, RemoteMemory, SignalOp, Window, WindowPeer, operation};
use crate::arch;
use crate::atomic::{self, Device, Modify, Relaxed, Release, System};
use crate::group::Group;
use crate::mapped::LINE;
use crate::ops::Ops;
use crate::wait::{Fault, Flow, kind};
use core::panic::Location;

impl<O: Ops, L: Links> Window<'_, O, L> {
    /// Raises signal `id` at `peer`, after everything the group stored or put towards it.
    ///
    /// Over an adapter [`SignalOp::Set`] is refused.
    #[inline(always)]
    #[track_caller]
    pub fn signal_peer<G: Group>(&self, group: &G, peer: usize, id: usize, op: SignalOp, value: u64) -> Flow {
        let call = Call::new(operation::SIGNAL_PEER, peer, id, Location::caller());
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.signals)?;
        self.settable(call, entry, op)?;
        self.ready(group)?;
        self.raise(group, call, entry, op, value)
    }

    /// Raises signal `id` at every peer, the peers spread over the group's threads.
    #[inline(always)]
    #[track_caller]
    pub fn signal_all<G: Group>(&self, group: &G, id: usize, op: SignalOp, value: u64) -> Flow {
        let call = Call::new(operation::SIGNAL_ALL, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.signals)?;
        if L::RDMA {
            for peer in self.others() {
                self.settable(Call { peer, ..call }, self.entry(peer), op)?;
            }
        }
        self.ready(group)?;
        let mut peer = group.lane();
        while peer < self.device.parts.layout.world {
            if peer != self.device.parts.rank && !self.far(self.entry(peer)) {
                store(self.entry(peer), call.id, op, value);
            }
            peer += group.lanes();
        }
        if L::RDMA {
            for peer in self.others() {
                let entry = self.entry(peer);
                if self.far(entry) {
                    self.raise(group, Call { peer, ..call }, entry, op, value)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until signal `id` of `peer` compares with `value` as `cmp` says: O(1), for all that has been sent since the window was
    /// made or its signals reset.
    #[inline(always)]
    #[track_caller]
    pub fn wait_signal_from<G: Group>(
        &self,
        group: &G,
        peer: usize,
        id: usize,
        cmp: Cmp,
        value: u64,
    ) -> Flow {
        let call = Call::new(operation::WAIT_SIGNAL_FROM, peer, id, Location::caller());
        let at = self.inbox(call, peer, id)?;
        let mut fault = Fault::NONE;
        if group.leads() {
            // SAFETY: a live word of this window.
            fault = unsafe { self.poll_word(at, value, |seen| cmp.holds(seen, value)) };
        }
        self.settle(group, call, fault)
    }

    /// Waits until the sum of signal `id` over all peers compares with `value` as `cmp` says.
    #[inline(always)]
    #[track_caller]
    pub fn wait_signal<G: Group>(&self, group: &G, id: usize, cmp: Cmp, value: u64) -> Flow {
        let call = Call::new(operation::WAIT_SIGNAL, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.signals)?;
        self.wait_sum(group, call, value, |seen| cmp.holds(seen, value))
    }

    /// Waits for the next `n` of signal `id` of `peer` that no such wait has taken: the threshold is an epoch in device memory, so it
    /// may be captured and replayed for ever. For signals that are added, not set.
    #[inline(always)]
    #[track_caller]
    pub fn wait_next_from<G: Group>(&self, group: &G, peer: usize, id: usize, n: u64) -> Flow {
        let call = Call::new(operation::WAIT_NEXT_FROM, peer, id, Location::caller());
        let at = self.inbox(call, peer, id)?;
        let mut fault = Fault::NONE;
        if group.leads() {
            let target = self.advance(self.device.parts.layout.taken(call.peer, call.id), n);
            // SAFETY: a live word of this window.
            fault = unsafe { self.poll_word(at, target, |seen| reached(seen, target)) };
        }
        self.settle(group, call, fault)
    }

    /// As [`Window::wait_next_from`], for `n` of all peers together.
    #[inline(always)]
    #[track_caller]
    pub fn wait_next<G: Group>(&self, group: &G, id: usize, n: u64) -> Flow {
        let call = Call::new(operation::WAIT_NEXT, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.signals)?;
        let target = match group.leads() {
            true => self.advance(self.device.parts.layout.taken_of_all(call.id), n),
            false => 0,
        };
        self.wait_sum(group, call, target, |seen| reached(seen, target))
    }

    /// The sum of signal `id` over all peers.
    #[inline(always)]
    #[track_caller]
    pub fn read_signal(&self, id: usize) -> Flow<u64> {
        let call = Call::new(operation::READ_SIGNAL, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.signals)?;
        let sum = self.sum(call.id);
        arch::fence_system();
        Ok(sum)
    }

    /// Signal `id` of `peer`.
    #[inline(always)]
    #[track_caller]
    pub fn read_signal_from(&self, peer: usize, id: usize) -> Flow<u64> {
        let call = Call::new(operation::READ_SIGNAL_FROM, peer, id, Location::caller());
        let at = self.inbox(call, peer, id)?;
        // SAFETY: a live word of this window.
        Ok(unsafe { acquire(at) })
    }

    #[inline(always)]
    fn others(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.device.parts.layout.world).filter(|peer| *peer != self.device.parts.rank)
    }

    /// Where signal `id` of `peer` arrives.
    #[inline(always)]
    fn inbox(&self, call: Call, peer: usize, id: usize) -> Flow<u64> {
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.signals)?;
        Ok(entry.signals_in + LINE * id as u64)
    }

    /// Adds to an epoch; the value after it. Concurrent groups get values of their own.
    #[inline(always)]
    pub(super) fn advance(&self, epoch: u64, n: u64) -> u64 {
        let at = (self.device.parts.epochs + epoch) as *mut u64;
        // SAFETY: a live epoch of this window, accessed by atomics of this processor alone.
        unsafe { <u64 as Modify<Device, Relaxed>>::fetch_add(at, n) }.wrapping_add(n)
    }

    /// The sum over all peers, read without order: a fence must follow.
    #[inline(always)]
    fn sum(&self, id: u32) -> u64 {
        let mut sum = 0u64;
        for peer in self.others() {
            let at = self.entry(peer).signals_in + LINE * u64::from(id);
            // SAFETY: a live word of this window.
            sum = sum.wrapping_add(unsafe { atomic::load::<System, Relaxed, u64>(at as *const u64) });
        }
        sum
    }

    #[inline(always)]
    fn wait_sum<G: Group>(&self, group: &G, call: Call, wanted: u64, held: impl Fn(u64) -> bool) -> Flow {
        let mut fault = Fault::NONE;
        if group.leads() {
            fault = self.poll(wanted, || self.sum(call.id), held).1;
            // The loads had no order of their own, so that they go side by side.
            arch::fence_system();
        }
        self.settle(group, call, fault)
    }

    /// That the operation can be done over the peer's link.
    #[inline(always)]
    fn settable(&self, call: Call, entry: &WindowPeer, op: SignalOp) -> Flow {
        if self.far(entry) && op == SignalOp::Set {
            return Err(self.refuse(call, kind::LINK, 0, 0));
        }
        Ok(())
    }

    /// Raises a signal whose arguments were checked; called by all threads, after [`Window::ready`].
    #[inline(always)]
    pub(super) fn raise<G: Group>(
        &self,
        group: &G,
        call: Call,
        entry: &WindowPeer,
        op: SignalOp,
        value: u64,
    ) -> Flow {
        if self.far(entry) {
            let address = entry.signals_out + LINE * u64::from(call.id);
            let signal = Add { word: RemoteMemory { address, key: entry.inbox_key }, value };
            // SAFETY: the peer registered its inbox, whose words adapters alone change; ids were checked.
            let outcome = unsafe { self.device.parts.adapter.signal(group, self.route(entry), signal) };
            return self.posted(group, call, outcome);
        }
        if group.leads() {
            store(entry, call.id, op, value);
        }
        Ok(())
    }
}

/// Raises a signal in mapped memory, after everything that the thread has observed.
#[inline(always)]
fn store(entry: &WindowPeer, id: u32, op: SignalOp, value: u64) {
    let at = (entry.signals_out + LINE * u64::from(id)) as *mut u64;
    // SAFETY: a word of the peer's inbox that this rank alone writes, by atomics; ids were checked.
    unsafe {
        match op {
            SignalOp::Set => atomic::store::<System, Release, u64>(at, value),
            SignalOp::Add => arch::add_release(at, value),
        }
    }
}
