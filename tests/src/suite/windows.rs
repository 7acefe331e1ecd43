//! Windows. Where torchcomms' tests went (`DeviceWindowTest`, `HostWindowTest`, `MultiPeerNvlTransportIntegrationTest`):
//!
//! | there | here |
//! |---|---|
//! | Construction, BasicAccessors, ExchangeAndStateVerification, VariousSignalCounts, ZeroCountConfig, WithBarriersAndCounters, SingleRank, MaxRanks, CombinedSignalBarrierConfig | [`configurations`] |
//! | NvlSignalWriteRead, ReadSignal, SignalWait, SignalWithSet, WaitWithCmpEq, MonotonicWaitValues, WaitSignalFromPeer | [`signals_of_one_peer`] |
//! | six comparisons, zero and largest values | [`comparisons`] |
//! | SignalAll, SignalAllAggregate, IbgdaSignalAggregateRead, WaitSignalFromAll | [`sums_over_peers`] |
//! | IbgdaSignalReadFrom, IbgdaSignalSlotIsolation, WaitSignalFromMultiPeerIsolation, MultipleSignalSlots | [`every_word_is_its_own`] |
//! | BidirectionalSignalWait, SequentialNvlPingPong | [`ping_pong`] |
//! | ConcurrentSignalSlots, ConcurrentSignalMultiBlock, ConcurrentSignalMultiWarp, SignalWaitBlockScope | [`groups_at_once`] |
//! | Barrier, BarrierPeer, MultipleBarrierSlots, BarrierMonotonicCounters | [`barriers`] |
//! | BarrierSlotStress, BarrierMultiBlockStress | [`stress`], [`barriers_of_grids`] |
//! | NvlPutViaGenericApi, PutSignalOperation | [`puts`] |
//! | GetTransportReturnsCorrectType, PeerIterationHelpers, PeerIndexConversionRoundtrip | `multi_peer::handles_in_kernels` |
//! | SelfTransportPut | see `multi_peer` |
//! | SendRecv, SendRecv stress | [`send_and_receive`] |
//! | SignalResetBetweenPhases | [`reset_between_phases`]; without a reset, [`epochs`] |
//! | wait, read and reset of counters | [`counters`] |
//! | put, wait and barrier in replayed graphs | [`replays_with_changing_payload`] |

use crate::check::same;
use crate::kernels::windows::{linked_ring, linked_ring_mixed, op, sent_ring};
use crate::windows::{Player, Step, Windowed, how, step, windowed};
use crate::{CustomOf, Outcome, Rank, Subject, reference};
use fusewire::{Buffer, HostWindow, WindowConfig};

fn next<X: Subject>(rank: &Rank<X>) -> (usize, usize) {
    let (me, size) = (rank.me(), rank.size());
    ((me + 1) % size, (me + size - 1) % size)
}

fn usual<X: Subject>(rank: &Rank<X>) -> fusewire::Result<Windowed<X>> {
    windowed(rank, WindowConfig::default(), 256)
}

pub fn configurations<X: Subject>(rank: &Rank<X>) -> Outcome {
    let ground = rank.small()?;
    let peers = rank.peers(&ground)?;
    for (signals, counters, barriers) in [(0, 0, 0), (1, 0, 0), (0, 0, 1), (64, 3, 16), (4096, 1, 2)] {
        let config = WindowConfig::default().signals(signals).counters(counters).barriers(barriers);
        let window = HostWindow::without_data(&peers, config)?;
        window.exchange()?;
        assert_eq!(window.config(), config);
        assert_eq!(window.data_bytes(rank.me())?, 0);
        let device = window.device_window::<fusewire::prelude::Mixed>()?;
        assert_eq!((device.rank as usize, device.layout.world as usize), (rank.me(), rank.size()));
        assert_eq!((device.layout.signals, device.layout.barriers), (signals, barriers));
        assert_eq!((device.layout.counters, device.data_bytes), (counters, 0));
    }
    // Data of another length on each rank, and none on one.
    let data = ground.device.shared_buffer::<u64>(10 * rank.me())?;
    let window = HostWindow::new(&peers, WindowConfig::default().counters(0), &data)?;
    window.exchange()?;
    for other in 0..rank.size() {
        assert_eq!(window.data_bytes(other)?, 80 * other as u64);
    }
    drop(window);
    let signals = if rank.me() == 0 { 3 } else { 4 };
    let config = WindowConfig::default().signals(signals);
    let differing = HostWindow::without_data(&peers, config)?.exchange();
    match (rank.size(), differing) {
        (1, Ok(())) => {}
        (_, Err(error)) => crate::check::says(error, &["signals", "rank 0 has", "`3`", "`4`"]),
        (_, Ok(())) => panic!("ranks with different windows should be told"),
    }
    Ok(())
}

