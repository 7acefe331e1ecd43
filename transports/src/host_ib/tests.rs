//! Device half and proxy of two ranks in one process, without kernels: this thread does what a block would.
//!
//! Over the emulation, and in the VM over real verbs (`FUSEWIRE_TEST_VERBS=1`).

use super::memory::Memory;
use super::proxy::{Engine, Peer, Place, Proxy};
use super::{HostIb, HostIbOps, HostIbOptions};
use crate::host::{Error, Fault, Machine, Operation, Options, Transport};
use crate::rdma::{
    Access, Completion, Fabric, Local, Pair, PairOptions, Remote, Request, Result, Status, Work,
};
use fusewire_device::group::Thread;
use fusewire_device::ops::{Get, Line, Ops, Put};
use fusewire_device::wait::{AbortRecord, abort_code, kind, operation, read_abort_code};
use fusewire_world::World;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

struct Rank {
    proxy: Option<Proxy>,
    memory: Arc<Memory>,
    ops: HostIbOps,
}

fn fabric() -> Fabric {
    let real = std::env::var("FUSEWIRE_TEST_VERBS").is_ok_and(|v| v == "1");
    if real { Fabric::Verbs } else { Fabric::Emulated }
}

/// A pair whose requests begin late, so that what is reused or reported too early shows.
#[derive(Debug)]
struct Late {
    pair: Box<dyn Pair>,
    held: Mutex<VecDeque<(Instant, u64, Held, bool)>>,
}

#[derive(Debug)]
enum Held {
    Inline([u8; 8], Remote),
    Work(Work<'static>),
}

const LATE: Duration = Duration::from_millis(2);

// SAFETY: what it wraps, later or not at all.
unsafe impl Pair for Late {
    fn endpoint(&self) -> Vec<u8> {
        self.pair.endpoint()
    }

    fn connect(&mut self, peer: &[u8]) -> Result<()> {
        self.pair.connect(peer)
    }

    unsafe fn post(&self, request: &Request<'_>) -> Result<bool> {
        let held = match request.work {
            Work::WriteInline { bytes, to } => Held::Inline(bytes.try_into().expect("a word"), to),
            Work::Write { from, to, immediate } => Held::Work(Work::Write { from, to, immediate }),
            Work::Read { to, from } => Held::Work(Work::Read { to, from }),
            other => panic!("the proxy posts no {other:?}"),
        };
        self.held.lock().unwrap().push_back((Instant::now(), request.id, held, request.fence));
        Ok(true)
    }

    unsafe fn post_receive(&self, id: u64, local: Local) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.pair.post_receive(id, local) }
    }

    fn poll(&self, out: &mut Vec<Completion>) -> Result<()> {
        let mut held = self.held.lock().unwrap();
        while let Some((since, id, work, fence)) = held.front() {
            let work = match work {
                Held::Inline(bytes, to) => Work::WriteInline { bytes, to: *to },
                Held::Work(work) => *work,
            };
            // SAFETY: as it was when it was to be posted.
            let post = || unsafe { self.pair.post(&Request { id: *id, work, fence: *fence }) };
            if since.elapsed() < LATE || !post()? {
                break;
            }
            held.pop_front();
        }
        self.pair.poll(out)
    }

    fn break_off(&self) {
        self.pair.break_off();
    }
}

/// A pair that takes requests and never reports one.
#[derive(Debug)]
struct Mute(Box<dyn Pair>);

// SAFETY: what it wraps, later or not at all.
unsafe impl Pair for Mute {
    fn endpoint(&self) -> Vec<u8> {
        self.0.endpoint()
    }

    fn connect(&mut self, peer: &[u8]) -> Result<()> {
        self.0.connect(peer)
    }

    unsafe fn post(&self, _: &Request<'_>) -> Result<bool> {
        Ok(true)
    }

    unsafe fn post_receive(&self, id: u64, local: Local) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.0.post_receive(id, local) }
    }

    fn poll(&self, _: &mut Vec<Completion>) -> Result<()> {
        Ok(())
    }

    fn break_off(&self) {
        self.0.break_off();
    }
}

