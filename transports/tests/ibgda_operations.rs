//! Operations on CPU threads, over emulated adapters.
//!
//! Cases of the upstream project's tests for its GPU-initiated transport (`comms/pipes/tests`), and where each is here:
//!
//! | upstream | here |
//! |---|---|
//! | `MultipeerIbgdaTransportTest` ConstructAndExchange | `ranks_construct_and_exchange` |
//! | PutSignalBasic, SignalOnly | `a_put_and_its_signal`, `a_signal_alone` |
//! | PutSignalGroupBasic, MultiWarp, Block | `group_forms` |
//! | TransferSize 1K to 16M | `sizes` |
//! | Bidirectional, BidirectionalConcurrent | `both_ways_at_once` |
//! | StressTest | `many_threads_on_few_entries` |
//! | PutSignalCounter | `a_signal_there_and_a_counter_here` |
//! | ResetSignal | `a_signal_is_reset` |
//! | MultipleSignalSlots | `many_signals` |
//! | PutSignalWaitForReady | `a_receiver_that_says_when` |
//! | AllToAll | `all_to_all_by_puts` |
//! | `P2pIbgdaTransportDeviceTest` construction, signal addresses | `ranks_construct_and_exchange`, `many_signals` |
//! | WaitSignal EQ, NE, GE, GT, LE, LT; zero and largest values | `comparisons` |
//! | WaitSignalTimeoutTraps, NoTimeoutWhenSatisfied | `a_wait_expires`, `a_satisfied_wait_does_not` |
//! | group partitioning, broadcast64 | none: a group's operation is one entry, posted by its leader, so nothing is cut or broadcast |
//! | `MultipeerIbgdaDeviceTransportTest` rank mapping, peer offsets | `ranks_construct_and_exchange`: tables are indexed by rank, with no offsets |
//! | `IbgdaBufferTest` keys, sub-buffers | `ibgda_entries.rs` |
//! | later: multi-QP | `many_threads_on_few_entries`; the conformance suite, whose blocks are spread over two queue pairs |

mod common;

use common::{Rank, WAIT, control, ranks};
use fusewire_device::group::{Block, Thread, Warp};
use fusewire_transports::ibgda::{Broken, Compare, IbgdaOptions, read_signal, wait_signal};
use std::time::{Duration, Instant};

const DATA: usize = 1 << 16;

fn pattern(rank: usize, k: usize) -> u8 {
    (rank * 101 + k * 7 + k / 251) as u8
}

#[test]
fn ranks_construct_and_exchange() {
    for n in [1, 2, 3, 5] {
        ranks(n, 4096, |rank| {
            assert_eq!(rank.remotes.len(), n);
            assert_eq!(rank.remotes[rank.me].addr, rank.memory.local().addr);
            // Every rank writes its number to a place of its own at every rank, itself included.
            for peer in 0..n {
                let endpoint = rank.endpoint(peer, 0);
                // SAFETY: registered words, one writer each.
                let work = unsafe {
                    endpoint.put_value(rank.remotes[peer].at(8 * rank.me as u64), 1 + rank.me as u64)
                };
                // SAFETY: work of this endpoint.
                unsafe { endpoint.wait_local(work.unwrap()) }.unwrap();
            }
            rank.world.barrier().unwrap();
            for peer in 0..n {
                assert_eq!(rank.word(8 * peer), 1 + peer as u64);
            }
            assert!(rank.ibgda.peer(n).is_err());
        });
    }
}

#[test]
fn a_put_and_its_signal() {
    pair(|rank| {
        let n = 5000;
        if rank.me == 0 {
            rank.fill(DATA, n, |k| pattern(0, k));
            let endpoint = rank.endpoint(1, 0);
            let (local, remote) = (rank.memory.local(), rank.remotes[1]);
            // SAFETY: registered ranges, used by this test as the signal says.
            let work = unsafe {
                endpoint.put_signal(local.at(DATA as u64), remote.at(DATA as u64 + 3), n as u64, remote, 5)
            };
            // SAFETY: work of this endpoint.
            unsafe { endpoint.wait_local(work.unwrap()) }.unwrap();
        } else {
            // SAFETY: a live word.
            let seen = unsafe { wait_signal(rank.at(0).cast(), Compare::AtLeast, 5, &control()) };
            assert_eq!(seen, Ok(5));
            rank.check(DATA + 3, n, |k| pattern(0, k));
        }
    });
}

