//! What windows and kernels rest on where adapters carry the bytes: order on one queue pair, over adapters that place bytes as late as
//! they may, and groups of several threads.

mod common;

use common::{Rank, WAIT, control};
use fusewire_device::group::{Group, Thread};
use fusewire_device::ops::{Get, Line, Ops, Put};
use fusewire_device::protocol::simple::channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use fusewire_device::wait::{AbortRecord, Control, Watch};
use fusewire_device::window::{Add, LocalMemory, Rdma, RemoteMemory, Route, Transfer};
use fusewire_nic::emulated::Behaviour;
use fusewire_transports::Transport;
use fusewire_transports::ibgda::{Compare, IbgdaOptions, IbgdaPeer, wait_signal};
use fusewire_transports::mixed::QueuePairs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, LazyLock};

const DATA: usize = 4096;
const BYTES: usize = 2048;
const ROUNDS: u64 = 900;

/// Bytes of a write are placed behind later operations of its queue pair that have no fence; packets are small, and held up.
fn late() -> Behaviour {
    Behaviour {
        seed: 7,
        mtu: 256,
        late_placement: true,
        delay: 100_000,
        delay_ns: 50_000,
        ..Behaviour::default()
    }
}

fn pairs(body: impl Fn(&Rank) + Sync) {
    let options = IbgdaOptions::new(16 << 10).queue_pairs(2).depth(16);
    common::ranks_that_behave(2, 16 * DATA, options, late(), body);
}

fn pattern(round: u64, k: usize) -> u8 {
    (round as usize * 37 + k) as u8 | 1
}

/// Both ways of a window to put and to signal: what was put before a signal is there when that is seen.
#[test]
fn a_windows_signals_come_behind_its_puts() {
    pairs(|rank| {
        let peer = rank.ibgda.peer(1 - rank.me).unwrap();
        let table: [IbgdaPeer; 1] = [peer];
        let pairs = QueuePairs { peers: table.as_ptr() as u64 };
        let (own, far) = (rank.memory.local(), rank.remotes[1 - rank.me]);
        let local = |at: usize, bytes: usize| LocalMemory {
            address: own.at(at as u64).addr,
            bytes: bytes as u64,
            key: own.lkey.number(),
            reserved: 0,
        };
        let remote = |at: usize| RemoteMemory { address: far.at(at as u64).addr, key: far.rkey.number() };
        for round in 1..=ROUNDS {
            let place = DATA * (1 + round as usize % 4);
            if rank.me == 0 {
                rank.fill(place, BYTES, |k| pattern(round, k));
                let route = Route { peer: 0, block: round as u32 % 3, control: control() };
                let transfer = Transfer { from: local(place, BYTES), to: remote(place) };
                let signal = Add { word: remote(0), value: 1 };
                // SAFETY: registered ranges, handed over by the signal; the tables outlive it.
                unsafe {
                    match round % 3 {
                        0 => {
                            pairs.put(&Thread, route, transfer).unwrap();
                            pairs.signal(&Thread, route, signal).unwrap();
                        }
                        1 => pairs.put_signal(&Thread, route, transfer, signal).unwrap(),
                        _ => {
                            let counter = local(256, 8);
                            pairs.put_signal_counter(&Thread, route, transfer, signal, counter).unwrap();
                            let counted = round.div_ceil(3);
                            let at = rank.at(256).cast();
                            let seen = wait_signal(at, Compare::AtLeast, counted, &control());
                            assert_eq!(seen, Ok(counted), "counted in round {round}");
                        }
                    }
                }
            } else {
                // Without a pause, and the end first: it comes last.
                let start = std::time::Instant::now();
                while rank.word(0) < round {
                    assert!(start.elapsed() < WAIT, "no signal in round {round}");
                }
                for k in (0..BYTES).rev() {
                    // SAFETY: this rank's memory, signalled.
                    let seen = unsafe { rank.at(place + k).read_volatile() };
                    assert_eq!(seen, pattern(round, k), "byte {k} in round {round}");
                }
            }
            rank.world.barrier().unwrap();
        }
    });
}

