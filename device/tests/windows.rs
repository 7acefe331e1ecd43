//! Windows on host threads: random programs against what they must give, faults, and wraps of every count.

#[path = "common/world.rs"]
mod world;

use fusewire_device::group::{Block, Thread};
use fusewire_device::kernel::{Tile, custom};
use fusewire_device::launch::{Grid, Shape};
use fusewire_device::prelude::*;
use fusewire_device::wait::{Flow, kind};
use fusewire_device::window::{WindowLayout, WindowParts, WindowPeer, operation};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Noise, Peers, World};

const DEADLINE_MS: u64 = 10_000;

/// A line that nothing shares.
#[repr(C, align(128))]
struct Line([AtomicU64; 16]);

/// Windows of all ranks of a world, with `words` of data each.
struct Windows {
    world: World,
    layout: WindowLayout,
    inboxes: Vec<Vec<Line>>,
    epochs: Vec<Vec<AtomicU64>>,
    data: Vec<Vec<AtomicU64>>,
    tables: Vec<Vec<WindowPeer>>,
}

impl Windows {
    fn new(ranks: u32, signals: u32, barriers: u32, words: usize) -> Windows {
        let layout = WindowLayout { world: ranks, signals, barriers, counters: 1 };
        let word = |_| AtomicU64::new(0);
        let line = |_| Line(std::array::from_fn(word));
        let lines = (layout.inbox_bytes() / 128) as usize;
        let inboxes: Vec<Vec<Line>> = (0..ranks).map(|_| (0..lines).map(line).collect()).collect();
        let epochs = (0..ranks).map(|_| (0..layout.epoch_bytes() as usize / 8).map(word).collect()).collect();
        let data: Vec<Vec<AtomicU64>> = (0..ranks).map(|_| (0..words).map(word).collect()).collect();
        let entry = |rank: u32, peer: u32| {
            let (own, theirs) =
                (inboxes[rank as usize].as_ptr() as u64, inboxes[peer as usize].as_ptr() as u64);
            WindowPeer {
                kind: if rank == peer { 0 } else { 1 },
                signals_out: theirs + layout.signals_of(rank),
                signals_in: own + layout.signals_of(peer),
                barriers_out: theirs + layout.barriers_of(rank),
                barriers_in: own + layout.barriers_of(peer),
                counters: own + layout.counters_of(peer),
                data: data[peer as usize].as_ptr() as u64,
                data_bytes: 8 * words as u64,
                ..WindowPeer::default()
            }
        };
        let tables = (0..ranks).map(|r| (0..ranks).map(|p| entry(r, p)).collect()).collect();
        Windows { world: World::new(ranks, 1, 1024), layout, inboxes, epochs, data, tables }
    }

    fn device(&self, rank: u32) -> DeviceWindow<'_> {
        let own = rank as usize;
        let parts = WindowParts {
            layout: self.layout,
            rank,
            data_key: 0,
            peers: self.tables[own].as_ptr() as u64,
            epochs: self.epochs[own].as_ptr() as u64,
            data: self.data[own].as_ptr() as u64,
            data_bytes: 8 * self.data[own].len() as u64,
            sources: 0,
            sources_len: 0,
            adapter: Default::default(),
        };
        // SAFETY: tables and words that live as long as this.
        unsafe { DeviceWindow::new(parts) }
    }

    /// Sets every word and every epoch, as if so much had been counted.
    fn start_at(&self, count: u64) {
        let lines = self.inboxes.iter().flatten().map(|line| &line.0[0]);
        let gates = self.layout.grid_gate(0) as usize / 8;
        let epochs = self.epochs.iter().flat_map(|e| &e[..gates]);
        lines.chain(epochs).for_each(|word| word.store(count, Ordering::SeqCst));
        // Sums take as many as all peers have.
        for epochs in &self.epochs {
            for id in 0..self.layout.signals {
                let at = self.layout.taken_of_all(id) as usize / 8;
                let all = count.wrapping_mul(u64::from(self.layout.world) - 1);
                epochs[at].store(all, Ordering::SeqCst);
            }
        }
    }

    fn run(
        &self,
        blocks: u32,
        deadline_ms: u64,
        body: impl Fn(&Window<'_, Peers, AllMapped>, &Kernel<Peers>) -> Flow + Sync,
    ) -> Vec<Flow> {
        let shape = Shape {
            elements: 0,
            rows: 1,
            cols: 0,
            chunk: 128,
            kernel: 1,
            channels: 1,
            self_copy: 0,
            ..zeroed()
        };
        let all = self.world.run(blocks, |rank, grid: Grid| {
            let (window, control) = (self.device(rank), self.world.control(rank, deadline_ms));
            // SAFETY: live words; one thread is the block.
            unsafe {
                custom(grid, self.world.ops(rank), control, shape, |kernel| {
                    body(&kernel.window(&window), kernel)
                })
            }
        });
        all.into_iter().flatten().collect()
    }
}

