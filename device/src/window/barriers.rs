//! Barriers: flat, counted, never reset.

use super::bound::Call;
use super::poll::reached;
use super::{Add, Links, Rdma, RemoteMemory, Window, WindowPeer, operation};
use crate::arch;
use crate::atomic::{self, AcqRel, Acquire, Device, Modify, Relaxed, Release};
use crate::group::{Block, Group};
use crate::mapped::LINE;
use crate::ops::Ops;
use crate::wait::{Fault, Flow};
use core::panic::Location;

impl<O: Ops, L: Links> Window<'_, O, L> {
    /// Waits until every rank is at barrier `id`: one group of each rank for each barrier, and as often as one likes. What a group did
    /// before is visible to the peers' groups afterwards.
    #[inline(always)]
    #[track_caller]
    pub fn barrier<G: Group>(&self, group: &G, id: usize) -> Flow {
        let call = Call::new(operation::BARRIER, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.barriers)?;
        self.arrive(group, call)?;
        self.await_all(group, call)
    }

    /// Waits until `peer`, which calls the same for this rank, is there too. Barriers of all and of two may share an id.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_peer<G: Group>(&self, group: &G, peer: usize, id: usize) -> Flow {
        let call = Call::new(operation::BARRIER_PEER, peer, id, Location::caller());
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.barriers)?;
        self.ready(group)?;
        self.arrive_at(group, call, entry)?;
        self.await_one(group, call, entry)
    }

    /// Arrives at barrier `id` without waiting; [`Window::barrier_wait`] is the other half.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_arrive<G: Group>(&self, group: &G, id: usize) -> Flow {
        let call = Call::new(operation::BARRIER_ARRIVE, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.barriers)?;
        self.arrive(group, call)
    }

    /// Arrives at a barrier with one peer without waiting.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_arrive_peer<G: Group>(&self, group: &G, peer: usize, id: usize) -> Flow {
        let call = Call::new(operation::BARRIER_ARRIVE_PEER, peer, id, Location::caller());
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.barriers)?;
        self.ready(group)?;
        self.arrive_at(group, call, entry)
    }

    /// Waits for the next arrival of every peer at barrier `id` that was not waited for.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_wait<G: Group>(&self, group: &G, id: usize) -> Flow {
        let call = Call::new(operation::BARRIER_WAIT, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.barriers)?;
        self.await_all(group, call)
    }

    /// Waits for the next arrival of `peer` at barrier `id` that was not waited for.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_wait_peer<G: Group>(&self, group: &G, peer: usize, id: usize) -> Flow {
        let call = Call::new(operation::BARRIER_WAIT_PEER, peer, id, Location::caller());
        let entry = self.peer(call, peer)?;
        self.id(call, id, self.device.parts.layout.barriers)?;
        self.await_one(group, call, entry)
    }

    /// Waits until every block of the grid on every rank is here: called by all threads of all blocks, which a launch has made
    /// resident together. What every block did before is visible to every block afterwards. An id is of the grid or of groups, not of both.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_grid(&self, id: usize) -> Flow {
        let call = Call::new(operation::BARRIER_GRID, self.rank(), id, Location::caller());
        self.id(call, id, self.device.parts.layout.barriers)?;
        self.ready(&Block)?;
        if L::RDMA {
            // What this block posted has a queue of its own, and another block will arrive for it.
            for peer in (0..self.device.parts.layout.world).filter(|peer| *peer != self.device.parts.rank) {
                let entry = self.entry(peer);
                if self.far(entry) {
                    // SAFETY: a peer of the table.
                    let outcome = unsafe { self.device.parts.adapter.complete(&Block, self.route(entry)) };
                    self.posted(&Block, Call { peer, ..call }, outcome)?;
                }
            }
        }
        let count = (self.device.parts.epochs + self.device.parts.layout.grid_gate(call.id)) as *mut u64;
        let gate = count.wrapping_add(1);
        let (mut passed, mut last) = (0, false);
        if Block.leads() {
            // SAFETY: live epochs of this window, accessed by atomics alone. The gate opens only when this block has arrived.
            unsafe {
                passed = atomic::load::<Device, Relaxed, u64>(gate);
                let arrived = <u64 as Modify<Device, AcqRel>>::fetch_add(count, 1) + 1;
                last = arrived == self.kernel.blocks() as u64;
                if last {
                    atomic::store::<Device, Relaxed, u64>(count, 0);
                }
            }
        }
        if Block.any(last) {
            self.arrive(&Block, call)?;
            self.await_all(&Block, call)?;
            if Block.leads() {
                // SAFETY: as above; what the peers did was observed before it.
                unsafe { atomic::store::<Device, Release, u64>(gate, passed.wrapping_add(1)) };
            }
            return Ok(());
        }
        let mut fault = Fault::NONE;
        if Block.leads() {
            let target = passed.wrapping_add(1);
            // SAFETY: as above.
            let read = || unsafe { atomic::load::<Device, Acquire, u64>(gate) };
            fault = self.poll(target, read, |seen| reached(seen, target)).1;
        }
        self.settle(&Block, call, fault)
    }

    /// Arrives at every peer, the peers spread over the group's threads.
    #[inline(always)]
    fn arrive<G: Group>(&self, group: &G, call: Call) -> Flow {
        self.ready(group)?;
        let world = self.device.parts.layout.world;
        let mut peer = group.lane();
        while peer < world {
            if peer != self.device.parts.rank && !self.far(self.entry(peer)) {
                store(self.entry(peer), call.id);
            }
            peer += group.lanes();
        }
        if L::RDMA {
            for peer in (0..world).filter(|peer| *peer != self.device.parts.rank) {
                if self.far(self.entry(peer)) {
                    self.arrive_at(group, Call { peer, ..call }, self.entry(peer))?;
                }
            }
        }
        Ok(())
    }

    /// Arrives at one peer; called by all threads, after [`Window::ready`].
    #[inline(always)]
    fn arrive_at<G: Group>(&self, group: &G, call: Call, entry: &WindowPeer) -> Flow {
        if self.far(entry) {
            let address = entry.barriers_out + LINE * u64::from(call.id);
            let arrival = Add { word: RemoteMemory { address, key: entry.inbox_key }, value: 1 };
            // SAFETY: the peer registered its inbox, whose words adapters alone change; ids were checked.
            let outcome = unsafe { self.device.parts.adapter.signal(group, self.route(entry), arrival) };
            return self.posted(group, call, outcome);
        }
        if group.leads() {
            store(entry, call.id);
        }
        Ok(())
    }

    /// Waits for the next arrival of every peer, each by another thread of the group.
    #[inline(always)]
    fn await_all<G: Group>(&self, group: &G, call: Call) -> Flow {
        let (mut peer, mut about, mut fault) = (group.lane(), call, Fault::NONE);
        while peer < self.device.parts.layout.world && fault.kind == 0 {
            if peer != self.device.parts.rank {
                about.peer = peer;
                fault = self.next_arrival(self.entry(peer), about);
            }
            peer += group.lanes();
        }
        self.settle(group, about, fault)
    }

    #[inline(always)]
    fn await_one<G: Group>(&self, group: &G, call: Call, entry: &WindowPeer) -> Flow {
        let fault = if group.leads() { self.next_arrival(entry, call) } else { Fault::NONE };
        self.settle(group, call, fault)
    }

    /// One thread's wait for a peer. The epoch is advanced by this thread alone: never by every thread of a group.
    #[inline(always)]
    fn next_arrival(&self, entry: &WindowPeer, call: Call) -> Fault {
        let target = self.advance(self.device.parts.layout.awaited_barrier(call.peer, call.id), 1);
        let at = entry.barriers_in + LINE * u64::from(call.id);
        // SAFETY: a live word of this window.
        unsafe { self.poll_word(at, target, |seen| reached(seen, target)) }
    }
}

/// Arrives in mapped memory, after everything that the thread has observed.
#[inline(always)]
fn store(entry: &WindowPeer, id: u32) {
    let at = (entry.barriers_out + LINE * u64::from(id)) as *mut u64;
    // SAFETY: a word of the peer's inbox that this rank alone adds to; ids were checked.
    unsafe { arch::add_release(at, 1) };
}
