//! The channel protocol under a model checker: every interleaving and every value that a weakly ordered load may see, within bounds.
//!
//! The sources are the crate's own, compiled here once more over an `arch` whose words belong to loom.

#![allow(dead_code, unused_imports)] // a part of each module is used

#[path = "model/arch.rs"]
mod arch;
#[path = "../src/atomic.rs"]
mod atomic;
#[path = "../src/protocol/simple/call.rs"]
mod call;
#[path = "../src/protocol/simple/channel.rs"]
mod channel;
#[path = "../src/group.rs"]
mod group;
#[path = "../src/mapped.rs"]
mod mapped;
#[path = "../src/ops.rs"]
mod ops;
mod protocol {
    /// Without channels of either: only the size is asked for.
    pub mod ll {
        pub const BUFFERS: u64 = 0;
    }
    pub mod ll128 {
        pub const BUFFERS: u64 = 0;
    }
    pub mod simple {
        pub(crate) use crate::channel;
    }
}
#[path = "../src/wait.rs"]
mod wait;

use arch::Removed;
use channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use group::Thread;
use mapped::{Layout, Mapped, MappedParts};
use ops::{Line, Ops};
use std::{panic, sync::Arc};
use wait::{AbortRecord, Control, Flow, Watch, abort_code, kind};

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Peers(Mapped);
mapped_ops!(Peers, "model");

/// A ring of two chunks, which one call fills: every later call waits for credit.
const LAYOUT: Layout = Layout {
    world: 2,
    channels: 1,
    signals: 0,
    ll128_channels: 0,
    ll_channels: 0,
    reserved: 0,
    window: 256,
    heap: 0,
};
const CHUNK: u64 = 128;

#[repr(C, align(4096))]
struct Region([u8; LAYOUT.total() as usize]);

/// Memory of two ranks. Words and payload are loom's; cursors are in the memory itself, each used by one thread.
struct World {
    regions: [Box<Region>; 2],
    records: [Box<AbortRecord>; 2],
    bases: [u64; 2],
}

impl World {
    fn new(start: u64) -> World {
        let regions = [(); 2].map(|()| Box::new(Region([0; LAYOUT.total() as usize])));
        let bases = [0, 1].map(|k| &raw const *regions[k] as u64);
        let world = World { regions, records: [(); 2].map(|()| Box::new(AbortRecord::EMPTY)), bases };
        for rank in 0..2u32 {
            let (ops, peer) = (world.ops(rank), 1 - rank);
            arch::prepare_word(world.bases[rank as usize] + LAYOUT.abort());
            for line in [Line::Ready(0), Line::Free(0)] {
                let at = ops.line(peer, line);
                arch::prepare_word(at as u64);
                // SAFETY: the model's word.
                unsafe { atomic::store::<atomic::System, atomic::Relaxed, u64>(at.cast_mut(), start) };
            }
            // SAFETY: in the region, before any thread runs.
            unsafe { ops.state(peer, 0).write(ops::ChannelState { sent: start, received: start }) };
            for offset in (0..LAYOUT.window).step_by(16) {
                // SAFETY: in the ring.
                arch::prepare_payload(unsafe { ops.incoming(peer, 0).add(offset as usize) });
            }
        }
        world
    }

    fn ops(&self, rank: u32) -> Peers {
        let own = self.bases[rank as usize];
        let parts =
            MappedParts { layout: LAYOUT, rank, processes: 0, own, bases: self.bases.as_ptr() as u64 };
        // SAFETY: regions that live as long as the model.
        Peers(unsafe { Mapped::new(parts) })
    }

    fn watch(&self, rank: u32) -> Flow<Watch> {
        let abort = self.bases[rank as usize] + LAYOUT.abort();
        let record = &raw const *self.records[rank as usize] as u64;
        let control = Control { abort, record, deadline_ns: 1 };
        // SAFETY: live words.
        let watch = unsafe { Watch::begin(&Thread, control, rank, 0) };
        watch.enter(&Thread)?;
        Ok(watch)
    }
}