fn zeroed() -> Shape {
    bytemuck::Zeroable::zeroed()
}

fn all_well(flows: &[Flow]) {
    assert!(flows.iter().all(|flow| flow.is_ok()), "{flows:?}");
}

/// Sleeps now and then, so that ranks are apart in every way.
fn dawdle(noise: &mut Noise) {
    if noise.next().is_multiple_of(4) {
        std::thread::sleep(std::time::Duration::from_micros(noise.next() % 300));
    }
}

/// Each round every rank writes the round's number into the next rank's data and signals; after the wait it must be there whole, and
/// after the barrier it may be overwritten.
fn ring(windows: &Windows, rounds: u64, seed: u64) {
    let words = windows.data[0].len();
    let flows = windows.run(1, DEADLINE_MS, |window, kernel| {
        let mut noise = Noise(seed ^ kernel.rank() as u64);
        let (next, previous) = (kernel.next(1), kernel.previous(1));
        for round in 1..=rounds {
            let mine = vec![round << 8 | kernel.rank() as u64; words];
            dawdle(&mut noise);
            // SAFETY: the next rank reads between its wait and the barrier alone.
            unsafe { window.put_signal(&Block, next, 0, &mine, 0, 1)? };
            window.wait_next_from(&Block, previous, 0, 1)?;
            // The end first: it is what comes last.
            for i in (0..words).rev() {
                // SAFETY: as above.
                let got = unsafe { window.get::<u64>(i) };
                assert_eq!(got, round << 8 | previous as u64, "word {i} in round {round}");
            }
            dawdle(&mut noise);
            window.barrier(&Block, 0)?;
        }
        Ok(())
    });
    all_well(&flows);
}

#[test]
fn data_is_there_when_its_signal_is_and_stays_until_the_barrier() {
    // Much data takes long enough for a signal to overtake it, if it could.
    for (ranks, words, rounds) in [(2, 97, 150), (3, 97, 100), (5, 97, 50), (2, 50_000, 60)] {
        let windows = Windows::new(ranks, 2, 2, words);
        ring(&windows, rounds, u64::from(ranks));
    }
}

/// A signal's word within the data: what is put there must not be laid over the signal.
#[test]
fn a_signal_is_added_behind_the_data() {
    let mut windows = Windows::new(2, 1, 1, 1);
    let entry = &mut windows.tables[0][1];
    entry.data = entry.signals_out;
    let flows = windows.run(1, DEADLINE_MS, |window, kernel| {
        let word = &windows.inboxes[1][windows.layout.signals_of(0) as usize / 128].0[0];
        if kernel.rank() == 0 {
            // SAFETY: words of the peer that nobody else touches.
            unsafe { window.put_signal(&Block, 1, 0, &[100u64], 0, 1)? };
            assert_eq!(word.load(Ordering::SeqCst), 101);
            // SAFETY: as above.
            unsafe { window.put_signal_counter(&Block, 1, 0, &[200u64], 0, 1, 0)? };
            assert_eq!(word.load(Ordering::SeqCst), 201);
        }
        Ok(())
    });
    all_well(&flows);
}