#[test]
fn a_signal_alone() {
    pair(|rank| {
        if rank.me == 0 {
            let endpoint = rank.endpoint(1, 1);
            // SAFETY: registered words.
            unsafe {
                endpoint.signal_remote(rank.remotes[1].at(128), 3).unwrap();
                endpoint.signal_remote_with_fence(rank.remotes[1].at(128), 4).unwrap();
            }
        } else {
            // SAFETY: a live word.
            let seen = unsafe { wait_signal(rank.at(128).cast(), Compare::Equal, 7, &control()) };
            assert_eq!(seen, Ok(7));
        }
    });
}

#[test]
fn a_signal_there_and_a_counter_here() {
    pair(|rank| {
        let (n, rounds) = (777, 20);
        if rank.me == 0 {
            let (local, remote) = (rank.memory.local(), rank.remotes[1]);
            let endpoint = rank.endpoint(1, 0);
            for round in 0..rounds {
                rank.fill(DATA, n, |k| pattern(round, k));
                let (data, far) = (local.at(DATA as u64), remote.at(DATA as u64 + 1024 * round as u64));
                // SAFETY: registered ranges; the source is changed only after the counter.
                unsafe {
                    endpoint
                        .put_signal_counter_remote(data, far, n as u64, remote, 2, local.at(256), 3)
                        .unwrap();
                    let counted = 3 * (round as u64 + 1);
                    let seen = wait_signal(rank.at(256).cast(), Compare::AtLeast, counted, &control());
                    assert_eq!(seen, Ok(counted));
                }
            }
            // SAFETY: registered words.
            unsafe {
                endpoint.signal_counter_remote(remote, 1, local.at(256), 1).unwrap();
                wait_signal(rank.at(256).cast(), Compare::Equal, 3 * rounds as u64 + 1, &control()).unwrap();
            }
        } else {
            let all = 2 * rounds as u64 + 1;
            // SAFETY: a live word.
            assert_eq!(unsafe { wait_signal(rank.at(0).cast(), Compare::AtLeast, all, &control()) }, Ok(all));
            for round in 0..rounds {
                rank.check(DATA + 1024 * round, n, |k| pattern(round, k));
            }
            assert_eq!(rank.word(256), 0, "a counter is the sender's own");
        }
    });
}

#[test]
fn group_forms() {
    pair(|rank| {
        let (local, remote, n) = (rank.memory.local(), rank.remotes[1 - rank.me], 600u64);
        if rank.me == 0 {
            rank.fill(DATA, n as usize, |k| pattern(7, k));
            let endpoint = rank.endpoint(1, 0);
            let data = |k: u64| (local.at(DATA as u64), remote.at(DATA as u64 + k * 1024));
            // SAFETY: registered ranges; on the host a group is this thread.
            unsafe {
                let (from, to) = data(0);
                endpoint.put_group(&Thread, from, to, n).unwrap();
                let (from, to) = data(1);
                endpoint.put_signal_group(&Warp, from, to, n, remote, 1).unwrap();
                let (from, to) = data(2);
                endpoint
                    .put_signal_counter_remote_group(&Block, from, to, n, remote, 1, local.at(256), 1)
                    .unwrap();
                endpoint.signal_remote_group(&Warp, remote, 1).unwrap();
                endpoint.signal_remote_with_fence_group(&Block, remote, 1).unwrap();
                endpoint.signal_counter_remote_group(&Block, remote, 1, local.at(256), 1).unwrap();
                let work = endpoint.get_group(&Block, local.at(3 * DATA as u64), remote.at(DATA as u64), n);
                endpoint.wait_local_group(&Block, work.unwrap()).unwrap();
                endpoint.fence_group(&Warp).unwrap();
                wait_signal(rank.at(256).cast(), Compare::Equal, 2, &control()).unwrap();
            }
            rank.check(3 * DATA, n as usize, |k| pattern(7, k));
        } else {
            // SAFETY: a live word.
            unsafe { wait_signal(rank.at(0).cast(), Compare::Equal, 5, &control()) }.unwrap();
            for k in 0..3 {
                rank.check(DATA + k * 1024, n as usize, |k| pattern(7, k));
            }
        }
    });
}