/// One pack a call, with the call's number in it.
const CALL: Call = Call { kernel: 9, payload: 16, cut: 0 };

fn send(world: &World, calls: u32) -> Flow {
    let (ops, watch) = (world.ops(0), world.watch(0)?);
    for number in 0..calls {
        // SAFETY: one thread works this end, in order.
        let out = unsafe { Sending::begin(&ops, &watch, 1, 0, CALL) };
        for from in (0..stream_bytes(16)).step_by(CHUNK as usize) {
            let to = from + CHUNK;
            out.reserve(&Thread, from, to)?;
            if from == HEADER {
                // SAFETY: reserved.
                unsafe { arch::store_16(out.at(HEADER), [number + 1; 4]) };
            }
            out.publish(&Thread, from, to)?;
        }
        out.finish(&Thread);
    }
    Ok(())
}

fn receive(world: &World, calls: u32) -> Flow {
    let (ops, watch) = (world.ops(1), world.watch(1)?);
    for number in 0..calls {
        // SAFETY: one thread works this end, in order.
        let input = unsafe { Receiving::begin(&ops, &watch, 0, 0, CALL) };
        for from in (0..stream_bytes(16)).step_by(CHUNK as usize) {
            let to = from + CHUNK;
            input.await_bytes(&Thread, from, to)?;
            if from == HEADER {
                // SAFETY: arrived.
                assert_eq!(unsafe { arch::load_16(input.at(HEADER)) }, [number + 1; 4]);
            }
            input.free(&Thread, to)?;
        }
        input.finish(&Thread);
    }
    Ok(())
}

fn check(removed: Removed, preemptions: usize, start: u64, calls: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        arch::reset(removed);
        let world = Arc::new(World::new(start));
        let receiver = {
            let world = world.clone();
            loom::thread::spawn(move || receive(&world, calls))
        };
        assert_eq!(send(&world, calls), Ok(()));
        assert_eq!(receiver.join().unwrap(), Ok(()));
        arch::reset(Removed::Nothing);
    });
}

#[test]
fn three_calls_through_a_ring_of_two_chunks() {
    check(Removed::Nothing, 0, 0, 3);
}

#[test]
fn positions_pass_two_to_the_sixty_four() {
    check(Removed::Nothing, 2, 0u64.wrapping_sub(384), 2);
}

/// The checker is worth something: without the order of the flag it finds the race.
#[test]
fn a_removed_order_is_found() {
    for removed in [Removed::Release, Removed::Acquire] {
        let found = panic::catch_unwind(|| check(removed, 2, 0, 2));
        arch::reset(Removed::Nothing);
        let why = found.expect_err("no race was found");
        let why = why.downcast_ref::<String>().expect("a message");
        assert!(why.contains("Causality violation"), "{why}");
    }
}

/// Two threads of a rank find different faults: one record, and the peer hears of the same one.
#[test]
fn the_first_fault_wins() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        arch::reset(Removed::Nothing);
        let world = Arc::new(World::new(0));
        let fault = |world: &World, kind: u32| {
            let Ok(watch) = world.watch(0) else { return };
            watch.give_up(&world.ops(0), kind, wait::About { peer: 1, channel: 0, operation: kind }, 0, 0, 0);
        };
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || fault(&world, kind::RANGE))
        };
        fault(&world, kind::MISMATCH);
        other.join().unwrap();
        let word = |rank: usize| {
            let at = (world.bases[rank] + LAYOUT.abort()) as *const u64;
            // SAFETY: the model's word.
            unsafe { atomic::load::<atomic::System, atomic::Relaxed, u64>(at) }
        };
        let record = &raw const *world.records[0];
        // SAFETY: all threads are joined.
        let (kind, operation) = unsafe { ((*record).kind, (*record).operation) };
        assert_eq!(kind, operation, "fields of one fault");
        assert_eq!([word(0), word(1)], [abort_code(0, kind); 2]);
        arch::reset(Removed::Nothing);
    });
}
