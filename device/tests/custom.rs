//! Schedules of one's own over a world in plain memory.

#[path = "common/world.rs"]
mod world;

use fusewire_device::kernel::{Kernel, Tile, custom};
use fusewire_device::launch::Grid;
use fusewire_device::ops::{Line, Ops};
use fusewire_device::wait::{Flow, kind, operation};
use world::{NO_ELEMENTS, Peers, World};

const DEADLINE_MS: u64 = 20_000;

/// Runs a schedule of one's own on every rank with one block.
fn schedule(world: &World, body: impl Fn(&Kernel<Peers>) -> Flow + Sync) -> Vec<Vec<Flow>> {
    world.run(1, |rank, grid| {
        let (ops, control) = (world.ops(rank), world.control(rank, DEADLINE_MS));
        // SAFETY: the world's words; every block runs it.
        unsafe { custom(grid, ops, control, NO_ELEMENTS, &body) }
    })
}

#[test]
fn tiles_signals_and_puts() {
    let world = World::new(3, 1, 1024);
    let flows = schedule(&world, |kernel| {
        let (rank, next, previous) = (kernel.rank(), kernel.next(1), kernel.previous(1));
        for round in 0..20usize {
            let tile = Tile { start: 5, len: 37 };
            kernel.send_tile(next, tile, |ctx| (1000 * rank + 10 * round + ctx.index()) as f32)?;
            let sum = std::cell::Cell::new(0.0);
            // SAFETY: nothing is written.
            unsafe {
                kernel.recv_tile(previous, tile, |ctx, v: f32| sum.set(sum.get() + v - ctx.index() as f32))?
            };
            assert_eq!(sum.get(), 37.0 * (1000 * previous + 10 * round) as f32);
            // SAFETY: the peer reads it after the signal, and writes again after ours.
            unsafe { kernel.put(next, 8, &[rank as u32, round as u32])? };
            kernel.signal(next, 1)?;
            kernel.wait(previous, 1)?;
            // SAFETY: signalled, not signalled back.
            let got = unsafe { (kernel.heap_get::<u32>(8), kernel.heap_get::<u32>(9)) };
            assert_eq!(got, (previous as u32, round as u32));
            kernel.signal(previous, 0)?;
            kernel.wait(next, 0)?;
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(|flow| flow.is_ok()));
}

/// Short ones and such as are cut, in turn on one channel; two may be sent before one is received.
#[test]
fn tiles_by_ll128() {
    let world = World::new(3, 2, 1024);
    let flows = world.run(2, |rank, grid| {
        let (ops, control) = (world.ops(rank), world.control(rank, DEADLINE_MS));
        let body = |kernel: &Kernel<Peers>| {
            let (lines, me, from) = (kernel.ll128(), kernel.rank(), kernel.previous(1));
            let most = lines.most::<u16>();
            for (round, len) in [1, 37, 0, 500, most, 8, 240].into_iter().enumerate() {
                let value = |rank: usize, tile: usize, k: usize| (9001 * rank + 77 * tile + k) as u16;
                let tiles = [0, 1].map(|k| Tile { start: 3 + k, len: if k == 0 { len } else { 9 } });
                let send = |k: usize| {
                    lines.send_tile(kernel.next(1), tiles[k], |ctx| value(me, 2 * round + k, ctx.index()))
                };
                send(0)?;
                send(1)?;
                for (k, tile) in tiles.into_iter().enumerate() {
                    let taken = std::cell::Cell::new(0);
                    let take = |ctx: &fusewire_device::ctx::Consume, got: u16| {
                        assert_eq!(
                            got,
                            value(from, 2 * round + k, ctx.index()),
                            "{len}, {round}, {}",
                            ctx.index()
                        );
                        taken.set(taken.get() + 1);
                    };
                    // SAFETY: nothing is written.
                    unsafe { lines.recv_tile(from, tile, take)? };
                    assert_eq!(taken.get(), tile.len);
                }
            }
            Ok(())
        };
        // SAFETY: the world's words; every block runs it.
        unsafe { custom(grid, ops, control, NO_ELEMENTS, body) }
    });
    assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{flows:?}");
}

#[test]
fn a_third_tile_by_ll128_waits_for_the_first_to_be_received() {
    let world = World::new(2, 1, 1024);
    let tile = Tile { start: 0, len: 300 };
    let flows = schedule(&world, |kernel| {
        for number in 0..5usize {
            if kernel.rank() == 0 {
                kernel.ll128().send_tile(1, tile, |ctx| (1000 * number + ctx.index()) as u32)?;
                continue;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            let take = |ctx: &fusewire_device::ctx::Consume, got: u32| {
                assert_eq!(got as usize, 1000 * number + ctx.index());
            };
            // SAFETY: nothing is written.
            unsafe { kernel.ll128().recv_tile(0, tile, take)? };
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{:?}", world.record(1));
}

/// Round by round from rank 0 to the last, each adding something, in tiles that staging holds and such as it does not.
#[test]
fn tiles_are_forwarded() {
    let world = World::new(4, 1, 2048);
    let flows = schedule(&world, |kernel| {
        let (me, last, lines) = (kernel.rank(), kernel.world() - 1, kernel.ll128());
        let value = |round: usize, index: usize, ranks: usize| (1000 * round + index + 7 * ranks) as u16;
        for round in 0..12usize {
            let by_ll128 = round % 2 == 1;
            let tile = Tile { start: 2, len: [1, 900, 0, 64, 5000, 8][round % 6] };
            let taken = std::cell::Cell::new(0);
            let check = |ctx: &fusewire_device::ctx::Consume, got: u16| {
                assert_eq!(got, value(round, ctx.index(), me - 1), "{round}, {}", ctx.index());
                taken.set(taken.get() + 1);
            };
            let pass = |ctx: &fusewire_device::ctx::Consume, got: u16| {
                check(ctx, got);
                got + 7
            };
            let first = |ctx: &fusewire_device::ctx::Produce| value(round, ctx.index(), 0);
            // SAFETY: nothing is written.
            unsafe {
                match me {
                    0 if by_ll128 => lines.send_tile(1, tile, first)?,
                    0 => kernel.send_tile(1, tile, first)?,
                    me if me == last && by_ll128 => lines.recv_tile(me - 1, tile, check)?,
                    me if me == last => kernel.recv_tile(me - 1, tile, check)?,
                    me if by_ll128 => lines.forward_tile(me - 1, me + 1, tile, pass)?,
                    me => kernel.forward_tile(me - 1, me + 1, tile, pass)?,
                }
            }
            assert_eq!(taken.get(), if me == 0 { 0 } else { tile.len });
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{flows:?}");
}

/// Whoever is slow: the one before, and the one behind.
#[test]
fn what_is_forwarded_waits_for_bytes_and_for_room() {
    for slow in [0, 2] {
        for by_ll128 in [false, true] {
            let world = World::new(3, 1, 2048);
            let flows = schedule(&world, |kernel| {
                let (me, lines) = (kernel.rank(), kernel.ll128());
                // Tiles of several turns, and then such as are one.
                for round in 0..20usize {
                    let tile = Tile { start: 0, len: if by_ll128 { 300 } else { [700, 40][round / 8 % 2] } };
                    let late = || std::thread::sleep(std::time::Duration::from_millis(3));
                    if me == slow {
                        late();
                    }
                    let value = |index: usize| (1000 * round + index) as u32;
                    let check = |ctx: &fusewire_device::ctx::Consume, got: u32| {
                        assert_eq!(got, value(ctx.index()), "{round}, {slow} is slow");
                    };
                    let pass = |_: &fusewire_device::ctx::Consume, got: u32| got;
                    let first = |ctx: &fusewire_device::ctx::Produce| {
                        if me == slow && ctx.pos % 200 == 150 {
                            late();
                        }
                        value(ctx.index())
                    };
                    // SAFETY: nothing is written.
                    unsafe {
                        match (me, by_ll128) {
                            (0, false) => kernel.send_tile(1, tile, first)?,
                            (0, true) => lines.send_tile(1, tile, first)?,
                            (1, false) => kernel.forward_tile(0, 2, tile, pass)?,
                            (1, true) => lines.forward_tile(0, 2, tile, pass)?,
                            (_, false) => kernel.recv_tile(1, tile, check)?,
                            (_, true) => lines.recv_tile(1, tile, check)?,
                        }
                    }
                }
                Ok(())
            });
            assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{flows:?}");
        }
    }
}

/// By staging on both sides, where there are more blocks than LL128 channels.
#[test]
fn tiles_by_ll128_need_no_line_channels() {
    let world = World::new(2, 6, 1024);
    assert!(world.layout.ll128_channels < 6);
    let flows = world.run(6, |rank, grid| {
        let (ops, control) = (world.ops(rank), world.control(rank, DEADLINE_MS));
        // SAFETY: the world's words; every block runs it; nothing is written.
        unsafe {
            custom(grid, ops, control, NO_ELEMENTS, |kernel: &Kernel<Peers>| {
                let (lines, tile) = (kernel.ll128(), Tile { start: 0, len: 50 });
                assert_eq!(lines.most::<u32>() < kernel.most_staged::<u32>(), kernel.block() > 3);
                lines.send_tile(kernel.next(1), tile, |ctx| ctx.index() as u32)?;
                lines.recv_tile(kernel.previous(1), tile, |ctx, got: u32| assert_eq!(got, ctx.index() as u32))
            })
        }
    });
    assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{flows:?}");
}

#[test]
fn tiles_by_ll128_that_differ_are_told() {
    let world = World::new(2, 1, 1024);
    let flows = schedule(&world, |kernel| {
        let (lines, tile) = (kernel.ll128(), Tile { start: 0, len: 50 + kernel.rank() });
        lines.send_tile(kernel.next(1), tile, |ctx| ctx.index() as u32)?;
        // SAFETY: nothing is written.
        unsafe { lines.recv_tile(kernel.previous(1), tile, |_, _: u32| {}) }
    });
    assert!(flows.iter().flatten().any(|flow| flow.is_err()));
    let records = [0, 1].map(|rank| world.record(rank));
    assert!(records.iter().any(|record| record.kind == kind::MISMATCH), "{records:?}");
}

#[test]
fn a_barrier_waits_for_every_rank() {
    let world = World::new(4, 1, 1024);
    let came = std::sync::atomic::AtomicUsize::new(0);
    let flows = schedule(&world, |kernel| {
        for round in 1..=5 {
            // Another one is late each time.
            if (kernel.rank() + round) % 4 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            came.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            kernel.barrier(0)?;
            assert_eq!(came.load(std::sync::atomic::Ordering::Relaxed), 4 * round);
            kernel.barrier(1)?;
        }
        Ok(())
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?}");
}

#[test]
fn raw_operations_out_of_range_end_the_kernel() {
    let far = usize::MAX - 1;
    type Body = Box<dyn Fn(&Kernel<Peers>) -> Flow + Sync>;
    // SAFETY: nothing is written.
    let receive = |k: &Kernel<Peers>, len| unsafe { k.recv_tile(0, Tile { start: 8, len }, |_, _: f64| {}) };
    const ONE: Tile = Tile { start: 0, len: 1 };
    // SAFETY: as above.
    let forward =
        |k: &Kernel<Peers>, from, to| unsafe { k.ll128().forward_tile(from, to, ONE, |_, v: u8| v) };
    let cases: [(u32, u32, Body); 12] = [
        (kind::RANGE, operation::SEND, Box::new(|k| k.send_tile(9, Tile { start: 0, len: 1 }, |_| 1u8))),
        (
            kind::LONG_TILE,
            operation::SEND,
            Box::new(|k| k.send_tile(0, Tile { start: 0, len: (1 << 36) - 15 }, |_| 1u8)),
        ),
        (
            kind::TILE_END,
            operation::SEND,
            Box::new(move |k| k.send_tile(0, Tile { start: far, len: 16 }, |_| 1u8)),
        ),
        (kind::LONG_TILE, operation::RECEIVE, Box::new(move |k| receive(k, far))),
        (
            kind::LONG_LL128_TILE,
            operation::SEND,
            Box::new(|k| {
                let tile = Tile { start: 0, len: k.ll128().most::<u8>() + 1 };
                k.ll128().send_tile(0, tile, |_| 1u8)
            }),
        ),
        (kind::RANGE, operation::SEND, Box::new(move |k| forward(k, 0, 9))),
        (kind::RANGE, operation::RECEIVE, Box::new(move |k| forward(k, 9, 0))),
        (kind::RANGE, operation::SIGNAL, Box::new(|k| k.signal(0, 2))),
        (kind::RANGE, operation::WAIT, Box::new(|k| k.wait(7, 0))),
        // SAFETY: out of range, so nothing is accessed.
        (kind::BEYOND, operation::PUT, Box::new(|k| unsafe { k.put(0, 1024, &[1u32]) })),
        // SAFETY: as above; the sum overflows.
        (kind::BEYOND, operation::PUT, Box::new(move |k| unsafe { k.put(0, far, &[1u8; 8]) })),
        // SAFETY: as above.
        (kind::BEYOND, operation::GET, Box::new(move |k| unsafe { k.get::<u8>(0, 0, far, 8) })),
    ];
    for (kind, operation, body) in cases {
        let world = World::new(1, 1, 1024);
        let flows = schedule(&world, |kernel| {
            assert!(body(kernel).is_err());
            // Whoever goes on regardless gets no further.
            assert!(kernel.signal(0, 0).is_err());
            kernel.send_tile(0, Tile { start: 0, len: 1 }, |_| 1u8)
        });
        assert!(flows[0][0].is_err());
        // SAFETY: a live line, nobody runs.
        assert_eq!(unsafe { world.ops(0).line(0, Line::User(0)).read() }, 0);
        let record = world.record(0);
        assert_eq!((record.kind, record.operation), (kind, operation));
    }
}

#[test]
#[should_panic(expected = "a tile's hook may neither send nor receive")]
fn a_hook_cannot_send_on_the_channel_it_is_sent_on() {
    let world = World::new(1, 1, 1024);
    let grid = Grid { block: 0, blocks: 1 };
    let tile = Tile { start: 0, len: 4 };
    let nested = |kernel: &Kernel<Peers>| {
        kernel.send_tile(0, tile, |_| {
            let _ = kernel.send_tile(0, tile, |_| 1u8);
            2u8
        })
    };
    // SAFETY: the world's words; the one block runs it.
    let _ = unsafe { custom(grid, world.ops(0), world.control(0, 100), NO_ELEMENTS, nested) };
}

#[test]
fn a_second_wait_needs_a_second_signal() {
    let world = World::new(2, 1, 1024);
    let pause = std::time::Duration::from_millis(30);
    let flows = schedule(&world, |kernel| {
        if kernel.rank() == 0 {
            kernel.signal(1, 0)?;
            std::thread::sleep(pause);
            return kernel.signal(1, 0);
        }
        kernel.wait(0, 0)?;
        let first = std::time::Instant::now();
        kernel.wait(0, 0)?;
        assert!(first.elapsed() > pause / 2, "{:?}", first.elapsed());
        Ok(())
    });
    assert!(flows.iter().flatten().all(Result::is_ok), "{flows:?}");
}

/// A schedule that does not heed an expired wait gets no further.
#[test]
fn whoever_was_stopped_publishes_nothing() {
    let world = World::new(2, 1, 1024);
    let stopped = |kernel: &Kernel<Peers>| {
        assert!(kernel.wait(1, 0).is_err());
        assert!(kernel.signal(1, 1).is_err());
        kernel.send_tile(1, Tile { start: 0, len: 1 }, |_| 1u8)
    };
    let grid = Grid { block: 0, blocks: 1 };
    // SAFETY: the world's words; the one block runs it.
    assert!(unsafe { custom(grid, world.ops(0), world.control(0, 30), NO_ELEMENTS, stopped) }.is_err());
    // SAFETY: live lines, nobody runs.
    let lines = [Line::User(1), Line::Ready(0)].map(|line| unsafe { world.ops(1).line(0, line).read() });
    assert_eq!(lines, [0, 0]);
}

/// Twice as many blocks as channels: half of them send and half receive, on the same channels, and by LL128.
#[test]
fn blocks_share_channels() {
    let world = World::new(3, 4, 1024);
    let flows = world.run(8, |rank, grid| {
        let (ops, control) = (world.ops(rank), world.control(rank, DEADLINE_MS));
        let body = |kernel: &Kernel<Peers>| {
            let (channels, me, from) = (kernel.channels(), kernel.rank(), kernel.previous(1));
            assert_eq!((channels, kernel.blocks()), (4, 8));
            let channel = kernel.block() % channels;
            // SAFETY: one block sends there, and another one receives.
            unsafe { kernel.take_channel(channel) };
            let value =
                |rank: usize, round: usize, k: usize| (9001 * rank + 1000 * channel + 77 * round + k) as u16;
            for round in 0..20usize {
                let tile = Tile { start: 3, len: [40, 700, 0, 5][round % 4] };
                let give = |ctx: &fusewire_device::ctx::Produce| {
                    assert_eq!((ctx.channel, ctx.block), (channel, kernel.block()));
                    value(me, round, ctx.index())
                };
                let taken = std::cell::Cell::new(0);
                let take = |ctx: &fusewire_device::ctx::Consume, got: u16| {
                    assert_eq!(got, value(from, round, ctx.index()), "{round}, {}", ctx.index());
                    taken.set(taken.get() + 1);
                };
                match (kernel.block() < channels, round % 2 == 1) {
                    (true, false) => kernel.send_tile(kernel.next(1), tile, give)?,
                    (true, true) => kernel.ll128().send_tile(kernel.next(1), tile, give)?,
                    // SAFETY: nothing is written.
                    (false, false) => unsafe { kernel.recv_tile(from, tile, take)? },
                    // SAFETY: the same.
                    (false, true) => unsafe { kernel.ll128().recv_tile(from, tile, take)? },
                }
                assert_eq!(taken.get(), if kernel.block() < channels { 0 } else { tile.len });
            }
            Ok(())
        };
        // SAFETY: the world's words; every block runs it.
        unsafe { custom(grid, ops, control, NO_ELEMENTS, body) }
    });
    assert!(flows.iter().flatten().all(|flow| flow.is_ok()), "{flows:?}");
}

#[test]
fn a_channel_that_there_is_not_ends_the_kernel() {
    for channel in [2, 1 << 32, usize::MAX] {
        let world = World::new(2, 2, 1024);
        let flows = schedule(&world, |kernel| {
            // SAFETY: one block.
            unsafe { kernel.take_channel(channel) };
            kernel.send_tile(kernel.next(1), Tile { start: 0, len: 1 }, |_| 0u32)
        });
        assert!(flows.iter().flatten().all(|flow| flow.is_err()), "{flows:?}");
        // The one or the other was first.
        let told = [0, 1].map(|rank| world.record(rank)).into_iter().find(|r| r.kind == kind::NO_CHANNEL);
        assert_eq!(told.map(|record| record.operation), Some(operation::SEND), "{channel}");
    }
}
