//! Over a transport that carries data as late as it may: what is flushed is there only after the flush, and a peer's memory is read slowly.

#[path = "common/world.rs"]
mod world;

use fusewire_device::args::{Lent, Out, RawSlice};
use fusewire_device::ctx::{Consume, Produce};
use fusewire_device::group::{Group, Thread};
use fusewire_device::hooks::Hooks;
use fusewire_device::launch::{Params, Shape, Unpack, share_packs};
use fusewire_device::ops::{ChannelState, Line, Ops, SignalState};
use fusewire_device::pack::Pack;
use fusewire_device::protocol::simple::channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use fusewire_device::protocol::{Host, exchange};
use fusewire_device::schedule::AllToAll;
use fusewire_device::wait::Watch;
use std::sync::Mutex;
use std::time::Duration;
use world::{Peers, World};

/// Moves what is in an outgoing ring when it is flushed, if there is such a ring; takes a while to read a peer's memory.
#[derive(Clone, Copy)]
struct Late {
    peers: Peers,
    ring: u64,
}

// SAFETY: as for the world's own operations; the ring outlives the test's threads.
unsafe impl Ops for Late {
    const NAME: &'static str = "late";
    fn rank(&self) -> u32 {
        self.peers.rank()
    }
    fn world(&self) -> u32 {
        self.peers.world()
    }
    fn channels(&self) -> u32 {
        self.peers.channels()
    }
    fn signals(&self) -> u32 {
        self.peers.signals()
    }
    fn window(&self) -> u64 {
        self.peers.window()
    }
    fn heap_bytes(&self) -> u64 {
        self.peers.heap_bytes()
    }
    fn heap(&self) -> *mut u8 {
        self.peers.heap()
    }
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        if self.ring == 0 { self.peers.outgoing(peer, channel) } else { self.ring as *mut u8 }
    }
    fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        self.peers.incoming(peer, channel)
    }
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        self.peers.line(peer, line)
    }
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        self.peers.state(peer, channel)
    }
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        self.peers.signal_state(peer, id)
    }
    unsafe fn flush<G: Group>(&self, group: &G, peer: u32, channel: u32, from: u64, to: u64) {
        if self.ring == 0 || !group.leads() {
            return;
        }
        let (out, mask) = (self.peers.outgoing(peer, channel), self.window() - 1);
        for at in from..to {
            let place = (at & mask) as usize;
            // SAFETY: the same place of two rings; the peer has freed it.
            unsafe { out.add(place).write((self.ring as *const u8).add(place).read()) };
        }
    }
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        // SAFETY: the caller's contract.
        unsafe { self.peers.signal(group, peer, line, value) };
        if self.ring != 0 {
            // Whoever sees the flag gets a chance to look.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    fn raise_abort(&self, peer: u32, code: u64) {
        self.peers.raise_abort(peer, code);
    }
    fn reads_processes(&self) -> bool {
        self.peers.reads_processes()
    }
    unsafe fn read_process(&self, peer: u32, from: u64, to: *mut u8, bytes: usize) -> bool {
        if self.rank() == 1 {
            std::thread::sleep(Duration::from_millis(50));
        }
        // SAFETY: the caller's contract.
        unsafe { self.peers.read_process(peer, from, to, bytes) }
    }
}