#[test]
fn counts_wrap() {
    for start in [u64::MAX, u64::MAX - 3, i64::MAX as u64 - 1] {
        let windows = Windows::new(3, 2, 2, 5);
        windows.start_at(start);
        ring(&windows, 20, start);
        let flows = windows.run(1, DEADLINE_MS, |window, _| {
            for _ in 0..20 {
                window.signal_all(&Block, 1, SignalOp::Add, 1)?;
                window.wait_next(&Block, 1, 2)?;
                window.barrier(&Thread, 1)?;
            }
            Ok(())
        });
        all_well(&flows);
    }
}

/// Every block of every rank adds to a common count; after the barrier of the grid all of it is seen, before it nothing more is added.
#[test]
fn a_barrier_of_the_grid_holds_every_block() {
    let (ranks, blocks, rounds) = (3, 4, 60);
    let windows = Windows::new(ranks, 1, 1, 1);
    let arrived = AtomicU64::new(0);
    let flows = windows.run(blocks, DEADLINE_MS, |window, kernel| {
        let mut noise = Noise(kernel.rank() as u64 * 100 + kernel.block() as u64);
        for round in 1..=rounds {
            dawdle(&mut noise);
            arrived.fetch_add(1, Ordering::Relaxed);
            window.barrier_grid(0)?;
            assert_eq!(arrived.load(Ordering::Relaxed), round * u64::from(ranks * blocks));
            window.barrier_grid(0)?;
        }
        Ok(())
    });
    all_well(&flows);
}

/// One group of each rank at one barrier: nobody is ahead.
#[test]
fn a_barrier_holds_every_rank() {
    let ranks = 4;
    let windows = Windows::new(ranks, 1, 3, 1);
    let arrived = AtomicU64::new(0);
    let flows = windows.run(1, DEADLINE_MS, |window, kernel| {
        let mut noise = Noise(kernel.rank() as u64);
        for round in 1..=200 {
            dawdle(&mut noise);
            arrived.fetch_add(1, Ordering::Relaxed);
            window.barrier(&Block, round as usize % 3)?;
            assert_eq!(arrived.load(Ordering::Relaxed), round * u64::from(ranks), "round {round}");
            window.barrier(&Block, 1)?;
        }
        Ok(())
    });
    all_well(&flows);
}

#[test]
fn a_wait_that_expires_names_its_line_and_stops_the_rest() {
    let (windows, start) = (Windows::new(2, 2, 2, 1), std::time::Instant::now());
    let line = line!() + 4;
    let flows = windows.run(1, 50, |window, kernel| {
        if kernel.rank() == 0 {
            // A schedule that does not heed the outcome is stopped all the same.
            let _ = window.wait_next_from(&Block, 1, 1, 7);
        }
        // Neither the rank that gave up nor, once it knows, the other one goes on.
        while kernel.rank() == 1 && windows.world.abort_word(1) == 0 {
            std::thread::yield_now();
        }
        window.barrier(&Block, 0)
    });
    assert!(flows.iter().all(|flow| flow.is_err()), "{flows:?}");
    assert!(start.elapsed() < std::time::Duration::from_secs(5), "it outlasted its deadline");
    let record = windows.world.record(0);
    assert_eq!((record.kind, record.rank, record.peer), (kind::EXPIRED, 0, 1));
    assert_eq!((record.operation, record.channel), (operation::WAIT_NEXT_FROM, 1));
    assert_eq!((record.expected, record.seen, record.line), (7, 0, line));
    let file = &record.file[..record.file_len as usize];
    assert!(file.ends_with(b"windows.rs"), "{}", String::from_utf8_lossy(file));
    let arrivals =
        windows.inboxes[1][windows.layout.barriers_of(0) as usize / 128].0[0].load(Ordering::SeqCst);
    assert_eq!(arrivals, 0, "a rank that gave up arrived all the same");
}