#[test]
fn sizes() {
    let large = 16 << 20;
    ranks(2, DATA + large, |rank| {
        let sizes =
            [1, 2, 3, 7, 8, 9, 28, 29, 1024, 4096, 4097, 64 << 10, 256 << 10, 1 << 20, 4 << 20, large];
        for (round, n) in sizes.into_iter().enumerate() {
            let remote = rank.remotes[1 - rank.me];
            if rank.me == 0 {
                rank.fill(DATA, n, |k| pattern(round, k));
                let endpoint = rank.endpoint(1, 0);
                let (local, at) = (rank.memory.local(), DATA as u64);
                // SAFETY: registered ranges, handed over by the signal.
                unsafe { endpoint.put_signal(local.at(at), remote.at(at), n as u64, remote, 1) }.unwrap();
            } else {
                // SAFETY: a live word.
                unsafe { wait_signal(rank.at(0).cast(), Compare::AtLeast, round as u64 + 1, &control()) }
                    .unwrap();
                rank.check(DATA, n, |k| pattern(round, k));
            }
            rank.world.barrier().unwrap();
        }
    });
}

#[test]
fn both_ways_at_once() {
    pair(|rank| {
        let (n, peer) = (3000, 1 - rank.me);
        rank.fill(DATA, n, |k| pattern(rank.me, k));
        let (endpoint, remote) = (rank.endpoint(peer, 0), rank.remotes[peer]);
        for round in 0..50 {
            let at = DATA as u64;
            // SAFETY: registered ranges, handed over by the signals.
            unsafe {
                endpoint
                    .put_signal(rank.memory.local().at(at), remote.at(2 * at), n as u64, remote, 1)
                    .unwrap();
                wait_signal(rank.at(0).cast(), Compare::AtLeast, round + 1, &control()).unwrap();
            }
            rank.check(2 * DATA, n, |k| pattern(peer, k));
        }
    });
}

/// Threads of both ranks share queues that hold far fewer entries than they post.
#[test]
fn many_threads_on_few_entries() {
    let (threads, each) = (6, 40);
    let options = IbgdaOptions::new(16 << 10).queue_pairs(2).depth(4);
    common::ranks_with(2, 4 * DATA, options, |rank| {
        let remote = rank.remotes[1 - rank.me];
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let endpoint = rank.endpoint(1 - rank.me, thread as u32);
                    let (own, place) = (rank.memory.local(), DATA + 1024 * thread);
                    for round in 0..each {
                        rank.fill(place, 512, |k| pattern(thread + round, k));
                        let signal = remote.at(128 * thread as u64);
                        let far = remote.at((2 * DATA + (thread * each + round) * 512) as u64);
                        // SAFETY: each thread has its own places; the source is changed after the work is done.
                        unsafe {
                            let counter = own.at(4096 + 128 * thread as u64);
                            let work = endpoint
                                .put_signal_counter_remote(
                                    own.at(place as u64),
                                    far,
                                    512,
                                    signal,
                                    1,
                                    counter,
                                    1,
                                )
                                .unwrap();
                            endpoint.wait_local(work).unwrap();
                        }
                    }
                    let all = each as u64;
                    // SAFETY: live words.
                    unsafe {
                        wait_signal(rank.at(4096 + 128 * thread).cast(), Compare::Equal, all, &control())
                            .unwrap();
                        wait_signal(rank.at(128 * thread).cast(), Compare::Equal, all, &control()).unwrap();
                    }
                });
            }
        });
        for thread in 0..threads {
            for round in 0..each {
                rank.check(2 * DATA + (thread * each + round) * 512, 512, |k| pattern(thread + round, k));
            }
        }
    });
}

