//! Ranks that are ahead of others: how far they may go, and what they must not touch.

#[path = "common/world.rs"]
mod world;

use fusewire_device::args::{Lent, Out, Packs, RawSlice};
use fusewire_device::ctx::{Consume, Produce};
use fusewire_device::hooks::Hooks;
use fusewire_device::launch::{Grid, Params, Shape, Unpack, share_packs};
use fusewire_device::ops::{Direct, Line, Ops};
use fusewire_device::pack::Pack;
use fusewire_device::protocol::ll::{BUFFERS, PACKS, REFRESH};
use fusewire_device::protocol::simple::channel::CUT;
use fusewire_device::protocol::{Bulk, Ll, Ll128, Protocol, Simple, Store, exchange};
use fusewire_device::schedule::{AllToAll, Broadcast, NOBODY, Schedule, SendRecv};
use fusewire_device::wait::{Flow, kind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::{Peers, World};

#[derive(Clone, Copy)]
#[repr(C)]
struct Raw {
    input: RawSlice<u32>,
    output: RawSlice<u32>,
    /// Milliseconds that hooks take for a chunk: one that produces at the beginning, one that consumes half-way.
    produce_ms: u64,
    consume_ms: u64,
}

struct Args<'a> {
    input: &'a [u32],
    output: Out<'a, u32>,
    produce_ms: u64,
    consume_ms: u64,
}

/// A copy that takes its time.
struct Slow;

impl Hooks for Slow {
    type Args<'a> = Args<'a>;
    type Wire = u32;
    type Folded = u32;
    const UNROLL: usize = 4;
    fn produce(ctx: &Produce, args: &Args<'_>) -> Pack<u32> {
        if ctx.pos == 0 {
            std::thread::sleep(Duration::from_millis(args.produce_ms));
        }
        args.input.pack(ctx)
    }
    fn consume(ctx: &Consume, args: &Args<'_>, value: Pack<u32>) {
        // Within a staged chunk, of which more is taken afterwards.
        if ctx.pos == N / 2 - 80 {
            std::thread::sleep(Duration::from_millis(args.consume_ms));
        }
        args.output.at(ctx).set_pack(value);
    }
}

// SAFETY: the tests make `Raw` from vectors that outlive the launch and are lent to it alone.
unsafe impl Unpack for Slow {
    type Raw = Raw;
    unsafe fn unpack<'a>(raw: &Raw) -> Args<'a> {
        let Raw { produce_ms, consume_ms, .. } = *raw;
        // SAFETY: as above.
        unsafe {
            let lent = Lent::<'a>::named();
            Args {
                input: raw.input.slice(lent),
                output: Out::from_raw(raw.output, lent),
                produce_ms,
                consume_ms,
            }
        }
    }
}

/// Elements of a chunk: more than a warp takes at once.
const N: usize = 4000;
const CALLS: u32 = 12;

/// What a rank has in memory.
struct Rank {
    input: Vec<u128>,
    output: Vec<u128>,
}

impl Rank {
    fn new(ranks: u32, value: u32) -> Rank {
        let words = ranks as usize * N / 4;
        Rank { input: (0..words).map(|k| at(value, k % (N / 4))).collect(), output: vec![0; words] }
    }
    fn raw(&mut self, produce_ms: u64, consume_ms: u64) -> Raw {
        let raw = |v: &mut Vec<u128>| RawSlice::new(v.as_mut_ptr() as u64, 4 * v.len());
        Raw { input: raw(&mut self.input), output: raw(&mut self.output), produce_ms, consume_ms }
    }
    fn chunk(&self, from: usize) -> &[u128] {
        &self.output[from * N / 4..][..N / 4]
    }
}

/// Pack `k` of a chunk of `value`.
fn at(value: u32, k: usize) -> u128 {
    u128::from(value) * 0x1_0000_0001_0000_0001_0000_0001 + k as u128
}

/// Whether packs are those a chunk of `value` begins with.
fn are(packs: &[u128], value: u32) -> bool {
    packs.iter().enumerate().all(|(k, pack)| *pack == at(value, k))
}