pub fn signals_of_one_peer<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, (next, previous)) = (Player::new(&on)?, next(rank));
    let from = |cmp: u64, value: u64| step(op::WAIT_SIGNAL_FROM).peer(previous).id(2).how(cmp).value(value);
    let add = |value: u64| step(op::SIGNAL_PEER).peer(next).id(2).value(value);
    let read = step(op::READ_SIGNAL_FROM).peer(previous).id(2);
    let seen = player.play(&[read, add(5), from(how::EQ, 5), read])?;
    assert_eq!((seen.at(0) <= 5, seen.at(3)), (true, 5));
    // Thresholds that grow, as far as one kernel goes.
    rank.world.barrier()?;
    let growing = (1..=10).flat_map(|k| [add(1), from(how::GE, 5 + k)]);
    player.play(&growing.chain([read]).collect::<Vec<_>>())?;
    // Set is what it is set to, also to nothing and to everything.
    for value in [9, u64::MAX, 0, 1 << 40] {
        if on.window.topology().mapped_peers().len() + 1 < rank.size() {
            break;
        }
        rank.world.barrier()?;
        let set = step(op::SIGNAL_PEER).peer(next).id(2).how(how::SET).value(value);
        assert_eq!(player.play(&[set, from(how::EQ, value), read])?.at(2), value);
    }
    Ok(())
}

pub fn comparisons<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, (next, previous)) = (Player::new(&on)?, next(rank));
    let from = |cmp: u64, value: u64| step(op::WAIT_SIGNAL_FROM).peer(previous).id(0).how(cmp).value(value);
    let max = u64::MAX;
    let holding = [
        (how::EQ, 7),
        (how::NE, 6),
        (how::LT, 8),
        (how::LT, max),
        (how::LE, 7),
        (how::LE, max),
        (how::GT, 6),
        (how::GT, 0),
        (how::GE, 7),
        (how::GE, 0),
    ];
    let mut steps = vec![step(op::SIGNAL_PEER).peer(next).id(0).value(7), from(how::EQ, 7)];
    steps.extend(holding.iter().map(|(cmp, value)| from(*cmp, *value)));
    player.play(&steps)?;
    Ok(())
}

pub fn sums_over_peers<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, me, size) = (Player::new(&on)?, rank.me() as u64, rank.size() as u64);
    let sum = size * (size + 1) / 2 - (me + 1);
    let all = step(op::SIGNAL_ALL).id(4).value(me + 1);
    let wait = |value: u64| step(op::WAIT_SIGNAL).id(4).how(how::EQ).value(value);
    let seen = player.play(&[all, wait(sum), step(op::READ_SIGNAL).id(4)])?;
    assert_eq!(seen.at(2), sum);
    rank.world.barrier()?;
    let mut steps = vec![all, wait(2 * sum)];
    steps.extend(rank.others().iter().map(|peer| step(op::READ_SIGNAL_FROM).peer(*peer).id(4)));
    let seen = player.play(&steps)?;
    for (k, peer) in rank.others().into_iter().enumerate() {
        assert_eq!(seen.at(2 + k), 2 * (peer as u64 + 1), "from rank {peer}");
    }
    // The same by epochs, from zero on, in one kernel and in many.
    let round = [step(op::SIGNAL_ALL).id(5).value(1), step(op::WAIT_NEXT).id(5).value(size - 1)];
    player.play_all(&[round.to_vec()], &[], 20)?;
    (0..5).try_for_each(|_| player.play(&round).map(drop))?;
    Ok(())
}