/// Indices go out in 16 bits, and queues are used for longer.
#[test]
fn queues_pass_their_65536th_entry() {
    let (rounds, options) = (33_000u64, IbgdaOptions::new(16 << 10).queue_pairs(1).depth(64));
    common::ranks_with(2, DATA, options, |rank| {
        if rank.me == 1 {
            rank.world.barrier().unwrap();
            assert_eq!((rank.word(0), rank.word(128)), (rounds, rounds));
            return;
        }
        let (endpoint, own, remote) = (rank.endpoint(1, 0), rank.memory.local(), rank.remotes[1]);
        for round in 1..=rounds {
            // SAFETY: registered words; two entries on each of both queues.
            unsafe {
                endpoint.put_value(remote, round).unwrap();
                endpoint.signal_counter_remote(remote.at(128), 1, own.at(256), 1).unwrap();
            }
        }
        // SAFETY: a live word.
        unsafe { wait_signal(rank.at(256).cast(), Compare::Equal, rounds, &control()) }.unwrap();
        rank.world.barrier().unwrap();
    });
}

#[test]
fn a_signal_is_reset() {
    pair(|rank| {
        if rank.me == 0 {
            let (endpoint, signal) = (rank.endpoint(1, 0), rank.remotes[1].at(384));
            for value in [1, u64::MAX, 17] {
                // SAFETY: a registered word, which nobody else adds to.
                unsafe {
                    endpoint.signal_remote(signal, value).unwrap();
                    endpoint.fence().unwrap();
                    rank.world.barrier().unwrap();
                    rank.world.barrier().unwrap();
                    endpoint.reset_signal(signal).unwrap();
                }
                rank.world.barrier().unwrap();
                rank.world.barrier().unwrap();
            }
        } else {
            for value in [1, u64::MAX, 17] {
                rank.world.barrier().unwrap();
                // SAFETY: a live word.
                assert_eq!(unsafe { read_signal(rank.at(384).cast()) }, value);
                rank.world.barrier().unwrap();
                rank.world.barrier().unwrap();
                // SAFETY: a live word.
                assert_eq!(unsafe { read_signal(rank.at(384).cast()) }, 0);
                rank.world.barrier().unwrap();
            }
        }
    });
}

#[test]
fn many_signals() {
    pair(|rank| {
        let slots = 64;
        if rank.me == 0 {
            let endpoint = rank.endpoint(1, 0);
            for slot in (0..slots).rev() {
                // SAFETY: registered words.
                unsafe { endpoint.signal_remote(rank.remotes[1].at(128 * slot), slot + 1) }.unwrap();
            }
        } else {
            for slot in 0..slots {
                // SAFETY: a live word.
                let seen = unsafe {
                    wait_signal(rank.at(128 * slot as usize).cast(), Compare::AtLeast, 1, &control())
                };
                assert_eq!(seen, Ok(slot + 1));
            }
        }
    });
}

/// The receiver signals that its buffer is free; the sender waits for that before each put.
#[test]
fn a_receiver_that_says_when() {
    pair(|rank| {
        let (n, at) = (2000, DATA as u64);
        let (endpoint, remote) = (rank.endpoint(1 - rank.me, 0), rank.remotes[1 - rank.me]);
        for round in 0..30usize {
            let next = round as u64 + 1;
            // SAFETY: registered ranges, handed to and fro by the signals.
            unsafe {
                if rank.me == 0 {
                    wait_signal(rank.at(0).cast(), Compare::AtLeast, next, &control()).unwrap();
                    endpoint.fence().unwrap();
                    rank.fill(DATA, n, |k| pattern(round, k));
                    endpoint
                        .put_signal(rank.memory.local().at(at), remote.at(at), n as u64, remote, 1)
                        .unwrap();
                } else {
                    endpoint.signal_remote(remote, 1).unwrap();
                    wait_signal(rank.at(0).cast(), Compare::AtLeast, next, &control()).unwrap();
                    rank.check(DATA, n, |k| pattern(round, k));
                }
            }
        }
    });
}