/// Before a block leaves for a barrier of all blocks, what it posted is at the peer.
#[test]
fn what_is_complete_is_at_the_peer() {
    pairs(|rank| {
        let table: [IbgdaPeer; 1] = [rank.ibgda.peer(1 - rank.me).unwrap()];
        let pairs = QueuePairs { peers: table.as_ptr() as u64 };
        let (own, far) = (rank.memory.local(), rank.remotes[1 - rank.me]);
        for round in 1..=ROUNDS / 3 {
            if rank.me == 0 {
                rank.fill(DATA, BYTES, |k| pattern(round, k));
                let from = LocalMemory {
                    address: own.at(DATA as u64).addr,
                    bytes: BYTES as u64,
                    key: own.lkey.number(),
                    reserved: 0,
                };
                let to = RemoteMemory { address: far.at(DATA as u64).addr, key: far.rkey.number() };
                let route = Route { peer: 0, block: 0, control: control() };
                // SAFETY: registered ranges; the peer looks behind the barrier.
                unsafe {
                    pairs.put(&Thread, route, Transfer { from, to }).unwrap();
                    pairs.complete(&Thread, route).unwrap();
                }
            }
            rank.world.barrier().unwrap();
            if rank.me == 1 {
                rank.check(DATA, BYTES, |k| pattern(round, k));
            }
            rank.world.barrier().unwrap();
        }
    });
}

/// Streams over queue pairs: a line goes by the one that its data went by, and is rung for.
#[test]
fn a_channels_lines_come_behind_its_data() {
    pairs(|rank| {
        // SAFETY: the transport lives as long as this rank runs.
        let ops = unsafe { rank.ibgda.ops() };
        let (abort, record) = (0u64, Box::new(AbortRecord::EMPTY));
        let words = Control {
            abort: &raw const abort as u64,
            record: &raw const *record as u64,
            deadline_ns: WAIT.as_nanos() as u64,
        };
        // SAFETY: live words.
        let watch = unsafe { Watch::begin(&Thread, words, rank.me as u32, 0) };
        let payload = 3000 / 16 * 16;
        let (total, peer) = (stream_bytes(payload), 1 - rank.me as u32);
        for call in 1..=40u8 {
            for channel in 0..2 {
                let name = Call { kernel: 5, payload, cut: 0 };
                let mut from = 0;
                // SAFETY: one thread works each end, in order.
                let (out, input) = unsafe {
                    (
                        Sending::begin(&ops, &watch, peer, channel, name),
                        Receiving::begin(&ops, &watch, peer, channel, name),
                    )
                };
                while from < total {
                    let to = total.min(from + 1024);
                    if rank.me == 0 {
                        out.reserve(&Thread, from, to).unwrap();
                        // SAFETY: reserved.
                        (from.max(HEADER)..to)
                            .for_each(|at| unsafe { out.at(at).write(call + channel as u8) });
                        out.publish(&Thread, from, to).unwrap();
                    } else {
                        input.await_bytes(&Thread, from, to).unwrap();
                        for at in from.max(HEADER)..(HEADER + payload).min(to) {
                            // SAFETY: arrived.
                            assert_eq!(unsafe { input.at(at).read() }, call + channel as u8, "byte {at}");
                        }
                        input.free(&Thread, to).unwrap();
                    }
                    from = to;
                }
                if rank.me == 0 {
                    out.finish(&Thread);
                } else {
                    input.finish(&Thread);
                }
            }
        }
        rank.world.barrier().unwrap();
    });
}

/// A group of CPU threads, as a block of a GPU is one.
#[derive(Clone, Copy)]
struct Lanes<'k> {
    lane: u32,
    barrier: &'k Barrier,
    some: &'k AtomicBool,
}

