//! What goes wrong, and what works afterwards.

use super::*;

#[test]
fn a_wrong_key_is_a_fault_on_both_ranks() {
    let [a, b] = ranks(&How { wrong_key: 1, ..USUAL });
    // SAFETY: refused by the peer's adapter.
    unsafe { a.ops.signal(&Thread, 1, Line::User(2), 1) };
    let record = a.fault();
    let expected = (kind::FABRIC, 0, 1, 2, operation::SIGNAL, u64::from(Status::RemoteAccess.code()));
    let AbortRecord { kind, rank, peer, channel, operation, seen, .. } = record;
    assert_eq!((kind, rank, peer, channel, operation, seen), expected);
    assert_eq!(read_abort_code(a.memory.words.abort().unwrap()), Some((0, kind::FABRIC)));
    // Its end of the pair is broken as well, which it finds out when it next uses it: after the world's own word about rank 0 has
    // not come.
    // SAFETY: never carried out.
    unsafe { b.ops.signal(&Thread, 0, Line::User(0), 1) };
    let record = b.fault();
    assert_eq!((record.kind, record.peer, record.seen), (kind::FABRIC, 0, u64::from(Status::Flushed.code())));
    // Nothing is carried out any more, and nobody waits for room.
    for value in 2..100 {
        // SAFETY: dropped.
        unsafe { a.ops.signal(&Thread, 1, Line::User(2), value) };
    }
    assert_eq!(b.line(0, Line::User(2)), 0);
}

#[test]
fn a_fault_of_one_rank_reaches_the_other() {
    let [a, b] = ranks(&USUAL);
    // A read into memory that is no heap.
    let mut word = 0u64;
    // SAFETY: refused by the own proxy.
    unsafe { a.ops.get(&Thread, 1, 0, (&raw mut word).cast(), 8) };
    let record = a.fault();
    assert_eq!((record.kind, record.operation, record.peer), (kind::BEYOND, operation::GET, 1));
    assert!(record.seen >= record.expected, "the end of what was asked for is too far: {record:?}");
    until("word of it", || b.memory.words.abort().unwrap() == abort_code(0, kind::BEYOND));
    // Told, and not the other's own.
    assert!(b.memory.filled_record().is_none());
    let told = Instant::now();
    a.proxy.as_ref().unwrap().engine().settle_faults(Duration::from_secs(5));
    assert!(told.elapsed() < Duration::from_secs(4));
}

/// Signals to itself go by its proxy as well.
/// What a rank hands over after a fault of its own goes nowhere.
#[test]
fn nothing_is_carried_out_after_a_fault() {
    let [a, b] = ranks(&USUAL);
    // SAFETY: refused by the own proxy.
    unsafe { a.ops.get(&Thread, 1, 0, std::ptr::null_mut(), 8) };
    a.fault();
    // SAFETY: the line only grows.
    unsafe { a.ops.signal(&Thread, 1, Line::User(1), 7) };
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(b.line(0, Line::User(1)), 0);
}