#[test]
fn what_is_flushed_is_there_when_it_is_signalled() {
    let world = World::new(2, 1, 1024);
    let ring = vec![0u128; 64];
    let (calls, payload) = (20u8, 320u64);
    let begin = |rank| {
        // SAFETY: the world's words outlive the watch.
        unsafe { Watch::begin(&Thread, world.control(rank, 10_000), rank, 0) }
    };
    let call = Call { kernel: 3, payload, cut: 0 };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let ops = Late { peers: world.ops(0), ring: ring.as_ptr() as u64 };
            let watch = begin(0);
            for number in 1..=calls {
                // SAFETY: one thread works this end, in order.
                let out = unsafe { Sending::begin(&ops, &watch, 1, 0, call) };
                for from in (0..stream_bytes(payload)).step_by(256) {
                    let to = stream_bytes(payload).min(from + 256);
                    out.reserve(&Thread, from, to).unwrap();
                    // SAFETY: reserved.
                    (from.max(HEADER)..to).for_each(|at| unsafe { out.at(at).write(number) });
                    out.publish(&Thread, from, to).unwrap();
                }
                out.finish(&Thread);
            }
        });
        let (ops, watch) = (Late { peers: world.ops(1), ring: 0 }, begin(1));
        for number in 1..=calls {
            // SAFETY: one thread works this end, in order.
            let input = unsafe { Receiving::begin(&ops, &watch, 0, 0, call) };
            for from in (0..stream_bytes(payload)).step_by(256) {
                let to = stream_bytes(payload).min(from + 256);
                input.await_bytes(&Thread, from, to).unwrap();
                for at in from.max(HEADER)..to {
                    // SAFETY: arrived.
                    assert_eq!(unsafe { input.at(at).read() }, number, "byte {at}");
                }
                input.free(&Thread, to).unwrap();
            }
            input.finish(&Thread);
        }
    });
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Raw {
    input: RawSlice<u32>,
    output: RawSlice<u32>,
}

/// A plain copy.
struct Copied;

impl Hooks for Copied {
    type Args<'a> = (&'a [u32], Out<'a, u32>);
    type Wire = u32;
    type Folded = u32;
    const UNROLL: usize = 4;
    fn produce(_: &Produce, _: &Self::Args<'_>) -> Pack<u32> {
        Pack::ZERO
    }
    fn consume(_: &Consume, _: &Self::Args<'_>, _: Pack<u32>) {}
    fn sends_as_is<'a>(args: &Self::Args<'a>) -> Option<&'a [u32]> {
        Some(args.0)
    }
    fn keeps_as_is<'a>(args: &Self::Args<'a>) -> Option<Out<'a, u32>> {
        Some(args.1)
    }
}

// SAFETY: the test makes `Raw` from vectors that outlive the launch and are lent to it alone.
unsafe impl Unpack for Copied {
    type Raw = Raw;
    unsafe fn unpack<'a>(raw: &Raw) -> Self::Args<'a> {
        // SAFETY: as above.
        unsafe { (raw.input.slice(Lent::<'a>::named()), Out::from_raw(raw.output, Lent::<'a>::named())) }
    }
}

/// A rank that is read slowly writes its input as soon as its own kernel has ended.
#[test]
fn input_is_the_callers_when_the_kernel_has_ended() {
    let (ranks, n) = (2u32, 8192usize);
    let world = World::new(ranks, 1, 2048).of_processes(std::process::id());
    let vectors =
        |first: u32| (0..ranks).map(|rank| Mutex::new(vec![first + rank; ranks as usize * n])).collect();
    let [inputs, outputs]: [Vec<Mutex<Vec<u32>>>; 2] = [10, 0].map(vectors);
    let flows = world.run(1, |rank, grid| {
        let mut input = inputs[rank as usize].lock().unwrap();
        let mut output = outputs[rank as usize].lock().unwrap();
        let raw = |v: &mut Vec<u32>| RawSlice::new(v.as_mut_ptr() as u64, v.len());
        let shape = Shape {
            elements: n as u64,
            rows: 1,
            cols: n as u64,
            chunk: 512,
            kernel: 7,
            share: share_packs(n as u64 / 4, 1),
            channels: 1,
            ..bytemuck::Zeroable::zeroed()
        };
        let raw = Raw { input: raw(&mut input), output: raw(&mut output) };
        let ops = Late { peers: world.ops(rank), ring: 0 };
        let params = Params { ops, control: world.control(rank, 10_000), shape, raw, schedule: AllToAll };
        // SAFETY: the one block of the grid runs it, with slices that hold what the shape says.
        let flow = unsafe { exchange::<_, Host, _, Copied>(grid, &params) };
        input.fill(99);
        flow
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?}");
    for (rank, output) in outputs.iter().enumerate() {
        let output = output.lock().unwrap();
        for from in 0..ranks as usize {
            let wrong = output[from * n..][..n].iter().find(|v| **v != 10 + from as u32);
            assert_eq!(wrong, None, "from {from} at {rank}");
        }
    }
}