/// A value in every word of every pair: none in another's place.
pub fn every_word_is_its_own<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, me) = (Player::new(&on)?, rank.me() as u64);
    let value = |from: u64, to: u64, id: u64| 1 + from + 100 * to + 10_000 * id;
    let mut steps = Vec::new();
    for peer in rank.others() {
        let send = |id| step(op::SIGNAL_PEER).peer(peer).id(id).value(value(me, peer as u64, id));
        steps.extend((0..8).map(send));
    }
    steps.push(step(op::BARRIER).id(3));
    let reads = steps.len();
    for peer in rank.others() {
        steps.extend((0..8).map(|id| step(op::READ_SIGNAL_FROM).peer(peer).id(id)));
    }
    let seen = player.play(&steps)?;
    for (k, peer) in rank.others().into_iter().enumerate() {
        for id in 0..8 {
            let want = value(peer as u64, me, id);
            assert_eq!(seen.at(reads + 8 * k + id as usize), want, "signal {id} of rank {peer}");
        }
    }
    Ok(())
}

/// Turn by turn, in one kernel: 50 round trips.
pub fn ping_pong<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let player = Player::new(&on)?;
    let peer = rank.me() ^ 1;
    let (ping, pong) =
        (step(op::SIGNAL_PEER).peer(peer).id(0).value(1), step(op::WAIT_NEXT_FROM).peer(peer).id(0).value(1));
    let turns = match (peer < rank.size(), rank.me() & 1) {
        (false, _) => vec![],
        (true, 0) => vec![ping, pong],
        (true, _) => vec![pong, ping],
    };
    player.play_all(&[turns], &[], 50)?;
    Ok(())
}

/// Threads, warps and blocks that signal the same word, and others beside it.
pub fn groups_at_once<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, (next, previous)) = (Player::new(&on)?, next(rank));
    let (blocks, mut total) = (3u64, [0u64; 2]);
    for by in 0..5 {
        let add = |id: u64| step(op::SIGNAL_PEER).by(by).peer(next).id(id).value(2);
        let counts = [2 * blocks * rank.calls_of(by), 2 * rank.calls_of(by)];
        total = [total[0] + counts[0], total[1] + counts[1]];
        let wait = |id: u64, value| {
            step(op::WAIT_SIGNAL_FROM).by(by).peer(previous).id(id).how(how::EQ).value(value)
        };
        let of = |block: u64| vec![add(0), add(1 + block), wait(0, total[0]), wait(1 + block, total[1])];
        player.play_all(&(0..blocks).map(of).collect::<Vec<_>>(), &[], 1)?;
        // A peer's next signals must not come before this rank's waits for a value.
        rank.world.barrier()?;
    }
    Ok(())
}

/// Of all, of two, and by halves; ids apart and shared; over and over.
pub fn barriers<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, me) = (Player::new(&on)?, rank.me());
    for by in 0..3 {
        let all = |id: u64| step(op::BARRIER).by(by).id(id);
        player.play_all(&[vec![all(0), all(0), all(1), all(7)]], &[], 10)?;
        let peer = me ^ 1;
        if peer < rank.size() {
            let two = step(op::BARRIER_PEER).by(by).peer(peer).id(1);
            let halves = [step(op::BARRIER_ARRIVE_PEER), step(op::BARRIER_WAIT_PEER)];
            let halves = halves.map(|s| s.peer(peer).id(2));
            player.play_all(&[vec![two, halves[0], two, halves[1]]], &[], 10)?;
        }
        let halves = [step(op::BARRIER_ARRIVE).id(1), step(op::BARRIER_WAIT).id(1)];
        player.play_all(&[vec![halves[0], all(2), halves[1], all(1)]], &[], 10)?;
    }
    holds_back(rank, &player, step(op::BARRIER).id(6))
}

/// What was signalled before the barrier is there after it, at every rank, each time.
fn holds_back<X: Subject>(rank: &Rank<X>, player: &Player<'_, X>, barrier: Step) -> Outcome {
    let rounds = rank.scale.pick(20, 200);
    for round in 1..=rounds {
        let others = rank.size() as u64 - 1;
        let seen = player.play(&[
            step(op::SIGNAL_ALL).id(7).value(1),
            barrier,
            step(op::READ_SIGNAL).id(7),
            barrier,
        ])?;
        assert_eq!(seen.at(2), others * round, "round {round}");
    }
    Ok(())
}

