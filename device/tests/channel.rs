//! Channels between two threads, against a plain queue; deadlines, aborts and mismatches.

#[path = "common/world.rs"]
mod world;

use fusewire_device::{
    group::Thread,
    ops::{Line, Ops},
    protocol::simple::channel::{CUT, Call, HEADER, Receiving, Sending, stream_bytes},
    wait::{self, Control, FILLED, Flow, Stopped, Watch, abort_code, kind, operation},
};
use proptest::prelude::*;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use world::{Noise, Peers, World};

const KERNEL: u64 = 0x0123_4567_89ab_cdef;

fn begin(control: Control, rank: u32) -> Flow<Watch> {
    // SAFETY: the world's words outlive the watch.
    let watch = unsafe { Watch::begin(&Thread, control, rank, 7) };
    watch.enter(&Thread).map(|()| watch)
}

/// Sends `bytes` in chunks of `chunk`.
fn send(ops: &Peers, watch: &Watch, peer: u32, chunk: u64, bytes: &[u8], pause: impl Fn()) -> Flow {
    // SAFETY: one thread works this end, in order.
    let out = unsafe {
        Sending::begin(ops, watch, peer, 0, Call { kernel: KERNEL, payload: bytes.len() as u64, cut: 0 })
    };
    let total = stream_bytes(bytes.len() as u64);
    let mut from = 0;
    while from < total {
        let to = total.min(from + chunk);
        pause();
        out.reserve(&Thread, from, to)?;
        for offset in from.max(HEADER)..to.min(HEADER + bytes.len() as u64) {
            // SAFETY: reserved above.
            unsafe { out.at(offset).write(bytes[(offset - HEADER) as usize]) };
        }
        out.publish(&Thread, from, to)?;
        from = to;
    }
    out.finish(&Thread);
    Ok(())
}

/// Receives `len` bytes in chunks of `chunk`.
fn receive(ops: &Peers, watch: &Watch, peer: u32, chunk: u64, len: usize, pause: impl Fn()) -> Flow<Vec<u8>> {
    let call = Call { kernel: KERNEL, payload: len as u64, cut: 0 };
    // SAFETY: one thread works this end, in order.
    let input = unsafe { Receiving::begin(ops, watch, peer, 0, call) };
    let (total, mut got, mut from) = (stream_bytes(len as u64), Vec::new(), 0);
    while from < total {
        let to = total.min(from + chunk);
        input.await_bytes(&Thread, from, to)?;
        pause();
        for offset in from.max(HEADER)..to.min(HEADER + len as u64) {
            // SAFETY: arrived, and not freed yet.
            got.push(unsafe { input.at(offset).read() });
        }
        input.free(&Thread, to)?;
        from = to;
    }
    input.finish(&Thread);
    Ok(got)
}

#[derive(Clone, Debug)]
struct Case {
    window: u64,
    chunks: [u64; 2],
    start: u64,
    /// Bytes of each call.
    calls: Vec<usize>,
    /// Microseconds that each end pauses before a chunk.
    pause: [u64; 2],
}

