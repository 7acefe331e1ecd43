//! Ranks that are threads, each with an emulated adapter and registered memory that all know of.

#![allow(dead_code)] // each test uses a part

use fusewire_device::wait::Control;
use fusewire_nic::emulated::Behaviour;
use fusewire_nic::{Emulated, Nic};
use fusewire_transports::Ibgda;
use fusewire_transports::ibgda::{Endpoint, IbgdaOptions, Memory, RemoteBuffer};
use fusewire_world::World;
use std::sync::Arc;
use std::time::Duration;

/// How long a wait may last.
pub const WAIT: Duration = Duration::from_secs(20);

/// Control words of a thread outside a kernel.
pub fn control() -> Control {
    Control { abort: 0, record: 0, deadline_ns: WAIT.as_nanos() as u64 }
}

pub struct Rank {
    pub me: usize,
    pub world: World,
    pub nic: Arc<Emulated>,
    pub memory: Memory,
    pub remotes: Vec<RemoteBuffer>,
    // After the memory.
    pub ibgda: Ibgda,
}

impl Rank {
    /// One of the queue pairs to `peer`.
    pub fn endpoint(&self, peer: usize, queue: u32) -> Endpoint {
        let peer = self.ibgda.peer(peer).expect("a peer");
        // SAFETY: the transport outlives the test's body.
        unsafe { peer.endpoint(queue, &control()) }
    }

    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.memory.bytes());
        // SAFETY: within the memory.
        unsafe { self.memory.host().add(offset) }
    }

    pub fn word(&self, offset: usize) -> u64 {
        // SAFETY: a live, aligned word.
        unsafe { fusewire_transports::ibgda::read_signal(self.at(offset).cast()) }
    }

    pub fn fill(&self, offset: usize, n: usize, value: impl Fn(usize) -> u8) {
        assert!(offset + n <= self.memory.bytes());
        for k in 0..n {
            // SAFETY: within the memory; the test's protocol gives these bytes to this rank.
            unsafe { self.at(offset + k).write(value(k)) };
        }
    }

    #[track_caller]
    pub fn check(&self, offset: usize, n: usize, value: impl Fn(usize) -> u8) {
        for k in 0..n {
            // SAFETY: within the memory; the test's protocol gives these bytes to this rank.
            let seen = unsafe { self.at(offset + k).read() };
            assert_eq!(seen, value(k), "byte {k} of {n}");
        }
    }
}

/// Runs `body` on `n` ranks with `bytes` of registered memory each.
pub fn ranks(n: usize, bytes: usize, body: impl Fn(&Rank) + Sync) {
    ranks_with(n, bytes, IbgdaOptions::new(16 << 10), body);
}

/// As [`ranks`], with queues of the caller's choice.
pub fn ranks_with(n: usize, bytes: usize, options: IbgdaOptions, body: impl Fn(&Rank) + Sync) {
    ranks_that_behave(n, bytes, options, Behaviour::default(), body);
}

/// As [`ranks_with`], with adapters that behave as they are told; each has a seed of its own.
pub fn ranks_that_behave(
    n: usize,
    bytes: usize,
    mut options: IbgdaOptions,
    behaviour: Behaviour,
    body: impl Fn(&Rank) + Sync,
) {
    options.transport.heap_bytes = 4096;
    World::threads(n, |world| {
        let behaviour = Behaviour { seed: behaviour.seed + world.rank() as u64, ..behaviour };
        let nic = Arc::new(Emulated::new(behaviour).expect("an adapter"));
        let shared: Arc<dyn Nic> = nic.clone();
        let ibgda = Ibgda::rendezvous_with(&world, shared, None, options.clone()).expect("a transport");
        let memory = ibgda.allocate(bytes).expect("memory");
        let remotes = ibgda.exchange(memory.region()).expect("keys");
        let rank = Rank { me: world.rank(), world, nic, memory, remotes, ibgda };
        body(&rank);
        // Nobody takes memory back that a peer may still write.
        rank.world.barrier().expect("all ranks");
    })
    .expect("no rank that panics");
}
