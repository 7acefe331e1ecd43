//! Device half and proxy of two ranks in one process, without kernels: this thread does what a block would.
//!
//! Over the emulation, and in the VM over real verbs (`FUSEWIRE_TEST_VERBS=1`).

mod faults;

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
    let layout = Options::per_peer(4096)
        .channels(2)
        .signals(4)
        .heap(256 << 10)
        .ll128_channels(0)
        .ll_channels(0)
        .layout(2)
        .unwrap();
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
fn to_itself() {
    let [a, _b] = ranks(&USUAL);
    // SAFETY: the line only grows.
    unsafe { a.ops.signal(&Thread, 0, Line::User(2), 5) };
    until("a signal", || a.line(0, Line::User(2)) == 5);
}
