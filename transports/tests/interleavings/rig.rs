//! Two ranks with stepped adapters, made once and used for many schedules.

use crate::device::wait::Control;
use crate::ibgda::{IbgdaPeer, Key, LocalBuffer, Pair, Queue, QueueState, RemoteBuffer, state_bytes};
use fusewire_nic::emulated::Behaviour;
use fusewire_nic::{Block, Emulated, Kind, Memory, Nic, QueuePair, QueueRequest, QueueSource, Region};
use std::cell::Cell;
use std::ptr::NonNull;

/// Queue pairs to the peer.
pub const PAIRS: usize = 2;
/// Entries of a queue: few, so that it is often full.
pub const DEPTH: u32 = 4;
/// Bytes of registered memory of each rank.
pub const BYTES: usize = 16 << 10;

/// Memory that lives as long as the process: schedules share it.
fn forever(bytes: usize) -> NonNull<u8> {
    let pages = vec![[0u128; 256]; bytes.div_ceil(4096)];
    NonNull::from(pages.leak()).cast()
}

struct Queues;

// SAFETY: zeroed memory of its own, each part given once.
unsafe impl QueueSource for Queues {
    fn take(&self, bytes: u64) -> fusewire_nic::Result<Block> {
        let host = forever(bytes as usize);
        Ok(Block { addr: host.as_ptr() as u64, host: Some(host), bytes })
    }
}

pub struct Rank {
    pub nic: Emulated,
    pub memory: NonNull<u8>,
    pub region: Cell<Region>,
    queues: Vec<QueuePair>,
    states: NonNull<u8>,
    peer: IbgdaPeer,
}

/// Behaviour of a schedule: little time, small packets.
pub fn behaviour(seed: u64) -> Behaviour {
    Behaviour {
        seed,
        mtu: 64,
        timeout_ns: 100_000,
        not_ready_ns: 20_000,
        delay_ns: 50_000,
        window: 3,
        ..Behaviour::default()
    }
}

impl Rank {
    fn new() -> Rank {
        let nic = Emulated::stepped(behaviour(1)).expect("an adapter");
        let memory = forever(BYTES);
        let region = Rank::register(&nic, memory);
        let sink = forever(4096);
        // SAFETY: the memory is never freed.
        let sink = unsafe { nic.register_zero_based(&described(sink, 8)) }.expect("a sink");
        let make =
            |kind, depth| nic.create_queue(&QueueRequest { kind, depth }, &Queues).expect("a queue pair");
        let queues: Vec<QueuePair> = (0..PAIRS)
            .flat_map(|_| [make(Kind::Main, DEPTH), make(Kind::Companion, DEPTH), make(Kind::Responder, 2)])
            .collect();
        let states = forever(2 * PAIRS * state_bytes(DEPTH) as usize);
        let mut state = states.as_ptr() as u64;
        let mut seen_by_kernels = |q: &QueuePair| {
            let QueuePair { sq, sq_record, doorbell, cq, cq_record, .. } = *q;
            let (qpn, cqn, depth) = (q.number, q.cq_number, q.depth);
            let queue = Queue { sq, sq_record, doorbell, cq, cq_record, state, qpn, cqn, depth, reserved: 0 };
            state += state_bytes(DEPTH);
            queue
        };
        let pairs: Vec<Pair> = queues
            .chunks(3)
            .map(|q| Pair { main: seen_by_kernels(&q[0]), companion: seen_by_kernels(&q[1]) })
            .collect();
        let peer =
            IbgdaPeer { pairs: pairs.leak().as_ptr() as u64, count: PAIRS as u32, sink: Key::new(sink.lkey) };
        Rank { nic, memory, region: Cell::new(region), queues, states, peer }
    }

    fn register(nic: &Emulated, memory: NonNull<u8>) -> Region {
        // SAFETY: the memory is never freed.
        unsafe { nic.register(&described(memory, BYTES as u64)) }.expect("a region")
    }

    pub fn endpoint(&self, queue: u32, control: &Control) -> crate::ibgda::Endpoint {
        // SAFETY: tables and queues are never freed; the control words are the test's, which outlives its threads.
        unsafe { self.peer.endpoint(queue, control) }
    }