#[derive(Clone, Copy)]
enum Pairs {
    Usual,
    Late,
    Mute,
}

struct How {
    pairs: Pairs,
    deadline: Duration,
    commands: u32,
    /// Added to what rank 0 takes for rank 1's key.
    wrong_key: u32,
    /// Whether rank 0 has a running proxy.
    runs: bool,
}

const USUAL: How =
    How { pairs: Pairs::Usual, deadline: Duration::from_secs(10), commands: 16, wrong_key: 0, runs: true };

fn ranks(how: &How) -> [Rank; 2] {
    let layout =
        Options::per_peer(4096).channels(2).signals(4).heap(256 << 10).ll128_channels(0).layout(2).unwrap();
    let adapters = [0, 1].map(|rank| fabric().open(rank).unwrap());
    let mut made: Vec<(Arc<Memory>, Engine, Box<dyn Pair>)> = Vec::new();
    for (rank, adapter) in adapters.iter().enumerate() {
        let memory = Arc::new(Memory::new(&Machine::Host, layout, how.commands).unwrap());
        let bytes = Memory::region_bytes(&layout) as usize;
        // SAFETY: the engine holds the memory beside the registrations.
        let (region, local) = unsafe {
            (
                adapter.register(memory.region.host(), bytes, Access::ALL).unwrap(),
                adapter.register(memory.local.host(), memory.local.bytes(), Access::LOCAL).unwrap(),
            )
        };
        let engine = Engine::new(Arc::clone(&memory), region, local, rank, how.deadline);
        made.push((memory, engine, adapter.pair(&PairOptions::default()).unwrap()));
    }
    let endpoints = [made[0].2.endpoint(), made[1].2.endpoint()];
    let places = [made[0].1.region(), made[1].1.region()];
    std::thread::scope(|scope| {
        for (rank, (.., pair)) in made.iter_mut().enumerate() {
            let peer = &endpoints[1 - rank];
            scope.spawn(move || pair.connect(peer).unwrap());
        }
    });
    let mut rank = 0;
    let all = made.into_iter().map(|(memory, mut engine, pair)| {
        let theirs = places[1 - rank];
        let wrong = if rank == 0 { how.wrong_key } else { 0 };
        let region = Place { rkey: theirs.rkey.wrapping_add(wrong), ..theirs };
        let pair: Box<dyn Pair> = match how.pairs {
            Pairs::Usual => pair,
            Pairs::Late => Box::new(Late { pair, held: Mutex::default() }),
            Pairs::Mute => Box::new(Mute(pair)),
        };
        let mut peers = vec![None, None];
        peers[1 - rank] = Some(Peer { pair, region });
        engine.connect(peers);
        let ops = memory.ops(rank as u32, how.deadline.as_nanos() as u64);
        let proxy = (how.runs || rank == 1).then(|| Proxy::start(engine).unwrap());
        rank += 1;
        Rank { proxy, memory, ops }
    });
    all.collect::<Vec<_>>().try_into().unwrap_or_else(|_| unreachable!("two ranks"))
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::yield_now();
    }
}

impl Rank {
    fn line(&self, peer: u32, line: Line) -> u64 {
        let at = self.ops.line(peer, line) as u64 - self.ops.region;
        self.memory.region.word(at).load(Ordering::Acquire)
    }

    fn fault(&self) -> AbortRecord {
        until("a fault", || self.memory.filled_record().is_some());
        self.memory.filled_record().unwrap()
    }
}

