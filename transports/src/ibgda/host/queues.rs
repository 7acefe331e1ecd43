//! Queue pairs of one rank: made, connected, put into tables for kernels.

use super::IbgdaOptions;
use super::memory::{QueueMemory, Reachable, Registered};
use crate::host::{Error, Machine, Result, Words};
use crate::ibgda::{IbgdaPeer, Key, Pair, PeerRegion, Queue, RemoteBuffer, state_bytes};
use fusewire_nic::{Address, Kind, Nic, QueuePair, QueueRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entries of a queue that nobody posts to.
const RESPONDER_DEPTH: u32 = 2;

/// A main queue pair, its companion, and the responder that the companion is connected to.
struct Trio {
    main: QueuePair,
    companion: QueuePair,
    responder: QueuePair,
}

/// All queue pairs of a rank, by peer.
pub(super) struct Queues {
    nic: Arc<dyn Nic>,
    trios: Vec<Vec<Trio>>,
    sink: Registered,
    states: Words,
    depth: u32,
    // After what uses it.
    _memory: QueueMemory,
}

impl Queues {
    /// Makes them, unconnected.
    pub fn new(nic: &Arc<dyn Nic>, machine: &Machine, world: usize, options: &IbgdaOptions) -> Result<Self> {
        let (count, depth) = (options.queue_pairs as usize, options.depth);
        // Records, then two rings; an adapter may want each to begin at a page.
        let bytes = |depth: u32| 4096 + 2 * (64 * u64::from(depth)).next_multiple_of(4096);
        let trio = 2 * bytes(depth) + bytes(RESPONDER_DEPTH);
        let memory = QueueMemory::new(machine, (world * count) as u64 * trio)?;
        let make = |kind, depth| nic.create_queue(&QueueRequest { kind, depth }, &memory);
        let mut trios = Vec::with_capacity(world);
        for _ in 0..world {
            let mut peer = Vec::with_capacity(count);
            for _ in 0..count {
                peer.push(Trio {
                    main: make(Kind::Main, depth)?,
                    companion: make(Kind::Companion, depth)?,
                    responder: make(Kind::Responder, RESPONDER_DEPTH)?,
                });
            }
            trios.push(peer);
        }
        let sink = Registered::zero_based(nic, Reachable::new(machine, 4096)?)?;
        let words = 2 * world * count * (state_bytes(depth) / 8) as usize;
        let states = Words::new(machine, vec![0; words])?;
        Ok(Queues { nic: Arc::clone(nic), trios, sink, states, depth, _memory: memory })
    }

    /// Addresses of the main queue pairs, by peer.
    pub fn addresses(&self) -> Result<Vec<Vec<Address>>> {
        let of = |peer: &Vec<Trio>| peer.iter().map(|t| Ok(self.nic.address(&t.main)?)).collect();
        self.trios.iter().map(of).collect()
    }

    /// Connects them: `theirs[peer]` are the peer's addresses for this rank.
    pub fn connect(&self, me: usize, theirs: &[Vec<Address>]) -> Result<()> {
        for (rank, (peer, theirs)) in self.trios.iter().zip(theirs).enumerate() {
            if theirs.len() != peer.len() {
                return Err(Error::Misuse {
                    what: format!("rank {rank} has {} queue pairs for {}", theirs.len(), peer.len()),
                });
            }
            for (trio, address) in peer.iter().zip(theirs) {
                self.nic.connect(&trio.main, (rank != me).then_some(rank), address)?;
                self.nic.connect(&trio.companion, None, &self.nic.address(&trio.responder)?)?;
                self.nic.connect(&trio.responder, None, &self.nic.address(&trio.companion)?)?;
            }
        }
        Ok(())
    }

    /// The tables for kernels: pairs, then peers, in one allocation.
    pub fn tables(
        &self,
        machine: &Machine,
        regions: &[RemoteBuffer],
    ) -> Result<(Words, Vec<IbgdaPeer>, u64)> {
        let step = state_bytes(self.depth);
        let mut state = self.states.addr();
        let mut next = |q: &QueuePair| {
            let queue = Queue {
                sq: q.sq,
                sq_record: q.sq_record,
                doorbell: q.doorbell,
                cq: q.cq,
                cq_record: q.cq_record,
                state,
                qpn: q.number,
                cqn: q.cq_number,
                depth: q.depth,
                reserved: 0,
            };
            state += step;
            queue
        };
        let pairs: Vec<Pair> = self
            .trios
            .iter()
            .flatten()
            .map(|t| Pair { main: next(&t.main), companion: next(&t.companion) })
            .collect();
        // The address is known only once there is memory for both.
        let words = |regions: &[PeerRegion]| {
            let mut words: Vec<u64> = bytemuck::cast_slice(&pairs).to_vec();
            words.extend_from_slice(bytemuck::cast_slice(regions));
            words
        };
        let blank = vec![bytemuck::Zeroable::zeroed(); regions.len()];
        let memory = Words::new(machine, words(&blank))?;
        let count = self.trios.first().map_or(0, Vec::len);
        let peers: Vec<IbgdaPeer> = (0..regions.len())
            .map(|rank| IbgdaPeer {
                pairs: memory.addr() + (rank * count * size_of::<Pair>()) as u64,
                count: count as u32,
                sink: Key::new(self.sink.region.lkey),
            })
            .collect();
        let table: Vec<PeerRegion> = peers
            .iter()
            .zip(regions)
            .map(|(peer, region)| PeerRegion { peer: *peer, region: *region })
            .collect();
        let memory = memory.write(words(&table))?;
        let at = memory.addr() + size_of_val(&pairs[..]) as u64;
        Ok((memory, peers, at))
    }

    /// Waits until nothing is in flight.
    pub fn drain(&self, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        for trio in self.trios.iter().flatten() {
            for queue in [&trio.main, &trio.companion] {
                self.nic.drain(queue, end.saturating_duration_since(Instant::now()))?;
            }
        }
        Ok(())
    }

    /// Empties all queues, with nothing in flight on any rank.
    pub fn reset(&self) -> Result<()> {
        for trio in self.trios.iter().flatten() {
            for queue in [&trio.main, &trio.companion, &trio.responder] {
                self.nic.reset(queue)?;
            }
        }
        self.states.clear()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        for trio in self.trios.iter().flatten() {
            for queue in [&trio.main, &trio.companion, &trio.responder] {
                self.nic.destroy(queue);
            }
        }
    }
}