fn shape() -> Shape {
    Shape {
        elements: N as u64,
        rows: 1,
        cols: N as u64,
        chunk: 512,
        kernel: 7,
        share: share_packs(N as u64 / 4, 1),
        own_share: share_packs(N as u64 / 4, 1),
        channels: 1,
        self_copy: 1,
        ..bytemuck::Zeroable::zeroed()
    }
}

/// Block 0 of a launch by protocol `P`.
fn launch<P: Protocol<Peers>, S: Schedule>(
    world: &World,
    schedule: S,
    rank: u32,
    shape: Shape,
    raw: Raw,
    blocks: u32,
) -> Flow {
    let params = Params { ops: world.ops(rank), control: world.control(rank, 5_000), shape, raw, schedule };
    // SAFETY: the block whose channel is checked runs it, with slices that hold what the shape says.
    unsafe { exchange::<S, P, _, Slow>(Grid { block: 0, blocks }, &params) }
}

/// Rank 0 goes ahead as far as it is let, while rank 1 takes long over what arrives. Every call's bytes must be that call's.
fn a_slow_receiver<P: Protocol<Peers>, S: Schedule>(schedule_of: impl Fn(u32) -> S + Sync, both: bool) {
    let world = World::new(2, 1, 2048);
    let flows = world.run(1, |rank, _| {
        for call in 1..=CALLS {
            let mut own = Rank::new(2, 100 * call + rank);
            let raw = own.raw(0, if rank == 1 { 4 } else { 0 });
            launch::<P, S>(&world, schedule_of(rank), rank, shape(), raw, 1)?;
            let from = if both || rank == 1 { 1 - rank as usize } else { continue };
            // What `sendrecv` brings stands at the front.
            let place = if both { from } else { 0 };
            assert!(are(own.chunk(place), 100 * call + from as u32), "call {call} at rank {rank}");
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?} {:?}", world.record(1));
    // All room is given back.
    // SAFETY: a live line and state, nobody runs.
    let (free, sent) =
        unsafe { (world.ops(0).line(1, Line::Free(0)).read(), (*world.ops(0).state(1, 0)).sent) };
    assert_eq!(free, sent);
}

#[test]
fn lines_of_a_call_stay_until_they_are_read() {
    a_slow_receiver::<Ll128, _>(|_| AllToAll, true);
    a_slow_receiver::<Ll, _>(|_| AllToAll, true);
}

fn one_way(rank: u32) -> SendRecv {
    match rank {
        0 => SendRecv { to: 1, from: NOBODY },
        _ => SendRecv { to: NOBODY, from: 0 },
    }
}

/// Small chunks, one after the other, to a rank that looks all the time.
#[test]
fn lines_are_whole_when_their_flags_are_there() {
    in_a_row::<Ll128>();
    in_a_row::<Ll>();
}

fn in_a_row<P: Protocol<Peers>>() {
    let (world, calls, elements) = (World::new(2, 1, 2048), 4000u32, 480u64);
    let flows = world.run(1, |rank, _| {
        for call in 1..=calls {
            let mut own = Rank::new(1, 10 * call + rank);
            let shape = Shape { elements, cols: elements, share: elements / 4, ..shape() };
            launch::<P, _>(&world, one_way(rank), rank, shape, own.raw(0, 0), 1)?;
            let got = &own.output[..if rank == 1 { elements as usize / 4 } else { 0 }];
            assert!(are(got, 10 * call), "call {call}");
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?} {:?}", world.record(1));
}

#[test]
fn lines_sent_one_way_wait_for_credit() {
    a_slow_receiver::<Ll128, _>(one_way, false);
    a_slow_receiver::<Ll, _>(one_way, false);
}

#[test]
fn staging_sent_one_way_waits_for_credit() {
    a_slow_receiver::<Simple, _>(one_way, false);
}

/// The root produces once for all, and for each peer's room or credit it waits.
#[test]
fn what_is_produced_once_waits_for_credit() {
    a_slow_receiver::<Simple, _>(|_| Broadcast { root: 0 }, false);
    a_slow_receiver::<Ll128, _>(|_| Broadcast { root: 0 }, false);
    a_slow_receiver::<Ll, _>(|_| Broadcast { root: 0 }, false);
}

/// Rank 1 alone: of what nobody has sent it takes nothing.
#[test]
fn nothing_is_taken_before_it_is_sent() {
    is_not_taken::<Simple>();
    is_not_taken::<Ll>();
    is_not_taken::<Ll128>();
}

fn is_not_taken<P: Protocol<Peers>>() {
    let world = World::new(2, 1, 2048);
    let mut own = Rank::new(1, 1);
    own.output.fill(u128::MAX);
    let raw = own.raw(0, 0);
    let control = world.control(1, 50);
    let params = Params { ops: world.ops(1), control, shape: shape(), raw, schedule: one_way(1) };
    // SAFETY: the one receiver, with slices that hold what the shape says.
    let flow = unsafe { exchange::<_, P, _, Slow>(Grid { block: 0, blocks: 1 }, &params) };
    assert!(flow.is_err() && world.record(1).kind == kind::EXPIRED, "{:?}", world.record(1));
    assert!(own.output.iter().all(|pack| *pack == u128::MAX), "bytes were taken that had not arrived");
}

/// With rank 1 a while later than rank 0: its output as it was when it came, and whether its chunk was whole at rank 0 when that was done.
fn a_late_rank<S: Schedule>(schedule_of: impl Fn(u32) -> S, blocks: u32) {
    let alone = !S::OWN;
    let world = World::new(2, 1, 2048);
    let mut ranks = [Rank::new(2, 1), Rank::new(2, 2)];
    let raws = [0, 1].map(|r| ranks[r].raw(if r == 1 { 50 } else { 0 }, 0));
    let table = raws.map(|raw| raw.output.address());
    let shape = Shape { outputs: table.as_ptr() as u64, ..shape() };
    let schedules = [0, 1].map(schedule_of);
    let early = std::thread::scope(|threads| {
        let first = threads.spawn(|| {
            launch::<Store, S>(&world, schedules[0], 0, shape, raws[0], blocks).map(|()| {
                let at = raws[0].output.address() as *const u128;
                // SAFETY: the launch is over: nobody writes rank 0's output any more, or the test fails here.
                (0..N / 2).map(|k| unsafe { at.add(k).read_volatile() }).collect::<Vec<_>>()
            })
        });
        std::thread::sleep(Duration::from_millis(60));
        let at = raws[1].output.address() as *const u128;
        // SAFETY: rank 1 has not launched: nobody writes its output, or the test fails here.
        let touched = (0..N / 2).any(|k| unsafe { at.add(k).read_volatile() } != 0);
        assert!(!touched, "rank 1's output was written before it launched");
        assert_eq!(launch::<Store, S>(&world, schedules[1], 1, shape, raws[1], blocks), Ok(()));
        first.join().unwrap().unwrap()
    });
    // From rank 1, by the time that rank 0's kernel was over.
    let place = if alone { 0 } else { N / 4 };
    assert!(are(&early[place..][..N / 4], 2), "rank 0 ended before its output was whole");
    let own = &ranks[1].output[..N / 4];
    assert!(are(own, 1), "rank 1's output");
}

#[test]
fn an_output_is_written_between_go_and_done() {
    a_late_rank(|_| AllToAll, 2);
    a_late_rank(|rank: u32| SendRecv { to: 1 - rank, from: 1 - rank }, 1);
}

/// Bulk copies call no hooks: of these only that nothing is written early.
#[test]
fn bulk_copies_wait_for_go() {
    let world = World::new(2, 1, 2048);
    let mut ranks = [Rank::new(2, 1), Rank::new(2, 2)];
    let raws = [0, 1].map(|r| ranks[r].raw(0, 0));
    let table = raws.map(|raw| raw.output.address());
    let shape = |rank: usize| {
        let (outputs, input) = (table.as_ptr() as u64, raws[rank].input.address());
        Shape { outputs, input, own_share: 0, ..shape() }
    };
    std::thread::scope(|threads| {
        threads.spawn(|| launch::<Bulk, _>(&world, AllToAll, 0, shape(0), raws[0], 2).unwrap());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(60) {
            let at = raws[1].output.address() as *const u128;
            // SAFETY: rank 1 has not launched: nobody writes its output, or the test fails here.
            assert_eq!(unsafe { at.read_volatile() }, 0, "rank 1's output was written before it launched");
        }
        launch::<Bulk, _>(&world, AllToAll, 1, shape(1), raws[1], 2).unwrap();
    });
    assert!(are(ranks[1].chunk(0), 1) && are(ranks[0].chunk(1), 2));
}

/// Staged bytes are the receiver's own until it has taken them, whoever is ahead.
#[test]
fn staged_chunks_stay_until_they_are_taken() {
    let world = World::new(2, 1, 2048);
    let flows = world.run(2, |rank, grid| {
        for call in 1..=CALLS {
            let mut own = Rank::new(2, 100 * call + rank);
            let raw = own.raw(0, if rank == 1 { 4 } else { 0 });
            let params = Params {
                ops: world.ops(rank),
                control: world.control(rank, 5_000),
                shape: Shape { self_copy: 0, ..shape() },
                raw,
                schedule: AllToAll,
            };
            // SAFETY: a sender and a receiver, with slices that hold what the shape says.
            unsafe { exchange::<_, Simple, _, Slow>(grid, &params)? };
            if grid.block == 1 {
                let right = are(own.chunk(1 - rank as usize), 100 * call + 1 - rank);
                assert!(right, "call {call} at {rank}");
            }
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?}");
}

#[test]
fn lines_of_another_size_are_told() {
    of_another_size::<Ll128>();
    of_another_size::<Ll>();
}

fn of_another_size<P: Protocol<Peers>>() {
    let world = World::new(2, 1, 2048);
    let start = Instant::now();
    let flows = world.run(1, |rank, _| {
        let mut own = Rank::new(2, 1);
        let elements = if rank == 0 { N as u64 } else { N as u64 - 400 };
        let shape = Shape { elements, share: share_packs(elements / 4, 1), ..shape() };
        launch::<P, _>(&world, AllToAll, rank, shape, own.raw(0, 0), 1)
    });
    assert!(flows.iter().flatten().all(Result::is_err), "{flows:?}");
    assert!([0, 1].iter().any(|rank| world.record(*rank).kind == kind::MISMATCH), "{:?}", world.record(0));
    assert!(start.elapsed() < Duration::from_secs(4), "they waited for their deadline");
}

/// Rank 0 has sent all of its second call but one word.
#[test]
fn every_word_is_waited_for() {
    let world = World::new(2, 1, 2048);
    let mut ranks = [Rank::new(1, 1), Rank::new(1, 2)];
    let raws = [0, 1].map(|rank| ranks[rank].raw(0, 0));
    let run =
        |rank: usize| launch::<Ll, _>(&world, one_way(rank as u32), rank as u32, shape(), raws[rank], 1);
    assert_eq!((run(0), run(1), run(0)), (Ok(()), Ok(()), Ok(())));
    // Its second half is there.
    let at = world.ops(1).ll_in(0, world.layout.ll_channels).wrapping_add(128 + 16 * 700 + 8);
    // SAFETY: a word of the buffer of even calls, which nobody writes.
    let word = unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) };
    let sent = word.swap(0, Ordering::SeqCst);
    assert_eq!(sent >> 32, 2);
    let output = raws[1].output.address() as *mut u128;
    // SAFETY: rank 1 runs no kernel.
    unsafe { output.write(7) };
    std::thread::scope(|threads| {
        let late = threads.spawn(|| run(1));
        std::thread::sleep(Duration::from_millis(40));
        // SAFETY: nobody writes it, or the test fails here.
        assert_eq!(unsafe { output.read_volatile() }, 7, "taken before all of it came");
        word.store(sent, Ordering::SeqCst);
        assert_eq!(late.join().unwrap(), Ok(()));
    });
    assert!(are(&ranks[1].output[..N / 4], 1));
}

/// Flags have half of a call's number: they would come again.
#[test]
fn words_are_written_anew_before_their_flags_grow_old() {
    let (world, last) = (World::new(2, 1, 2048), REFRESH + 2);
    for rank in [0, 1] {
        // SAFETY: live state, nobody runs.
        unsafe { (*world.ops(rank).ll_state(rank, 0)).sent = REFRESH - 2 };
    }
    let flows = world.run(1, |rank, _| {
        for call in REFRESH - 1..=last {
            let mut own = Rank::new(2, 100 + (call % 8) as u32 + 50 * rank);
            let shape = Shape { elements: 80, cols: 80, share: 24, ..shape() };
            launch::<Ll, _>(&world, AllToAll, rank, shape, own.raw(0, 0), 1)?;
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?} {:?}", world.record(1));
    let (bytes, first) = (BUFFERS as usize / 2 - 64, 128);
    assert_eq!(bytes - first, 32 * PACKS as usize);
    for number in [last - 1, last] {
        let at = world.ops(0).ll_in(1, 0).wrapping_add((number % 2) as usize * bytes + first).cast::<u64>();
        // SAFETY: the buffer of this call; nobody runs.
        let flag = |word: usize| unsafe { at.add(word).read() } >> 32;
        let (words, sent) = (4 * PACKS as usize, 4 * 20);
        let of = |number| (0..words).filter(|word| flag(*word) == number).count();
        // The call before the last was one of the two that write all.
        let expected = if number == last { (sent, words - sent) } else { (words, 0) };
        assert_eq!((of(number), of(number - 2)), expected, "call {number}");
    }
}

/// Calls of both ranks, one after the other; `elements` of each rank.
fn direct_calls(elements: [u64; 2], calls: u32) -> (World, Vec<Flow>) {
    let world = World::new(2, 1, 2048);
    let mut ranks: Vec<[Rank; 2]> = (0..calls).map(|call| [10, 20].map(|v| Rank::new(2, v + call))).collect();
    let raws: Vec<[Raw; 2]> =
        ranks.iter_mut().map(|pair| pair.each_mut().map(|rank| rank.raw(0, 0))).collect();
    let tables: Vec<[u64; 2]> = raws.iter().map(|pair| pair.map(|raw| raw.output.address())).collect();
    let flows = world.run(1, |rank, _| {
        for (raw, table) in raws.iter().zip(&tables) {
            let outputs = table.as_ptr() as u64;
            let shape = Shape { outputs, elements: elements[rank as usize], ..shape() };
            launch::<Store, _>(&world, AllToAll, rank, shape, raw[rank as usize], 2)?;
        }
        Ok(())
    });
    for (call, pair) in (0u32..).zip(&ranks).filter(|_| flows.iter().flatten().all(Result::is_ok)) {
        let right = |at: usize, value| are(pair[at].chunk(1 - at), value + call);
        assert!(right(0, 20) && right(1, 10), "call {call}");
    }
    (world, flows.into_iter().flatten().collect())
}

#[test]
fn direct_calls_follow_each_other() {
    let (_, flows) = direct_calls([N as u64; 2], 4);
    assert!(flows.iter().all(Result::is_ok), "{flows:?}");
}

/// Staged calls go on where a direct one has left the channel.
#[test]
fn staged_calls_follow_direct_ones() {
    // As many as it takes for positions to be a ring ahead of what was ever freed.
    let (world, flows) = direct_calls([N as u64; 2], 12);
    assert!(flows.iter().all(Result::is_ok), "{flows:?}");
    let flows = world.run(2, |rank, grid| {
        let mut own = Rank::new(2, 5 + rank);
        let (ops, control) = (world.ops(rank), world.control(rank, 5_000));
        let shape = Shape { self_copy: 0, ..shape() };
        let params = Params { ops, control, shape, raw: own.raw(0, 0), schedule: AllToAll };
        // SAFETY: a sender and a receiver, with slices that hold what the shape says.
        unsafe { exchange::<_, Simple, _, Slow>(grid, &params) }
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?}");
}

#[test]
fn direct_calls_that_differ_are_told() {
    let start = Instant::now();
    let (world, flows) = direct_calls([N as u64, N as u64 - 400], 1);
    assert!(flows.iter().all(Result::is_err), "{flows:?}");
    let told = [0, 1].map(|rank| world.record(rank)).into_iter().find(|record| record.kind == kind::MISMATCH);
    let told = told.unwrap_or_else(|| panic!("{:?}", world.record(0)));
    let mut sizes = [told.expected % CUT, told.seen % CUT];
    sizes.sort_unstable();
    assert_eq!(sizes, [4 * (N as u64 - 400), 4 * N as u64]);
    assert!(start.elapsed() < Duration::from_secs(4), "they waited for their deadline");
}