/// Once a rank has reported a fault, no kernel of a peer begins, however slow that one's proxy is.
#[test]
fn a_fault_is_reported_when_peers_know() {
    let [a, b] = ranks(&USUAL);
    let slow = b.proxy.as_ref().unwrap().engine();
    // SAFETY: refused by the own proxy.
    unsafe { a.ops.get(&Thread, 1, 0, std::ptr::null_mut(), 8) };
    a.fault();
    std::thread::scope(|scope| {
        let settled = scope.spawn(|| {
            a.proxy.as_ref().unwrap().engine().settle_faults(Duration::from_secs(5));
            b.memory.words.abort().unwrap()
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!settled.is_finished() && b.memory.words.abort().unwrap() == 0);
        drop(slow);
        assert_eq!(settled.join().unwrap(), abort_code(0, kind::BEYOND));
    });
}

/// A ring that nobody empties: a block waits for room until its deadline, then says so, and posts nothing more.
#[test]
fn a_full_ring_holds_back_until_the_deadline() {
    let deadline = Duration::from_millis(200);
    let [a, b] = ranks(&How { deadline, runs: false, ..USUAL });
    let start = Instant::now();
    for value in 1..=17 {
        // SAFETY: of no effect.
        unsafe { a.ops.signal(&Thread, 1, Line::User(0), value) };
        assert_eq!(a.memory.filled_record().is_some(), value == 17, "after {value}");
    }
    let (took, record) = (start.elapsed(), a.fault());
    assert!((deadline..deadline * 10).contains(&took), "{took:?}");
    assert_eq!((record.kind, record.operation, record.peer), (kind::EXPIRED, operation::POST, 1));
    // Poisoned: the next one does not wait.
    let start = Instant::now();
    // SAFETY: as above.
    unsafe { a.ops.signal(&Thread, 1, Line::User(0), 18) };
    assert!(start.elapsed() < deadline);
    drop(b);
}

/// Nobody's proxy is needed at the far end, but its adapter is: without it a request ends as unreachable.
#[test]
fn a_peer_that_is_gone_is_a_fault_in_time() {
    let [a, mut b] = ranks(&USUAL);
    b.proxy = None;
    let start = Instant::now();
    // SAFETY: never carried out.
    unsafe { a.ops.signal(&Thread, 1, Line::User(0), 1) };
    let record = a.fault();
    assert_eq!(
        (record.kind, record.peer, record.seen),
        (kind::FABRIC, 1, u64::from(Status::Unreachable.code()))
    );
    // It has waited for the world to say that the rank is dead.
    assert!((Duration::from_millis(900)..Duration::from_secs(5)).contains(&start.elapsed()));
}

#[test]
fn a_fresh_start_after_a_fault() {
    let [a, b] = ranks(&USUAL);
    // SAFETY: refused by the own proxy.
    unsafe { a.ops.get(&Thread, 1, 0, std::ptr::null_mut(), 8) };
    a.fault();
    until("word of it", || b.memory.words.abort().unwrap() != 0);
    for rank in [&a, &b] {
        let mut engine = rank.proxy.as_ref().unwrap().engine();
        assert!(engine.drain(Duration::from_secs(5)), "no pair is broken");
    }
    for rank in [&a, &b] {
        rank.proxy.as_ref().unwrap().engine().reset().unwrap();
    }
    for value in 1..100 {
        // SAFETY: the line only grows.
        unsafe { a.ops.signal(&Thread, 1, Line::User(3), value) };
    }
    until("signals", || b.line(0, Line::User(3)) == 99);
    assert!(a.memory.filled_record().is_none() && b.memory.words.abort().unwrap() == 0);
}

/// As where an adapter or its driver loses a request: no report, and nothing is sent again.
#[test]
fn a_request_that_never_ends_is_a_fault_in_time() {
    let deadline = Duration::from_millis(300);
    let [a, _b] = ranks(&How { pairs: Pairs::Mute, deadline, ..USUAL });
    let start = Instant::now();
    // SAFETY: never carried out.
    unsafe { a.ops.signal(&Thread, 1, Line::User(1), 1) };
    let record = a.fault();
    assert!((deadline..deadline * 10).contains(&start.elapsed()), "{:?}", start.elapsed());
    let AbortRecord { kind, rank, peer, channel, operation, age_ns, .. } = record;
    assert_eq!((kind, rank, peer, channel, operation), (kind::EXPIRED, 0, 1, 1, operation::SIGNAL));
    assert!(u128::from(age_ns) > deadline.as_nanos());
    let mut engine = a.proxy.as_ref().unwrap().engine();
    assert!(!engine.drain(Duration::from_millis(100)), "the pair is of no more use");
}

/// The fault that a rank's transport reports, in time.
fn reported(ib: &HostIb) -> Box<Fault> {
    let start = Instant::now();
    loop {
        match ib.link().check() {
            Ok(()) => assert!(start.elapsed() < Duration::from_secs(5), "nothing is reported"),
            Err(Error::Fault(fault)) => return fault,
            Err(other) => panic!("{other}"),
        }
        std::thread::yield_now();
    }
}

/// Rank 0 takes rank 1's memory for another, then both begin anew with the right one.
fn refused(seen: fn(Place) -> Place) {
    World::threads(2, move |world| {
        let (me, peer) = (world.rank(), 1 - world.rank());
        let options = Options::per_peer(4096).channels(2).signals(4).heap(64 << 10);
        let how = HostIbOptions::default().fabric(fabric());
        let ib = HostIb::meet(&world, options, &how, if me == 0 { seen } else { |place| place }).unwrap();
        // SAFETY: `ib` lives to the end of the test.
        let ops = unsafe { ib.ops() };
        let put = || {
            // SAFETY: the heap is this thread's; the peer reads it after the signal, if ever.
            unsafe {
                ops.heap().write_bytes(me as u8 + 1, 32 << 10);
                ops.put(&Thread, peer as u32, 32 << 10, ops.heap(), 32 << 10);
                ops.signal(&Thread, peer as u32, Line::User(3), 1);
            }
        };
        if me == 0 {
            put();
            let fault = reported(&ib);
            let Some(Operation::Fabric { what, peer, status, .. }) = &fault.operation else {
                panic!("the adapter should have refused it: {fault}");
            };
            assert_eq!((fault.rank, *what, *peer, *status), (0, "put", 1, Status::RemoteAccess), "{fault}");
            let text = fault.to_string();
            assert!(text.contains("to rank 1") && text.contains("rkey"), "{text}");
        }
        world.barrier().unwrap();
        if me == 1 {
            // The peer's refusal has broken this end too.
            put();
            let fault = reported(&ib);
            let lost = [Status::Flushed, Status::Unreachable];
            let named = |o: &Operation| matches!(o, Operation::Fabric { peer: 0, status, .. } if lost.contains(status));
            assert!(fault.operation.as_ref().is_some_and(named), "{fault}");
        }
        ib.renew().unwrap();
        put();
        // SAFETY: a live line of this rank.
        let line = || unsafe { ops.line(peer as u32, Line::User(3)).read_volatile() };
        until("a signal after the renewal", || line() == 1);
        // SAFETY: written before the signal that has been seen.
        let got = unsafe { std::slice::from_raw_parts(ops.heap().add(32 << 10), 32 << 10) };
        assert!(got.iter().all(|b| *b == peer as u8 + 1), "what was put after the renewal");
        world.barrier().unwrap();
    })
    .unwrap();
}

#[test]
fn a_wrong_key_is_reported_and_mended() {
    refused(|place| Place { rkey: place.rkey ^ 0x100, ..place });
}

/// Most of the put is within the peer's memory.
#[test]
fn a_write_past_the_end_is_reported_and_mended() {
    refused(|place| Place { start: place.start + (16 << 10), ..place });
}

/// A signal that is acknowledged, and that nobody awaits, may reach the peer's memory later: not behind the renewal, which clears it.
#[test]
fn nothing_arrives_behind_a_renewal() {
    World::threads(2, |world| {
        let peer = 1 - world.rank() as u32;
        let options = Options::per_peer(4096).channels(2).signals(4).heap(64 << 10);
        let how = HostIbOptions::default().fabric(fabric());
        let ib = HostIb::rendezvous_with(&world, options, &how).unwrap();
        // SAFETY: `ib` lives to the end of the test.
        let ops = unsafe { ib.ops() };
        // SAFETY: a live line of this rank.
        let line = || unsafe { ops.line(peer, Line::User(3)).read_volatile() };
        for round in 1..=300 {
            // SAFETY: a line of the peer, which nobody waits for.
            unsafe { ops.signal(&Thread, peer, Line::User(3), round) };
            ib.renew().unwrap();
            std::thread::sleep(Duration::from_micros(300));
            assert_eq!(line(), 0, "round {round}");
            world.barrier().unwrap();
        }
    })
    .unwrap();
}