/// Every block of every rank meets every other.
pub fn barriers_of_grids<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let player = Player::new(&on)?;
    let grid = step(op::BARRIER_GRID).id(5);
    let others = rank.size() as u64 - 1;
    let mut total = 0;
    for blocks in [1u64, 4, rank.scale.pick(6, 60), 2] {
        total += others * blocks;
        // Each block signals all; after the barrier each sees the signals of every block of every rank.
        let of = |_| vec![step(op::SIGNAL_ALL).id(6).value(1), grid, step(op::READ_SIGNAL).id(6), grid];
        let seen = player.play_all(&(0..blocks).map(of).collect::<Vec<_>>(), &[], 1)?;
        for block in 0..blocks as usize {
            assert_eq!(seen.of(block, 2), total, "block {block} of {blocks}");
        }
        let only: Vec<Vec<Step>> = (0..blocks).map(|_| vec![grid]).collect();
        player.play_all(&only, &[], 25)?;
    }
    Ok(())
}

pub fn counters<X: Subject>(rank: &Rank<X>) -> Outcome {
    let mut on = usual(rank)?;
    let (next, previous) = next(rank);
    let input: Vec<u64> = (0..40).map(|i| 1000 * rank.me() as u64 + i).collect();
    let put = |counter: u64, to: u64| {
        let put = step(op::PUT_SIGNAL_COUNTER).peer(next).id(0).value(1).counter(counter);
        put.from(to).to(40 + to).count(5)
    };
    let wait = |id: u64, value: u64| step(op::WAIT_COUNTER).peer(next).id(id).how(how::GE).value(value);
    let read = |id: u64| step(op::READ_COUNTER).peer(next).id(id);
    // Puts come from the window's own data, which adapters may read.
    on.data.fill_from(&[&input[..], &[0; 216]].concat())?;
    let player = Player::new(&on)?;
    rank.world.barrier()?;
    let arrived = step(op::WAIT_NEXT_FROM).peer(previous).id(0).value(3);
    let steps =
        [put(0, 0), put(0, 5), put(1, 10), wait(0, 2), wait(1, 1), read(0), read(1), read(2), arrived];
    let take = step(op::TAKE).from(40).to(0).count(15);
    let seen = player.play(&[&steps[..], &[take]].concat())?;
    assert_eq!((seen.at(5), seen.at(6), seen.at(7)), (2, 1, 0));
    let want: Vec<u64> = (0..15).map(|i| 1000 * previous as u64 + i).collect();
    assert_eq!(seen.taken[..15], want);
    let reset = step(op::RESET_COUNTER).peer(next).id(0);
    let seen = player.play(&[reset, read(0), read(1), put(0, 0), wait(0, 1), read(0)])?;
    assert_eq!((seen.at(1), seen.at(2), seen.at(5)), (0, 1, 1));
    rank.world.barrier()?;
    Ok(())
}

/// Sizes and offsets, aligned and not, by every group; then with a signal.
pub fn puts<X: Subject>(rank: &Rank<X>) -> Outcome {
    let words = rank.scale.pick(3000, 40_000);
    let mut on = windowed(rank, WindowConfig::default(), 2 * words)?;
    let (next, previous) = next(rank);
    for (round, count) in [1, 2, 3, 16, 511, 1001, words - 7].into_iter().enumerate() {
        for by in 0..3 {
            let (from, to) = (round % 3, words + (round + by) % 5);
            let data = rank.data(10 * round + by);
            // The own half is what goes out; the other half is where it arrives.
            let own: Vec<u64> =
                (0..2 * words).map(|i| if i < words { data.any(rank.me(), i) } else { 3 }).collect();
            on.data.fill_from(&own)?;
            rank.world.barrier()?;
            let player = Player::new(&on)?;
            let place = |s: Step| s.by(by as u64).peer(next).from(from).to(to).count(count);
            let put = match round % 2 {
                0 => {
                    vec![place(step(op::PUT)), step(op::SIGNAL_PEER).by(by as u64).peer(next).id(1).value(1)]
                }
                _ => vec![place(step(op::PUT_SIGNAL)).id(1).value(1)],
            };
            let wait = step(op::WAIT_NEXT_FROM).peer(previous).id(1).value(1);
            let take = step(op::TAKE).from(words).to(0).count(words);
            let seen = player.play(&[&put[..], &[wait, take]].concat())?;
            same(format_args!("{count} words from {from} to {to}, group {by}"), &seen.taken[..words], |i| {
                let at = (i + words).wrapping_sub(to);
                if at < count { data.any(previous, from + at) } else { 3 }
            });
            rank.world.barrier()?;
        }
    }
    Ok(())
}