/// Streams around the ring's end, each chunk followed by its signal, for more commands than the ring has.
#[test]
fn what_is_flushed_is_there_when_its_signal_is() {
    let [a, b] = ranks(&USUAL);
    let window = a.ops.window();
    let (out, input) = (a.ops.outgoing(1, 1), b.ops.incoming(0, 1));
    let (mut at, mut commands) = (0, 0);
    for turn in 0..200u64 {
        let (from, to) = (at, at + 128 * (1 + turn % 7));
        // One for each piece, and the signal.
        commands += if (from & (window - 1)) + (to - from) > window { 3 } else { 2 };
        for i in from..to {
            // SAFETY: within the ring; the peer has freed it, since it waits for each chunk below.
            unsafe { out.add((i & (window - 1)) as usize).write((i ^ turn) as u8) };
        }
        // SAFETY: as above.
        unsafe {
            a.ops.flush(&Thread, 1, 1, from, to);
            a.ops.signal(&Thread, 1, Line::Ready(1), to);
        }
        until("a signal", || b.line(0, Line::Ready(1)) == to);
        for i in from..to {
            // SAFETY: within the ring, and signalled.
            let seen = unsafe { input.add((i & (window - 1)) as usize).read_volatile() };
            assert_eq!(seen, (i ^ turn) as u8, "byte {i} of turn {turn}");
        }
        at = to;
    }
    until("room for as many as there were", || a.memory.retired().load(Ordering::Acquire) == commands);
    assert!(a.memory.filled_record().is_none() && b.memory.filled_record().is_none());
}

#[test]
fn puts_and_gets_of_all_sizes_and_places() {
    let [a, b] = ranks(&How { pairs: Pairs::Late, ..USUAL });
    let source: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let own = |ops: &HostIbOps, at: usize, bytes: usize| {
        // SAFETY: within the heap; only read when a signal or completion says that it is whole.
        unsafe { std::slice::from_raw_parts(ops.heap().add(at).cast_const(), bytes) }.to_vec()
    };
    for (turn, (at, bytes)) in
        [(0, 1), (3, 4095), (8, 4096), (1, 4097), (100, 200_000)].into_iter().enumerate()
    {
        let value = turn as u64 + 1;
        // SAFETY: in range; the peer reads after the signal.
        unsafe {
            // Through bounce memory, then from the own heap.
            a.ops.put(&Thread, 1, at as u64, source.as_ptr(), bytes as u64);
            a.ops.signal(&Thread, 1, Line::User(0), value);
        }
        until("a signal", || b.line(0, Line::User(0)) == value);
        assert_eq!(own(&b.ops, at, bytes), source[..bytes]);
        // SAFETY: as above.
        unsafe {
            a.ops.get(&Thread, 1, at as u64, a.ops.heap(), bytes as u64);
            assert_eq!(own(&a.ops, 0, bytes), source[..bytes]);
            a.ops.heap().write_bytes(turn as u8, bytes);
            a.ops.put(&Thread, 1, 0, a.ops.heap(), bytes as u64);
            a.ops.signal(&Thread, 1, Line::User(1), value);
        }
        until("a signal", || b.line(0, Line::User(1)) == value);
        assert_eq!(own(&b.ops, 0, bytes), vec![turn as u8; bytes]);
        // To itself, at once.
        // SAFETY: as above.
        unsafe { a.ops.put(&Thread, 0, 4096, source.as_ptr(), 100) };
        assert_eq!(own(&a.ops, 4096, 100), source[..100]);
    }
}

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
    assert_eq!((record.kind, record.operation, record.peer), (kind::RANGE, operation::GET, 1));
    until("word of it", || b.memory.words.abort().unwrap() == abort_code(0, kind::RANGE));
    // Told, and not the other's own.
    assert!(b.memory.filled_record().is_none());
    let told = Instant::now();
    a.proxy.as_ref().unwrap().engine().settle_faults(Duration::from_secs(5));
    assert!(told.elapsed() < Duration::from_secs(4));
}

/// Signals to itself go by its proxy as well.
#[test]
fn to_itself() {
    let [a, _b] = ranks(&USUAL);
    // SAFETY: the line only grows.
    unsafe { a.ops.signal(&Thread, 0, Line::User(2), 5) };
    until("a signal", || a.line(0, Line::User(2)) == 5);
}

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
        assert_eq!(settled.join().unwrap(), abort_code(0, kind::RANGE));
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