fn cases() -> impl Strategy<Value = Case> {
    let start = prop_oneof![Just(0u64), (0u64..64).prop_map(|lines| 0u64.wrapping_sub(128 * lines))];
    let pause = prop_oneof![6 => Just([0, 0]), 1 => Just([60, 0]), 1 => Just([0, 60])];
    let sizes = proptest::collection::vec(prop_oneof![0usize..300, 0usize..9000], 1..24);
    (0u32..5, start, sizes, pause).prop_flat_map(|(scale, start, calls, pause)| {
        let window = 1024 << scale;
        let chunk = (1u64..=window / 256).prop_map(|lines| 128 * lines);
        (chunk.clone(), chunk).prop_map(move |(a, b)| Case {
            window,
            chunks: [a, b],
            start,
            calls: calls.clone(),
            pause,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Both directions at once, many calls after each other: what comes out is what went in.
    #[test]
    fn a_channel_is_a_queue(case in cases(), seed in any::<u64>()) {
        let world = World::new(2, 1, case.window);
        world.start_at(case.start);
        let mut noise = Noise(seed);
        let sent: [Vec<Vec<u8>>; 2] = [(); 2].map(|()| {
            case.calls.iter().map(|&len| (0..len).map(|_| noise.next() as u8).collect()).collect()
        });
        let pause = |us: u64| move || if us > 0 { std::thread::sleep(Duration::from_micros(us)) };
        let received: Vec<Flow<Vec<Vec<u8>>>> = std::thread::scope(|threads| {
            let mut receivers = Vec::new();
            for rank in 0..2u32 {
                let (world, case, sent) = (&world, &case, &sent);
                threads.spawn(move || -> Flow {
                    let watch = begin(world.control(rank, 20_000), rank)?;
                    for bytes in &sent[rank as usize] {
                        send(&world.ops(rank), &watch, 1 - rank, case.chunks[0], bytes, pause(case.pause[0]))?;
                    }
                    Ok(())
                });
                receivers.push(threads.spawn(move || {
                    let watch = begin(world.control(rank, 20_000), rank)?;
                    case.calls.iter()
                        .map(|&len| receive(&world.ops(rank), &watch, 1 - rank, case.chunks[1], len, pause(case.pause[1])))
                        .collect()
                }));
            }
            receivers.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        prop_assert_eq!(received[0].as_ref(), Ok(&sent[1]));
        prop_assert_eq!(received[1].as_ref(), Ok(&sent[0]));
        // The cursors tell how much passed, modulo 2^64.
        let total: u64 = case.calls.iter().map(|&len| stream_bytes(len as u64)).sum();
        for rank in 0..2u32 {
            // SAFETY: live state, nobody runs.
            let state = unsafe { world.ops(rank).state(1 - rank, 0).read() };
            let end = case.start.wrapping_add(total);
            prop_assert_eq!((state.sent, state.received), (end, end));
        }
    }
}

#[test]
fn a_receiver_gives_up_at_its_deadline() {
    let world = World::new(3, 1, 1024);
    let watch = begin(world.control(1, 30), 1).unwrap();
    let started = Instant::now();
    assert_eq!(receive(&world.ops(1), &watch, 2, 512, 64, || ()), Err(Stopped));
    assert!(started.elapsed() >= Duration::from_millis(30) && started.elapsed() < Duration::from_secs(10));
    let record = world.record(1);
    assert_eq!((record.state, record.kind, record.rank, record.peer), (FILLED, kind::EXPIRED, 1, 2));
    assert_eq!((record.block, record.channel, record.operation), (7, 0, operation::RECEIVE));
    assert_eq!((record.expected, record.seen), (HEADER, 0));
    assert!(record.age_ns >= 30_000_000, "{}", record.age_ns);
    // Itself and both peers, but nobody's record.
    assert_eq!([0, 1, 2].map(|rank| world.abort_word(rank)), [abort_code(1, kind::EXPIRED); 3]);
    assert_eq!([0, 2].map(|rank| world.record(rank).state), [0, 0]);
    assert_eq!(wait::read_abort_code(world.abort_word(0)), Some((1, kind::EXPIRED)));

    // A second fault overwrites nothing, here or at the peers.
    watch.give_up(
        &world.ops(1),
        kind::RANGE,
        wait::About { peer: 0, channel: 5, operation: operation::PUT },
        1,
        2,
        3,
    );
    assert_eq!((world.record(1).kind, world.record(1).channel), (kind::EXPIRED, 0));
    assert_eq!(world.abort_word(0), abort_code(1, kind::EXPIRED));

    // Whoever starts now leaves at once, and whoever waits leaves soon, without a record of its own.
    assert!(begin(world.control(1, 60_000), 1).is_err());
    assert!(begin(world.control(0, 60_000), 0).is_err());
}

#[test]
fn a_sender_without_credit_gives_up() {
    let world = World::new(2, 1, 1024);
    let watch = begin(world.control(0, 20), 0).unwrap();
    // Two calls fill the ring; nobody receives.
    assert_eq!(send(&world.ops(0), &watch, 1, 512, &[1; 800], || ()), Ok(()));
    assert_eq!(send(&world.ops(0), &watch, 1, 512, &[2; 800], || ()), Err(Stopped));
    let record = world.record(0);
    assert_eq!((record.kind, record.peer, record.operation), (kind::EXPIRED, 1, operation::SEND));
    let first = stream_bytes(800);
    assert_eq!((record.expected, record.seen), (first + 512 - 1024, 0));
    // A loop that gave up signals nothing: the peer's line stands where the first call left it.
    // SAFETY: a live line, nobody runs.
    assert_eq!(unsafe { world.ops(1).line(0, Line::Ready(0)).read() }, first);
}

/// What a waiting rank does when its abort word is raised by `raise`: stops within the look interval, files nothing.
fn stops_when(raise: impl FnOnce(&World) + Send) -> World {
    let world = World::new(2, 1, 1024);
    let begun = Barrier::new(2);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| {
            let watch = begin(world.control(1, 10_000), 1).unwrap();
            begun.wait();
            receive(&world.ops(1), &watch, 0, 512, 64, || ())
        });
        // Not before: a block that begins later does not wait at all.
        begun.wait();
        std::thread::sleep(Duration::from_millis(5));
        raise(&world);
        let raised = Instant::now();
        assert_eq!(waiting.join().unwrap(), Err(Stopped));
        assert!(raised.elapsed() < Duration::from_secs(5), "it waited on");
    });
    world
}

#[test]
fn a_raised_abort_word_stops_a_wait() {
    let world = stops_when(|world| world.ops(0).raise_abort(1, abort_code(0, kind::LOST)));
    assert_eq!((world.record(1).state, world.abort_word(0)), (0, 0));
    // The first reason stays.
    world.ops(0).raise_abort(1, abort_code(0, kind::RANGE));
    assert_eq!(world.abort_word(1), abort_code(0, kind::LOST));
}

#[test]
fn a_panic_reaches_the_peers_through_those_who_wait() {
    let world = stops_when(|world| {
        // SAFETY: the world's words.
        unsafe { wait::record_panic(&world.control(1, 0), 1, 3, "a/long/path/hooks.rs", 12, 5, b"no", &[]) };
    });
    let record = world.record(1);
    assert_eq!(
        (record.state, record.kind, record.block, record.line, record.column),
        (FILLED, kind::PANIC, 3, 12, 5)
    );
    assert_eq!(&record.file[..record.file_len as usize], b"a/long/path/hooks.rs\0no");
    assert_eq!(world.abort_word(0), abort_code(1, kind::PANIC));
}

#[test]
fn a_long_file_name_keeps_its_end_and_leaves_room_for_a_message() {
    let name = format!("{}/src/hooks.rs", "x".repeat(300));
    let record = |message: &str| {
        let world = World::new(1, 1, 1024);
        // SAFETY: the world's words.
        unsafe { wait::record_panic(&world.control(0, 0), 0, 0, &name, 1, 1, message.as_bytes(), &[]) };
        world.record(0)
    };
    assert_eq!(record("").file_len, 248);
    assert!(record("").file.ends_with(b"x/src/hooks.rs"));
    // Most is the message's, of which the beginning stays.
    for (message, said) in [("short", "short"), (&"ab".repeat(100), &"ab".repeat(100)[..151])] {
        let record = record(message);
        let text = std::str::from_utf8(&record.file[..record.file_len as usize]).unwrap();
        assert!(text.ends_with(&format!("x/src/hooks.rs\0{said}")), "{text}");
        assert_eq!(text.find('\0'), Some(96));
    }
}

/// A sender with its call against a receiver with its own.
fn mismatch(sent: Call, expected: Call) -> (u32, u64, u64, u32) {
    let world = World::new(2, 1, 4096);
    let sender = world.ops(0);
    let watch = begin(world.control(0, 1000), 0).unwrap();
    // SAFETY: one thread works this end, in order.
    let out = unsafe { Sending::begin(&sender, &watch, 1, 0, sent) };
    let ops = world.ops(1);
    out.reserve(&Thread, 0, stream_bytes(sent.payload)).unwrap();
    out.publish(&Thread, 0, stream_bytes(sent.payload)).unwrap();
    let watch = begin(world.control(1, 1000), 1).unwrap();
    // SAFETY: one thread works this end, in order.
    let input = unsafe { Receiving::begin(&ops, &watch, 0, 0, expected) };
    assert_eq!(input.await_bytes(&Thread, 0, stream_bytes(expected.payload)), Err(Stopped));
    let record = world.record(1);
    assert_eq!((record.state, record.rank, record.peer, record.age_ns), (FILLED, 1, 0, 0));
    assert_eq!([0, 1].map(|rank| world.abort_word(rank)), [abort_code(1, kind::MISMATCH); 2]);
    (record.kind, record.expected, record.seen, record.operation)
}

#[test]
fn both_sides_of_a_mismatch_are_told() {
    let call = |kernel, payload| Call { kernel, payload, cut: 0 };
    let found = mismatch(Call { cut: 3 * CUT, ..call(5, 64) }, Call { cut: CUT, ..call(5, 64) });
    assert_eq!(found, (kind::MISMATCH, CUT + 64, 3 * CUT + 64, operation::HEADER));
    // The receiver would wait for ever for the longer call's bytes.
    let found = mismatch(call(5, 64), call(5, 2048));
    assert_eq!(found, (kind::MISMATCH, 2048, 64, operation::HEADER));
    let found = mismatch(call(u64::MAX - 1, 64), call(1 << 40, 64));
    assert_eq!(found, (kind::MISMATCH, 1 << 40, u64::MAX - 1, operation::RECEIVE));
}

/// A ring may still hold, at the same place, the header of a call that had this one's name and size.
#[test]
fn a_stale_header_is_not_taken_for_this_calls() {
    let world = World::new(2, 1, 1024);
    let watch = begin(world.control(0, 1000), 0).unwrap();
    assert_eq!(send(&world.ops(0), &watch, 1, 512, &[1; 64], || ()), Ok(()));
    // The same place, once round the ring, and a line that says that all of it has arrived.
    world.start_at(1024);
    world.ops(0).0.signal(&Thread, 1, Line::Ready(0), 1024 + stream_bytes(64));
    let watch = begin(world.control(1, 1000), 1).unwrap();
    assert_eq!(receive(&world.ops(1), &watch, 0, 512, 64, || ()), Err(Stopped));
    assert_eq!(world.record(1).kind, kind::MISMATCH);
}

/// The header may be there alone: what is behind it is waited for as well.
#[test]
fn the_first_chunk_is_more_than_its_header() {
    let world = World::new(2, 1, 1024);
    let ops = world.ops(0);
    let watch = begin(world.control(0, 10_000), 0).unwrap();
    let call = Call { kernel: KERNEL, payload: 128, cut: 0 };
    // SAFETY: one thread works this end, in order.
    let out = unsafe { Sending::begin(&ops, &watch, 1, 0, call) };
    out.reserve(&Thread, 0, 256).unwrap();
    out.publish(&Thread, 0, HEADER).unwrap();
    let later = Instant::now();
    std::thread::scope(|threads| {
        let receiver = threads.spawn(|| {
            let (ops, watch) = (world.ops(1), begin(world.control(1, 10_000), 1).unwrap());
            // SAFETY: one thread works this end, in order.
            let input = unsafe { Receiving::begin(&ops, &watch, 0, 0, call) };
            input.await_bytes(&Thread, 0, 256).map(|()| later.elapsed())
        });
        std::thread::sleep(Duration::from_millis(50));
        out.publish(&Thread, HEADER, 256).unwrap();
        let arrived = receiver.join().unwrap().unwrap();
        assert!(arrived >= Duration::from_millis(50), "{arrived:?}");
    });
}

/// A kernel on a poisoned transport leaves at its first wait, even for what is there.
#[test]
fn a_poisoned_kernel_takes_nothing() {
    let world = World::new(2, 1, 1024);
    let watch = begin(world.control(0, 1000), 0).unwrap();
    assert_eq!(send(&world.ops(0), &watch, 1, 512, &[1; 64], || ()), Ok(()));
    world.ops(0).raise_abort(1, abort_code(0, kind::LOST));
    // SAFETY: the world's words outlive the watch.
    let watch = unsafe { Watch::begin(&Thread, world.control(1, 1000), 1, 7) };
    assert!(watch.poisoned());
    assert_eq!(receive(&world.ops(1), &watch, 0, 512, 64, || ()), Err(Stopped));
}