/// One hop around the ring through the transport's channels; sizes that follow each other.
pub fn send_and_receive<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let kernel = CustomOf::<sent_ring::Hooks>::custom(&on.ground.transport)?;
    let (device, stream, (_, previous)) = (&on.ground.device, &on.ground.stream, next(rank));
    for (round, n) in [1, 100, 800, 33, 0, 500].into_iter().cycle().take(rank.scale.pick(12, 120)).enumerate()
    {
        let data = rank.data(round);
        let input = device.buffer_from(&data.all::<f32>(rank.me(), n))?;
        let mut output = device.buffer::<f32>(n)?;
        let args = sent_ring::Launch { window: &on.window, input: input.view(), output: output.view_mut() };
        kernel.launch(stream, 1 + round as u32 % 4, args)?;
        same(format_args!("{n} elements, round {round}"), &output.read(stream)?, |i| data.any(previous, i));
    }
    Ok(())
}

/// Thresholds from epochs: the same steps again and again, eagerly and with gaps between ranks.
pub fn epochs<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, (next, previous)) = (Player::new(&on)?, next(rank));
    let steps = [
        step(op::SIGNAL_PEER).peer(next).id(0).value(3),
        step(op::WAIT_NEXT_FROM).peer(previous).id(0).value(2),
        step(op::WAIT_NEXT_FROM).peer(previous).id(0).value(1),
        step(op::READ_SIGNAL_FROM).peer(previous).id(0),
    ];
    for round in 1..=rank.scale.pick(30, 300u64) {
        let seen = player.play(&steps)?.at(3);
        // Never behind, and as far ahead as the peer is.
        assert!(seen >= 3 * round, "{seen} in round {round}");
    }
    Ok(())
}

/// Signals are zeroed on the stream, between two meetings of the ranks: eagerly and in a graph.
pub fn reset_between_phases<X: Subject>(rank: &Rank<X>) -> Outcome {
    let on = usual(rank)?;
    let (player, (next, previous)) = (Player::new(&on)?, next(rank));
    let stream = &on.ground.stream;
    let phase = [
        step(op::SIGNAL_PEER).peer(next).id(1).value(4),
        step(op::WAIT_SIGNAL_FROM).peer(previous).id(1).how(how::EQ).value(4),
        step(op::SIGNAL_ALL).id(2).value(1),
        step(op::WAIT_NEXT).id(2).value(rank.size() as u64 - 1),
        step(op::BARRIER).id(0),
    ];
    let graph = stream.capture(|| on.window.reset_signals(stream))?;
    for round in 0..rank.scale.pick(6, 40) {
        player.play(&phase)?;
        rank.world.barrier()?;
        match round % 2 {
            0 => on.window.reset_signals(stream)?,
            _ => graph.launch(stream)?,
        }
        let read = [step(op::READ_SIGNAL).id(1), step(op::READ_SIGNAL).id(2)];
        let seen = player.play(&read)?;
        assert_eq!((seen.at(0), seen.at(1)), (0, 0));
        rank.world.barrier()?;
    }
    // A window whose ranks start anew.
    player.play(&phase)?;
    on.window.renew()?;
    player.play(&phase)?;
    Ok(())
}

/// 64 signals, 16 barriers, many blocks at once, for many rounds in one kernel.
pub fn stress<X: Subject>(rank: &Rank<X>) -> Outcome {
    let config = WindowConfig::default().signals(64).barriers(16);
    let on = windowed(rank, config, 64 * 16)?;
    let (player, (next, previous)) = (Player::new(&on)?, next(rank));
    let (blocks, rounds) =
        (rank.scale.pick(8, 64), rank.scale.pick(if rank.size() > 4 { 10 } else { 60 }, 500));
    let input: Vec<u64> = (0..64 * 16).map(|i| rank.data(0).bits(rank.me(), i)).collect();
    let of = |block: usize| {
        let signals = (0..64).filter(move |id| id % blocks == block);
        let mut steps: Vec<Step> = signals
            .clone()
            .map(|id| {
                let put = step(op::PUT_SIGNAL).peer(next).id(id).value(1).how(how::INPUT);
                put.from(16 * id).to(16 * id).count(16)
            })
            .collect();
        steps.extend(signals.map(|id| step(op::WAIT_NEXT_FROM).peer(previous).id(id).value(1)));
        // Blocks beyond the barriers' number share one: arrivals are counted, whoever makes them.
        steps.push(step(op::BARRIER).id(block % 16));
        steps.push(step(op::TAKE).from(16 * block).to(16 * block).count(16));
        steps.push(step(op::BARRIER).id(block % 16));
        steps
    };
    let all: Vec<Vec<Step>> = (0..blocks).map(of).collect();
    let seen = player.play_all(&all, &input, rounds)?;
    let data = rank.data(0);
    same("the previous rank's words", &seen.taken[..16 * blocks.min(64)], |i| data.bits(previous, i));
    same("all of them", &on.data.read(&on.ground.stream)?, |i| data.bits(previous, i));
    Ok(())
}

