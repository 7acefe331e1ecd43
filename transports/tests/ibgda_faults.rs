//! What goes wrong below the doorbell: every fault ends in an error that names it, within the deadline, and the transport works again
//! once it is renewed.

mod common;

use common::{Rank, control, ranks_that_behave, ranks_with};
use fusewire_device::wait::Control;
use fusewire_nic::Nic;
use fusewire_nic::emulated::{Behaviour, syndrome};
use fusewire_transports::Transport;
use fusewire_transports::ibgda::wqe::Head;
use fusewire_transports::ibgda::{Broken, Compare, Endpoint, IbgdaOptions, Pair, RemoteBuffer, wait_signal};
use std::time::{Duration, Instant};

const DATA: u64 = 4096;

fn options() -> IbgdaOptions {
    IbgdaOptions::new(16 << 10).queue_pairs(1).depth(16)
}

/// Quick to give up.
fn hasty() -> Behaviour {
    Behaviour { seed: 7, mtu: 256, timeout_ns: 2_000_000, not_ready_ns: 200_000, ..Behaviour::default() }
}

/// A put that must end with this syndrome, soon.
#[track_caller]
fn fails(rank: &Rank, remote: RemoteBuffer, expected: u8) {
    let (endpoint, start) = (rank.endpoint(1, 0), Instant::now());
    // SAFETY: whatever the adapter refuses is not touched.
    let outcome = unsafe {
        endpoint.put(rank.memory.local().at(DATA), remote, 1000).and_then(|work| endpoint.wait_local(work))
    };
    assert!(start.elapsed() < Duration::from_secs(5), "{outcome:?} took {:?}", start.elapsed());
    let Err(Broken::Adapter { syndrome, entry }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(syndrome, expected);
    // It is over: nothing more is posted, and the first error is told again.
    // SAFETY: as above.
    let later = unsafe { endpoint.signal_remote(remote, 1) };
    assert_eq!(later.map(|_| ()), Err(Broken::Adapter { syndrome, entry }));
}

/// Collective: after a fault, everything is as new.
fn mended(rank: &Rank) {
    rank.world.barrier().unwrap();
    rank.ibgda.renew().unwrap();
    let peer = 1 - rank.me;
    let endpoint = rank.endpoint(peer, 0);
    let before = rank.word(0);
    rank.world.barrier().unwrap();
    // SAFETY: registered words.
    unsafe {
        let work = endpoint.signal_remote_with_fence(rank.remotes[peer], 1).unwrap();
        endpoint.wait_local(work).unwrap();
        wait_signal(rank.at(0).cast(), Compare::Equal, before + 1, &control()).unwrap();
    }
    rank.world.barrier().unwrap();
}

/// Much is lost, and nothing is missing or done twice.
#[test]
fn loss_and_delay_are_made_good() {
    let lossy = Behaviour {
        drop: 60_000,
        drop_ack: 60_000,
        delay: 100_000,
        delay_ns: 300_000,
        retries: 1000,
        ..hasty()
    };
    ranks_that_behave(2, 1 << 16, options(), lossy, |rank| {
        let (peer, n, rounds) = (1 - rank.me, 1500u64, 60);
        rank.fill(DATA as usize, n as usize, |k| k as u8 ^ rank.me as u8);
        let (endpoint, remote, own) = (rank.endpoint(peer, 0), rank.remotes[peer], rank.memory.local());
        for _ in 0..rounds {
            // SAFETY: registered ranges with the same bytes each time.
            unsafe {
                endpoint
                    .put_signal_counter_remote(
                        own.at(DATA),
                        remote.at(4 * DATA),
                        n,
                        remote,
                        1,
                        own.at(256),
                        1,
                    )
                    .unwrap();
            }
        }
        // SAFETY: live words.
        unsafe {
            wait_signal(rank.at(256).cast(), Compare::AtLeast, rounds, &control()).unwrap();
            wait_signal(rank.at(0).cast(), Compare::AtLeast, rounds, &control()).unwrap();
        }
        rank.world.barrier().unwrap();
        assert_eq!((rank.word(0), rank.word(256)), (rounds, rounds), "additions happen once");
        rank.check(4 * DATA as usize, n as usize, |k| k as u8 ^ peer as u8);
        let counts = rank.nic.counts();
        assert!(counts.dropped > 0 && counts.timeouts > 0 && counts.duplicates > 0, "{counts:?}");
    });
}

#[test]
fn a_link_that_is_down() {
    ranks_that_behave(2, 1 << 16, options(), hasty(), |rank| {
        if rank.me == 0 {
            rank.nic.set_link(false);
            fails(rank, rank.remotes[1].at(DATA), syndrome::RETRIES);
            assert!(rank.nic.counts().timeouts > 7);
            rank.nic.set_link(true);
        }
        mended(rank);
    });
}

#[test]
fn a_key_that_was_taken_back() {
    ranks_with(2, 1 << 16, options(), |rank| {
        let second = rank.ibgda.allocate(8192).unwrap();
        let remotes = rank.ibgda.exchange(second.region()).unwrap();
        if rank.me == 1 {
            rank.nic.revoke(second.region()).unwrap();
            assert!(rank.nic.revoke(second.region()).is_err(), "it is gone");
        }
        rank.world.barrier().unwrap();
        if rank.me == 0 {
            fails(rank, remotes[1], syndrome::REMOTE_ACCESS);
        }
        mended(rank);
    });
}

#[test]
fn keys_and_ranges_that_never_were() {
    ranks_with(2, 1 << 16, options(), |rank| {
        let whole = rank.remotes[1];
        let end = rank.memory.bytes() as u64;
        for remote in [
            whole.at(end - 999),
            whole.at(end),
            RemoteBuffer::new(8, 0),
            RemoteBuffer::new(whole.addr, 0x3ff01),
        ] {
            if rank.me == 0 {
                fails(rank, remote, syndrome::REMOTE_ACCESS);
            }
            mended(rank);
        }
        if rank.me == 0 {
            let endpoint = rank.endpoint(1, 0);
            // SAFETY: the adapter refuses it before it touches anything.
            let outcome =
                unsafe { endpoint.signal_remote(whole.at(4), 1).and_then(|work| endpoint.wait_local(work)) };
            let misaligned =
                matches!(outcome, Err(Broken::Adapter { syndrome: syndrome::REMOTE_INVALID, .. }));
            assert!(misaligned, "{outcome:?}");
        }
        mended(rank);
        if rank.me == 0 {
            let (endpoint, own) = (rank.endpoint(1, 0), rank.memory.local().at(end - 10));
            // SAFETY: the adapter refuses it before it touches anything.
            let outcome = unsafe { endpoint.put(own, whole, 11).and_then(|work| endpoint.wait_local(work)) };
            let local = matches!(outcome, Err(Broken::Adapter { syndrome: syndrome::LOCAL_PROTECTION, .. }));
            assert!(local, "{outcome:?}");
        }
        mended(rank);
    });
}

#[test]
fn a_receiver_that_is_not_ready() {
    let patient = Behaviour { not_ready_retries: 5, ..hasty() };
    ranks_that_behave(2, 1 << 16, options(), patient, |rank| {
        if rank.me == 1 {
            rank.nic.hold_off(4);
        }
        rank.world.barrier().unwrap();
        if rank.me == 0 {
            let endpoint = rank.endpoint(1, 0);
            // SAFETY: a registered word.
            let work = unsafe { endpoint.signal_remote(rank.remotes[1].at(512), 1) }.unwrap();
            // SAFETY: work of this endpoint.
            unsafe { endpoint.wait_local(work) }.unwrap();
            assert_eq!(rank.nic.counts().not_ready, 4);
        }
        rank.world.barrier().unwrap();
        if rank.me == 1 {
            rank.nic.hold_off(u32::MAX);
        }
        rank.world.barrier().unwrap();
        if rank.me == 0 {
            fails(rank, rank.remotes[1].at(DATA), syndrome::NOT_READY);
        }
        rank.world.barrier().unwrap();
        if rank.me == 1 {
            rank.nic.hold_off(0);
        }
        mended(rank);
    });
}

#[test]
fn a_completion_queue_that_overruns() {
    let cramped = Behaviour { completion_room: 2, ..hasty() };
    ranks_that_behave(2, 1 << 16, options(), cramped, |rank| {
        if rank.me == 0 {
            let short = Control { deadline_ns: 300_000_000, ..control() };
            let peer = rank.ibgda.peer(1).unwrap();
            // SAFETY: the transport outlives this.
            let endpoint = unsafe { peer.endpoint(0, &short) };
            let start = Instant::now();
            let mut last = None;
            for _ in 0..8 {
                // SAFETY: a registered word.
                last = Some(unsafe { endpoint.signal_remote(rank.remotes[1].at(512), 1) }.unwrap());
            }
            // SAFETY: work of this endpoint.
            let outcome = unsafe { endpoint.wait_local(last.unwrap()) };
            assert_eq!(outcome, Err(Broken::Expired));
            assert!(start.elapsed() < Duration::from_secs(5));
            assert_eq!(rank.nic.counts().overruns, 1);
        }
        mended(rank);
    });
}

/// A queue that is full because the peer does not answer: posting gives up in time and nothing is posted afterwards.
#[test]
fn a_full_queue_does_not_wait_for_ever() {
    let slow = Behaviour { timeout_ns: 60_000_000_000, ..hasty() };
    ranks_that_behave(2, 1 << 16, options(), slow, |rank| {
        if rank.me == 0 {
            rank.nic.set_link(false);
            let short = Control { deadline_ns: 200_000_000, ..control() };
            let peer = rank.ibgda.peer(1).unwrap();
            // SAFETY: the transport outlives this.
            let endpoint = unsafe { peer.endpoint(0, &short) };
            let (start, mut posted) = (Instant::now(), 0);
            let outcome = loop {
                // SAFETY: a registered word.
                match unsafe { endpoint.signal_remote(rank.remotes[1].at(512), 1) } {
                    Ok(_) => posted += 1,
                    Err(why) => break why,
                }
            };
            assert_eq!((outcome, posted), (Broken::Expired, 16));
            assert!((Duration::from_millis(200)..Duration::from_secs(5)).contains(&start.elapsed()));
            rank.nic.set_link(true);
            // SAFETY: a registered word.
            let later = unsafe { endpoint.signal_remote(rank.remotes[1].at(512), 1) };
            assert_eq!(
                later.map(|_| ()),
                Err(Broken::Expired),
                "it stays refused, although there will be room"
            );
        }
        rank.world.barrier().unwrap();
    });
}

/// Entries that no kernel of ours would write.
#[test]
fn malformed_entries() {
    ranks_with(2, 1 << 16, options(), |rank| {
        let remote = rank.remotes[1];
        let spoil: [fn(&mut [[u32; 4]; 4]); 5] = [
            // Another operation, another queue pair, another length of the entry, a fence mode that is none, a length of 0.
            |s| s[0][0] = (s[0][0].swap_bytes() | 0x1f).swap_bytes(),
            |s| s[0][1] ^= 0x100u32.to_be(),
            |s| s[0][1] ^= 1u32.to_be(),
            |s| s[0][2] |= 0x20u32.to_be(),
            |s| s[2][0] = 0,
        ];
        for (k, spoil) in spoil.into_iter().enumerate() {
            if rank.me == 0 {
                let table = rank.ibgda.peer(1).unwrap().pairs as *const Pair;
                // SAFETY: a live table.
                let queue = unsafe { &(*table).main };
                let make = |_, head: Head| {
                    let mut entry = head.write(remote, rank.memory.local(), 8);
                    spoil(&mut entry.segments);
                    entry
                };
                // SAFETY: the adapter refuses it.
                let outcome = unsafe {
                    queue.post::<1>(&control(), true, make).and_then(|at| queue.wait(at, &control()))
                };
                let refused =
                    matches!(outcome, Err(Broken::Adapter { syndrome: syndrome::LOCAL_OPERATION, .. }));
                assert!(refused, "spoilt in way {k}: {outcome:?}");
            }
            mended(rank);
        }
    });
}

/// A doorbell without its record, and one for more than the queue holds.
#[test]
fn doorbells_that_lie() {
    ranks_with(2, 1 << 16, options(), |rank| {
        for ahead in [3u32, 40_000] {
            if rank.me == 0 {
                let table = rank.ibgda.peer(1).unwrap().pairs as *const Pair;
                // SAFETY: a live table.
                let queue = unsafe { &(*table).main };
                let doorbell = u64::from((ahead << 8).to_be()) | u64::from((queue.qpn << 8).to_be()) << 32;
                // SAFETY: a live doorbell.
                unsafe { (queue.doorbell as *mut u64).write_volatile(doorbell) };
                let start = Instant::now();
                while rank.nic.counts().errors == 0 {
                    assert!(start.elapsed() < Duration::from_secs(5), "it was taken for true");
                    std::thread::yield_now();
                }
            }
            mended(rank);
        }
    });
}

/// A rank whose adapter is gone, as when its process was killed: seen by retries, not by its own word.
#[test]
fn a_peer_that_is_killed() {
    ranks_that_behave(2, 1 << 16, options(), hasty(), |rank| {
        if rank.me == 1 {
            // What its world's connection tells the others.
            rank.nic.set_link(false);
            rank.nic.lost(1);
        }
        rank.world.barrier().unwrap();
        if rank.me == 0 {
            rank.nic.lost(1);
            fails(rank, rank.remotes[1].at(DATA), syndrome::RETRIES);
        }
        rank.world.barrier().unwrap();
    });
}

/// A counter whose put failed stays where it was.
#[test]
fn a_counter_of_a_put_that_failed() {
    ranks_that_behave(2, 1 << 16, options(), hasty(), |rank| {
        if rank.me == 0 {
            let (endpoint, own): (Endpoint, _) = (rank.endpoint(1, 0), rank.memory.local());
            let bad = RemoteBuffer::new(8, 0);
            // SAFETY: the adapter refuses it.
            let outcome = unsafe {
                endpoint
                    .put_signal_counter_remote(
                        own.at(DATA),
                        bad,
                        100,
                        rank.remotes[1].at(640),
                        1,
                        own.at(256),
                        1,
                    )
                    .and_then(|work| endpoint.wait_local(work))
            };
            assert!(matches!(outcome, Err(Broken::Adapter { .. })), "{outcome:?}");
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(rank.word(256), 0);
        }
        rank.world.barrier().unwrap();
        assert_eq!(rank.word(640), 0, "no signal without its data");
        mended(rank);
    });
}