/// A step of a random program; every rank runs the same.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ring { id: usize, add: u64 },
    All { id: usize, add: u64 },
    Barrier { id: usize },
    Halves { id: usize },
    Pairs { id: usize },
    Put { to: usize, count: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0usize..3, 1u64..4).prop_map(|(id, add)| Step::Ring { id, add }),
        (3usize..5, 1u64..4).prop_map(|(id, add)| Step::All { id, add }),
        (0usize..3).prop_map(|id| Step::Barrier { id }),
        (0usize..3).prop_map(|id| Step::Halves { id }),
        (0usize..3).prop_map(|id| Step::Pairs { id }),
        (0usize..40, 0usize..24).prop_map(|(to, count)| Step::Put { to, count }),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn random_programs_end_as_they_must(ranks in 2u32..5, steps in steps(), seed in any::<u64>()) {
        let windows = Windows::new(ranks, 6, 3, 64);
        let flows = windows.run(1, DEADLINE_MS, |window, kernel| {
            let mut noise = Noise(seed ^ kernel.rank() as u64);
            let (next, previous, peer) = (kernel.next(1), kernel.previous(1), kernel.rank() ^ 1);
            for (k, step) in steps.iter().enumerate() {
                dawdle(&mut noise);
                match *step {
                    Step::Ring { id, add } => {
                        window.signal_peer(&Block, next, id, SignalOp::Add, add)?;
                        window.wait_next_from(&Block, previous, id, add)?;
                    }
                    Step::All { id, add } => {
                        window.signal_all(&Thread, id, SignalOp::Add, add)?;
                        window.wait_next(&Block, id, add * u64::from(ranks - 1))?;
                        // A fast peer's next ones must not stand in for a slow peer's.
                        window.barrier(&Block, 2)?;
                    }
                    Step::Barrier { id } => window.barrier(&Block, id)?,
                    Step::Halves { id } => {
                        window.barrier_arrive(&Block, id)?;
                        window.barrier_wait(&Block, id)?;
                    }
                    Step::Pairs { id } if peer < ranks as usize => window.barrier_peer(&Block, peer, id)?,
                    Step::Pairs { .. } => {}
                    Step::Put { to, count } => {
                        let from = vec![1000 * k as u64 + kernel.rank() as u64; count];
                        // SAFETY: read between two barriers, written outside of them.
                        unsafe { window.put_signal_counter(&Block, next, to, &from, 5, 1, 0)? };
                        window.wait_next_from(&Block, previous, 5, 1)?;
                        for i in to..to + count {
                            // SAFETY: as above.
                            let got = unsafe { window.get::<u64>(i) };
                            assert_eq!(got, 1000 * k as u64 + previous as u64);
                        }
                        window.barrier(&Block, 0)?;
                    }
                }
            }
            // All signals are counted, at every rank.
            let puts = steps.iter().filter(|s| matches!(s, Step::Put { .. })).count() as u64;
            assert_eq!(window.read_counter(next, 0)?, puts);
            for id in 0..6 {
                let sent = |s: &Step| match *s {
                    Step::Ring { id: of, add } if of == id => add,
                    Step::Put { .. } if id == 5 => 1,
                    _ => 0,
                };
                let want: u64 = steps.iter().map(sent).sum();
                if id != 3 && id != 4 {
                    assert_eq!(window.read_signal_from(previous, id)?, want, "signal {id}");
                }
            }
            Ok(())
        });
        all_well(&flows);
    }
}