/// 10,000 replays on GPUs of put, signal, wait and barrier; every replay's payload is another, and one that was lost, doubled or taken
/// for another would show.
pub fn replays_with_changing_payload<X: Subject>(rank: &Rank<X>) -> Outcome {
    const SOURCES: usize = 7;
    let ground = rank.small()?;
    let peers = rank.peers(&ground)?;
    let n = rank.scale.pick(95, 1501);
    let config = WindowConfig::default();
    let data = ground.device.shared_buffer::<u32>(n)?;
    let window = HostWindow::new(&peers, config, &data)?;
    window.exchange()?;
    let (stream, (_, previous)) = (&ground.stream, next(rank));
    let kernel = CustomOf::<linked_ring::Hooks>::custom(&ground.transport)?;
    let source = |k: usize| ground.device.buffer_from(&rank.data(k).all::<u32>(rank.me(), n));
    let sources = (0..SOURCES).map(source).collect::<fusewire::Result<Vec<_>>>()?;
    let (mut input, mut output) = (ground.device.buffer::<u32>(n)?, ground.device.buffer::<u32>(n)?);
    window.register(&input)?;
    let mixed = CustomOf::<linked_ring_mixed::Hooks>::custom(&ground.transport)?;
    // Specialised where every peer's memory can be stored to.
    let all_mapped = peers.topology().mapped_peers().len() + 1 == rank.size();
    let launch = |input: &Buffer<u32>, output: &mut Buffer<u32>| match all_mapped {
        true => {
            let args =
                linked_ring::Launch { window: &window, input: input.view(), output: output.view_mut() };
            kernel.launch(stream, 4, args)
        }
        false => {
            let args =
                linked_ring_mixed::Launch { window: &window, input: input.view(), output: output.view_mut() };
            mixed.launch(stream, 4, args)
        }
    };
    let graph = stream.capture(|| launch(&input, &mut output))?;
    let replays = rank.scale.pick(if rank.size() > 3 { 60 } else { 200 }, 10_000);
    let (mut rng, mut taken) = (rank.rng(), Vec::with_capacity(replays));
    for replay in 0..replays {
        let k = rng.within(0, SOURCES - 1);
        taken.push(k);
        input.copy_from(stream, &sources[k])?;
        // Eager calls between replays go on where those left off.
        match replay % 50 {
            49 => launch(&input, &mut output)?,
            _ => graph.launch(stream)?,
        }
    }
    same(format_args!("after {replays} replays"), &output.read(stream)?, |i| {
        taken.iter().fold(0, |old, k| reference::link(old, rank.data(*k).any(previous, i)))
    });
    // A graph keeps the window that it uses.
    drop((window, peers));
    graph.launch(stream)?;
    stream.synchronize()?;
    Ok(())
}

/// Several windows at once, and windows that come and go.
pub fn windows_come_and_go<X: Subject>(rank: &Rank<X>) -> Outcome {
    let first = usual(rank)?;
    let (next, previous) = next(rank);
    for round in 0..4 {
        let second = usual(rank)?;
        let (a, b) = (Player::new(&first)?, Player::new(&second)?);
        let send = step(op::SIGNAL_PEER).peer(next).id(0).value(1);
        let take = step(op::WAIT_NEXT_FROM).peer(previous).id(0).value(1);
        let read = step(op::READ_SIGNAL_FROM).peer(previous).id(0);
        a.play(&[send, take])?;
        assert_eq!(b.play(&[read])?.at(0), 0, "round {round}: a signal of one window came into another");
        rank.world.barrier()?;
        b.play(&[send, take])?;
        rank.world.barrier()?;
    }
    Ok(())
}