const LANES: u32 = 4;

// SAFETY: a number for each thread, and a barrier of them all.
unsafe impl Group for Lanes<'_> {
    fn lane(&self) -> u32 {
        self.lane
    }
    fn lanes(&self) -> u32 {
        LANES
    }
    fn sync(&self) {
        self.barrier.wait();
    }
    fn any(&self, value: bool) -> bool {
        self.some.fetch_or(value, Ordering::SeqCst);
        self.barrier.wait();
        let any = self.some.load(Ordering::SeqCst);
        self.barrier.wait();
        self.some.store(false, Ordering::SeqCst);
        self.barrier.wait();
        any
    }
}

/// Runs `body` on the threads of a group.
fn in_group<T: Send>(body: impl Fn(&Lanes<'_>) -> T + Sync) -> Vec<T> {
    let (barrier, some) = (Barrier::new(LANES as usize), AtomicBool::new(false));
    let (barrier, some, body) = (&barrier, &some, &body);
    std::thread::scope(|threads| {
        let lanes: Vec<_> =
            (0..LANES).map(|lane| threads.spawn(move || body(&Lanes { lane, barrier, some }))).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    })
}

/// One entry goes out for all threads of a group, behind what each of them stored; and each learns what became of it.
#[test]
fn group_forms_with_several_lanes() {
    pairs(|rank| {
        let part = BYTES / LANES as usize;
        if rank.me == 0 {
            let (own, far) = (rank.memory.local(), rank.remotes[1]);
            let before = rank.nic.counts();
            for round in 1..=20u64 {
                let works = in_group(|group| {
                    let endpoint = rank.endpoint(1, 0);
                    // The last lanes are late.
                    std::thread::sleep(std::time::Duration::from_micros(300 * u64::from(group.lane)));
                    let at = DATA + part * group.lane as usize;
                    rank.fill(at, part, |k| pattern(round, at + k));
                    let (from, to) = (own.at(DATA as u64), far.at((DATA * (round as usize % 8 + 1)) as u64));
                    // SAFETY: registered ranges; the source is changed after the work is done.
                    let work = unsafe { endpoint.put_signal_group(group, from, to, BYTES as u64, far, 1) };
                    // SAFETY: the leader's work.
                    unsafe { endpoint.wait_local_group(group, work.unwrap()) }
                });
                assert!(works.iter().all(Result::is_ok), "{works:?}");
                rank.world.barrier().unwrap();
            }
            let after = rank.nic.counts();
            assert_eq!((after.writes - before.writes, after.atomics - before.atomics), (20, 20));
            // A key that is not registered: an error in every thread.
            let outcomes = in_group(|group| {
                let endpoint = rank.endpoint(1, 0);
                let wrong = fusewire_transports::ibgda::RemoteBuffer::new(far.addr, 0xdead_0000);
                // SAFETY: the adapter refuses it.
                let work = unsafe { endpoint.put_group(group, own, wrong, 8) };
                // SAFETY: the leader's work.
                work.and_then(|work| unsafe { endpoint.wait_local_group(group, work) })
            });
            assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
        } else {
            for round in 1..=20u64 {
                // SAFETY: a live word.
                unsafe { wait_signal(rank.at(0).cast(), Compare::AtLeast, round, &control()) }.unwrap();
                let place = DATA * (round as usize % 8 + 1);
                rank.check(place, BYTES, |k| pattern(round, DATA + k));
                rank.world.barrier().unwrap();
            }
        }
        rank.world.barrier().unwrap();
    });
}

/// Makes this thread one of a kernel's, whose operations wait as long as others do.
fn in_kernel(rank: &Rank) {
    static ABORT: AtomicU64 = AtomicU64::new(0);
    // Nobody gives up.
    static RECORD: LazyLock<u64> = LazyLock::new(|| Box::into_raw(Box::new(AbortRecord::EMPTY)) as u64);
    let words = Control { abort: ABORT.as_ptr() as u64, record: *RECORD, ..control() };
    // SAFETY: words that live as long as the program.
    let _ = unsafe { Watch::begin(&Thread, words, rank.me as u32, 0) };
}

/// More than a queue holds, of which nobody has told the adapter.
#[test]
fn quiet_entries_are_rung_for_when_the_queue_is_full() {
    pairs(|rank| {
        // SAFETY: the transport lives as long as this rank runs.
        let (ops, peer) = (unsafe { rank.ibgda.ops() }, 1 - rank.me as u32);
        in_kernel(rank);
        if rank.me == 0 {
            for k in 0..40u64 {
                // SAFETY: the ring's first bytes, which the peer does not read yet.
                unsafe { ops.flush(&Thread, peer, 0, 128 * (k % 8), 128 * (k % 8) + 128) };
            }
            // SAFETY: the line only grows.
            unsafe { ops.signal(&Thread, peer, Line::User(0), 40) };
        } else {
            let line = ops.line(peer, Line::User(0));
            // SAFETY: a live word.
            unsafe { wait_signal(line, Compare::AtLeast, 40, &control()) }.unwrap();
        }
        rank.world.barrier().unwrap();
    });
}

/// Of the heap, by all threads of a group: each copies a part, and one entry goes out for all.
#[test]
fn a_groups_put_and_get() {
    pairs(|rank| {
        // SAFETY: the transport lives as long as this rank runs.
        let (ops, peer) = (unsafe { rank.ibgda.ops() }, 1 - rank.me as u32);
        let bytes = 2000usize;
        for round in 1..=30u64 {
            if rank.me == 0 {
                let from: Vec<u8> = (0..bytes).map(|k| pattern(round, k)).collect();
                let mut back = vec![0u8; bytes];
                let place = back.as_mut_ptr() as usize;
                in_group(|group| {
                    in_kernel(rank);
                    std::thread::sleep(std::time::Duration::from_micros(200 * u64::from(group.lane)));
                    // SAFETY: in the heap, which the peer reads after the signal.
                    unsafe { ops.put(group, peer, 0, from.as_ptr(), bytes as u64) };
                    group.sync();
                    // SAFETY: the line only grows.
                    unsafe { ops.signal(group, peer, Line::User(1), round) };
                    // SAFETY: what was put is read back; each thread writes its part.
                    unsafe { ops.get(group, peer, 0, place as *mut u8, bytes as u64) };
                    group.sync();
                });
                assert!((0..bytes).all(|k| back[k] == pattern(round, k)), "read back in round {round}");
                rank.world.barrier().unwrap();
                rank.world.barrier().unwrap();
                in_group(|group| {
                    in_kernel(rank);
                    // SAFETY: the peer has changed it, and leaves it alone until the barrier; each thread writes its part.
                    unsafe { ops.get(group, peer, 0, place as *mut u8, bytes as u64) };
                });
                // Another than this rank has put there: each thread has waited for the read.
                assert!((0..bytes).all(|k| back[k] == !pattern(round, k)), "read in round {round}");
            } else {
                let line = ops.line(peer, Line::User(1));
                // SAFETY: a live word.
                unsafe { wait_signal(line, Compare::AtLeast, round, &control()) }.unwrap();
                for k in 0..bytes {
                    // SAFETY: signalled, and not written again before the barrier.
                    let seen = unsafe { ops.heap().add(k).read_volatile() };
                    assert_eq!(seen, pattern(round, k), "byte {k} of round {round}");
                }
                rank.world.barrier().unwrap();
                for k in 0..bytes {
                    // SAFETY: this rank's heap; the peer has read it before the barrier, and reads it behind the next.
                    unsafe { ops.heap().add(k).write_volatile(!pattern(round, k)) };
                }
                rank.world.barrier().unwrap();
            }
            rank.world.barrier().unwrap();
        }
    });
}