const COMPARISONS: [(Cmp, [bool; 3]); 6] = [
    (Cmp::Eq, [false, true, false]),
    (Cmp::Ne, [true, false, true]),
    (Cmp::Lt, [true, false, false]),
    (Cmp::Le, [true, true, false]),
    (Cmp::Gt, [false, false, true]),
    (Cmp::Ge, [false, true, true]),
];

/// Of a word that is below, at and above the value: waits end where the comparison holds, and nowhere else.
#[test]
fn comparisons_hold_where_they_must_alone() {
    let start = std::time::Instant::now();
    for (cmp, holds) in COMPARISONS {
        for (seen, holds) in [41u64, 42, 43].into_iter().zip(holds) {
            assert_eq!(cmp.holds(seen, 42), holds, "{seen} {cmp:?} 42");
            // Numbers are unsigned.
            let far = [0, 1 << 63, u64::MAX][(seen - 41) as usize];
            assert_eq!(cmp.holds(far, 1 << 63), holds, "{far} {cmp:?} 2^63");
            type Wait = fn(&Window<'_, Peers, AllMapped>, Cmp) -> Flow;
            let waits: [Wait; 3] = [
                |window, cmp| window.wait_signal_from(&Block, 1, 0, cmp, 42),
                |window, cmp| window.wait_signal(&Block, 0, cmp, 42),
                |window, cmp| window.wait_counter(&Block, 1, 0, cmp, 42),
            ];
            for wait in waits {
                let windows = Windows::new(2, 1, 1, 1);
                windows.start_at(seen);
                let flows = windows.run(1, 20, |window, kernel| match kernel.rank() {
                    0 => wait(window, cmp),
                    _ => Ok(()),
                });
                assert_eq!(flows[0].is_ok(), holds, "{seen} {cmp:?} 42");
            }
        }
    }
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "waits outlasted their deadlines");
}

#[test]
fn an_abort_ends_a_wait_at_once() {
    let windows = Windows::new(2, 1, 1, 1);
    let start = std::time::Instant::now();
    let flows = windows.run(1, DEADLINE_MS, |window, kernel| {
        if kernel.rank() == 1 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Ops::raise_abort(&windows.world.ops(1), 0, 99);
            return Ok(());
        }
        window.wait_next_from(&Block, 1, 0, 1)
    });
    assert!(flows[0].is_err() && flows[1].is_ok(), "{flows:?}");
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
}

/// Each thread of a tile that stays uses a window by itself, up to the first that it may not; the block waits for nobody there.
#[test]
fn hooks_of_a_tile_that_stays_use_windows_by_thread() {
    let tile = |len| Tile { start: 0, len };
    let windows = Windows::new(2, 1, 1, 1);
    let flows = windows.run(1, DEADLINE_MS, |window, kernel| {
        let (other, flows) = (1 - kernel.rank(), std::cell::RefCell::new(Vec::new()));
        let signal = |peer: usize| {
            flows.borrow_mut().push(window.signal_peer(&Thread, peer, 0, SignalOp::Add, 1).is_ok());
        };
        // SAFETY: the hook writes nothing.
        unsafe { kernel.local_tile(tile(3), |_| signal(other)) };
        window.wait_next_from(&Block, other, 0, 3)?;
        // SAFETY: as above. There is no rank 2.
        unsafe { kernel.local_tile(tile(3), |ctx| signal(if ctx.pos == 1 { 2 } else { other })) };
        assert_eq!(flows.into_inner(), [true, true, true, true, false, false]);
        kernel.signal(other, 0)
    });
    assert!(flows.iter().all(|flow| flow.is_err()), "{flows:?}");
    let by_block = || {
        Windows::new(1, 1, 1, 1).run(1, DEADLINE_MS, |window, kernel| {
            // SAFETY: the hook writes nothing.
            unsafe { kernel.local_tile(tile(1), |_| _ = window.barrier(&Block, 0)) };
            Ok(())
        })
    };
    assert!(std::panic::catch_unwind(by_block).is_err(), "a hook waited for the whole block");
}