    pub fn pair(&self, queue: u32) -> &Pair {
        let at = self.peer.pairs as *const Pair;
        // SAFETY: a table of `PAIRS` pairs that is never freed.
        unsafe { &*at.add(queue as usize % PAIRS) }
    }

    pub fn sink(&self) -> LocalBuffer {
        LocalBuffer::new(0, self.peer.sink.number())
    }

    pub fn local(&self, at: usize) -> LocalBuffer {
        LocalBuffer::new(self.memory.as_ptr() as u64, self.region.get().lkey).at(at as u64)
    }

    pub fn remote(&self, at: usize) -> RemoteBuffer {
        RemoteBuffer::new(self.memory.as_ptr() as u64, self.region.get().rkey).at(at as u64)
    }

    /// A word of this rank's memory as it is, without giving way.
    pub fn word(&self, at: usize) -> u64 {
        // SAFETY: within the memory, aligned; all run on one real thread.
        unsafe { self.memory.as_ptr().add(at).cast::<u64>().read_volatile() }
    }

    pub fn place(&self, at: usize) -> *mut u8 {
        // SAFETY: within the memory.
        unsafe { self.memory.as_ptr().add(at) }
    }
}

fn described<'a>(memory: NonNull<u8>, bytes: u64) -> Memory<'a> {
    Memory { addr: memory.as_ptr() as u64, bytes, host: Some(memory), file: None, dmabuf: None }
}

pub struct Rig {
    pub ranks: [Rank; 2],
}

impl Rig {
    pub fn new() -> Rig {
        let ranks = [Rank::new(), Rank::new()];
        for (me, rank) in ranks.iter().enumerate() {
            let peer = &ranks[1 - me];
            rank.nic.admit_port(1 - me, peer.nic.port().expect("a port")).expect("a port that fits");
            rank.nic.admit(1 - me, peer.nic.share(&peer.region.get()).expect("a share")).expect("a region");
            for (own, theirs) in rank.queues.chunks(3).zip(peer.queues.chunks(3)) {
                let address = |nic: &Emulated, q| nic.address(q).expect("an address");
                let connect = |q, peer, to| rank.nic.connect(q, peer, &to).expect("a connection");
                connect(&own[0], Some(1 - me), address(&peer.nic, &theirs[0]));
                connect(&own[1], None, address(&rank.nic, &own[2]));
                connect(&own[2], None, address(&rank.nic, &own[1]));
            }
        }
        Rig { ranks }
    }

    /// As new, with other choices, and as if `first` entries had been posted to every queue.
    pub fn reset(&self, behaviours: [Behaviour; 2], first: u64) {
        for (me, rank) in self.ranks.iter().enumerate() {
            for queue in &rank.queues {
                rank.nic.reset(queue).expect("a queue pair to reset");
                rank.nic.begin_at(queue, first).expect("a queue pair");
            }
            let states = 2 * PAIRS * state_bytes(DEPTH) as usize;
            // SAFETY: both allocations are this rig's, and no virtual thread runs.
            unsafe {
                rank.states.as_ptr().write_bytes(0, states);
                rank.memory.as_ptr().write_bytes(0, BYTES);
                for queue in 0..2 * PAIRS {
                    let state =
                        rank.states.as_ptr().add(queue * state_bytes(DEPTH) as usize).cast::<QueueState>();
                    ((*state).reserved, (*state).posted, (*state).completed) = (first, first, first);
                }
            }
            rank.nic.behave(behaviours[me]);
            rank.nic.set_link(true);
            rank.nic.hold_off(0);
        }
    }

    /// After a rank was declared dead: its port answers again.
    pub fn revive(&self) {
        self.ranks[1].nic.revive();
    }

    /// After a key was taken back: a new one.
    pub fn register_again(&self, rank: usize) {
        let Rank { nic, memory, region, .. } = &self.ranks[rank];
        region.set(Rank::register(nic, *memory));
        let share = nic.share(&region.get()).expect("a share");
        self.ranks[1 - rank].nic.admit(rank, share).expect("a region");
    }
}