#[test]
fn all_to_all_by_puts() {
    for n in [2, 3, 5] {
        ranks(n, 2 * DATA + 8192 * n, |rank| {
            let each = 4000;
            rank.fill(DATA, each, |k| pattern(rank.me, k));
            for step in 1..n {
                let peer = (rank.me + step) % n;
                let (remote, local) = (rank.remotes[peer], rank.memory.local().at(DATA as u64));
                let to = remote.at((2 * DATA + 8192 * rank.me) as u64);
                let signal = remote.at(128 * rank.me as u64);
                // SAFETY: every rank has its own place at every peer.
                unsafe { rank.endpoint(peer, 0).put_signal(local, to, each as u64, signal, 1) }.unwrap();
            }
            for step in 1..n {
                let peer = (rank.me + n - step) % n;
                // SAFETY: a live word.
                unsafe { wait_signal(rank.at(128 * peer).cast(), Compare::AtLeast, 1, &control()) }.unwrap();
                rank.check(2 * DATA + 8192 * peer, each, |k| pattern(peer, k));
            }
        });
    }
}

#[test]
fn comparisons() {
    use Compare::{Above, AtLeast, AtMost, Below, Equal, NotEqual};
    let all = [Equal, NotEqual, AtLeast, Above, AtMost, Below];
    let cases: [(u64, u64, [bool; 6]); 5] = [
        (5, 5, [true, false, true, false, true, false]),
        (6, 5, [false, true, true, true, false, false]),
        (4, 5, [false, true, false, false, true, true]),
        (0, 0, [true, false, true, false, true, false]),
        (u64::MAX, 0, [false, true, true, true, false, false]),
    ];
    let short = fusewire_device::wait::Control { deadline_ns: 2_000_000, ..control() };
    for (value, expected, holds) in cases {
        for (compare, holds) in all.into_iter().zip(holds) {
            assert_eq!(compare.holds(value, expected), holds, "{value} {compare:?} {expected}");
            // SAFETY: a live word.
            let waited = unsafe { wait_signal(&raw const value, compare, expected, &short) };
            assert_eq!(waited, if holds { Ok(value) } else { Err(Broken::Expired) });
        }
    }
}

#[test]
fn a_wait_expires() {
    let short = fusewire_device::wait::Control { deadline_ns: 50_000_000, ..control() };
    let (word, start) = (0u64, Instant::now());
    // SAFETY: a live word.
    let waited = unsafe { wait_signal(&raw const word, Compare::AtLeast, 1, &short) };
    assert_eq!(waited, Err(Broken::Expired));
    assert!((Duration::from_millis(50)..WAIT).contains(&start.elapsed()));
    // And it ends early when the kernel is aborted.
    let (abort, start) = (1u64, Instant::now());
    let aborted = fusewire_device::wait::Control { abort: &raw const abort as u64, ..control() };
    // SAFETY: live words.
    let waited = unsafe { wait_signal(&raw const word, Compare::AtLeast, 1, &aborted) };
    assert_eq!(waited, Err(Broken::Aborted));
    assert!(start.elapsed() < WAIT / 2);
}

#[test]
fn a_satisfied_wait_does_not() {
    let never = fusewire_device::wait::Control { deadline_ns: 0, ..control() };
    let word = 9u64;
    // SAFETY: a live word.
    assert_eq!(unsafe { wait_signal(&raw const word, Compare::Equal, 9, &never) }, Ok(9));
}

fn pair(body: impl Fn(&Rank) + Sync) {
    ranks(2, 4 * DATA, body);
}
