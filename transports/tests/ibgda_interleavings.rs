//! Seeded schedules of threads, adapters and wire, with faults: 100,000 of them, each of some hundred turns.
//!
//! The operations are the crate's own sources, compiled here once more over words that give way at every access (as loom would, but with
//! the emulated adapter among the threads). Every schedule checks
//!
//! - a signal is never seen before the data it stands for, nor more often than it was sent, whatever is lost and sent again;
//! - a counter is never ahead of the signals it counts;
//! - without a fault that lasts, everything arrives; with one, every thread that waits has an error within its deadline.
//!
//! Queues begin where they are new, and where one of their counts is about to begin anew.
//!
//! And that it would notice: signals without a fence, signals on another queue pair, counters that do not wait, are all caught.

#![allow(dead_code)] // a part of each module is used

#[path = "interleavings/device.rs"]
mod device;
#[path = "interleavings/ibgda.rs"]
mod ibgda;
#[path = "interleavings/machine.rs"]
mod machine;
#[path = "interleavings/rig.rs"]
mod rig;

use device::wait::Control;
use ibgda::wqe::Head;
use ibgda::{Broken, Compare, wait_signal};
use machine::Rng;
use rig::{Rig, behaviour};
use std::cell::RefCell;

/// Threads that send, messages of each.
const SENDERS: usize = 3;
const MESSAGES: usize = 4;
/// Most bytes of a message.
const MOST: usize = 192;
/// How long a wait may last, and a schedule: every thread's operations, each with its deadline.
const DEADLINE_NS: u64 = 8_000_000;
const LIMIT_NS: u64 = DEADLINE_NS * 24;

/// Where things are in a rank's memory.
const SIGNALS: usize = 0;
const COUNTERS: usize = 1024;
const DATA: usize = 4096;

const fn signal(sender: usize) -> usize {
    SIGNALS + 128 * sender
}

const fn counter(sender: usize) -> usize {
    COUNTERS + 128 * sender
}

const fn data(sender: usize, message: usize) -> usize {
    DATA + (sender * MESSAGES + message) * 256
}

/// What is left out of the protocol, to see that the check notices.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Broke {
    Nothing,
    /// The signal's entry has no fence.
    Fence,
    /// The signal goes by another queue pair than the data.
    Queue,
    /// The counter does not wait for the completion.
    Wait,
}

/// A fault that lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    LinkDown,
    KeyRevoked,
    NotReady,
    PeerKilled,
}

/// What a schedule saw.
struct Verdict {
    /// What was wrong, if anything was.
    wrong: Option<String>,
    /// Errors that operations ended with.
    errors: Vec<Broken>,
}

fn pattern(seed: u64, sender: usize, message: usize, k: usize) -> u8 {
    (seed as u8).wrapping_add((sender * 67 + message * 29 + k * 3) as u8) | 1
}

/// One schedule.
fn play(rig: &Rig, seed: u64, broke: Broke, with_faults: bool) -> Verdict {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let lossy = rng.below(2) == 0;
    let fault = match rng.below(8) {
        _ if !with_faults => Fault::None,
        0 => Fault::LinkDown,
        1 => Fault::KeyRevoked,
        2 => Fault::NotReady,
        3 => Fault::PeerKilled,
        _ => Fault::None,
    };
    let strikes_at = rng.below(600);
    let mut act = |salt| {
        let mut b = behaviour(seed ^ salt);
        if lossy {
            (b.drop, b.drop_ack, b.delay) = (40_000, 40_000, 60_000);
        }
        b.late_placement = rng.below(2) == 0 || broke == Broke::Fence;
        b.not_ready_retries = if fault == Fault::NotReady { 3 } else { 7 };
        b
    };
    let behaviours = [act(1), act(2)];
    // Where indices of entries, of completions and of both at once begin anew, and where none does.
    let first = [0, (1 << 16) - 3, (1 << 24) - 5, (1 << 32) - 7][rng.below(4) as usize];
    rig.reset(behaviours, first);
    if fault == Fault::None && rng.below(4) == 0 {
        // Receiver's credit runs out for a while.
        rig.ranks[1].nic.hold_off(5);
    }
    let senders = 1 + rng.below(SENDERS as u64) as usize;
    let messages = 1 + rng.below(MESSAGES as u64) as usize;
    let bytes = 8 * (1 + rng.below(MOST as u64 / 8) as usize);
    let (own_queues, waits) = (rng.below(2) == 0, rng.below(3));
    let abort = 0u64;
    let control = Control { abort: &raw const abort as u64, record: 0, deadline_ns: DEADLINE_NS };
    let (wrong, errors) = (RefCell::new(None), RefCell::new(Vec::new()));
    let fail = |what: String| {
        wrong.borrow_mut().get_or_insert(what);
    };
    let [here, there] = &rig.ranks;
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = Vec::new();
    for sender in 0..senders {
        let (fail, errors) = (&fail, &errors);
        bodies.push(Box::new(move || {
            let queue = if own_queues { sender as u32 } else { 0 };
            let endpoint = here.endpoint(queue, &control);
            for message in 0..messages {
                let at = data(sender, message);
                for k in 0..bytes {
                    // SAFETY: this message's own bytes.
                    unsafe { here.place(at).add(k).write(pattern(seed, sender, message, k)) };
                }
                let (local, remote) = (here.local(at), there.remote(at));
                let (rung, counted) = (there.remote(signal(sender)), here.local(counter(sender)));
                let n = bytes as u64;
                // SAFETY: all of it is registered, or was.
                let posted = unsafe {
                    match broke {
                        Broke::Nothing => {
                            endpoint.put_signal_counter_remote(local, remote, n, rung, 1, counted, 1)
                        }
                        Broke::Fence => {
                            endpoint.put(local, remote, n).and_then(|_| endpoint.signal_remote(rung, 1))
                        }
                        Broke::Queue => endpoint.put(local, remote, n).and_then(|work| {
                            here.endpoint(queue + 1, &control).signal_remote_with_fence(rung, 1).map(|_| work)
                        }),
                        Broke::Wait => endpoint.put_signal(local, remote, n, rung, 1).and_then(|work| {
                            // The counter's own addition, on the companion, but at once.
                            let sink = here.sink();
                            let add = |_, head: Head| head.fetch_add(counted.looped_back(), 1, sink);
                            here.pair(queue).companion.post::<1>(&control, true, add).map(|_| work)
                        }),
                    }
                };
                // SAFETY: work of this endpoint; a live word of this rank.
                let outcome = posted.and_then(|work| unsafe {
                    match waits {
                        0 => endpoint.wait_local(work),
                        1 if broke == Broke::Nothing => wait_signal(
                            here.place(counter(sender)).cast(),
                            Compare::AtLeast,
                            message as u64 + 1,
                            &control,
                        )
                        .map(drop),
                        _ => Ok(()),
                    }
                });
                if let Err(why) = outcome {
                    errors.borrow_mut().push(why);
                    return;
                }
            }
            // SAFETY: the endpoint is live.
            if let Err(why) = unsafe { endpoint.fence() } {
                errors.borrow_mut().push(why);
            } else if there.word(signal(sender)) != messages as u64 && broke == Broke::Nothing {
                fail(format!("sender {sender}: all is done, but not all signals arrived"));
            }
        }));
        bodies.push(Box::new(move || {
            for message in 0..messages {
                let at = there.place(signal(sender)).cast();
                // SAFETY: a live word of that rank.
                if let Err(why) = unsafe { wait_signal(at, Compare::AtLeast, message as u64 + 1, &control) } {
                    errors.borrow_mut().push(why);
                    return;
                }
                let at = data(sender, message);
                for k in 0..bytes {
                    // SAFETY: this message's own bytes; all run on one real thread.
                    let seen = unsafe { there.place(at).add(k).read() };
                    if seen != pattern(seed, sender, message, k) {
                        return fail(format!(
                            "sender {sender}, message {message}: signalled before byte {k} was there"
                        ));
                    }
                }
            }
        }));
    }
    let mut turns = 0;
    let ended = machine::run(&mut rng, bodies, LIMIT_NS, |now, rng| {
        turns += 1;
        if turns == strikes_at {
            match fault {
                Fault::None => {}
                Fault::LinkDown => there.nic.set_link(false),
                Fault::KeyRevoked => {
                    let _ = there.nic.revoke(&there.region.get());
                }
                Fault::NotReady => there.nic.hold_off(u32::MAX),
                Fault::PeerKilled => fusewire_nic::Nic::lost(&here.nic, 1),
            }
        }
        let first = rng.below(2) as usize;
        let busy = rig.ranks[first].nic.step(now) || rig.ranks[1 - first].nic.step(now);
        for sender in 0..senders {
            let (counted, rung) = (here.word(counter(sender)), there.word(signal(sender)));
            if counted > rung {
                fail(format!("sender {sender}: counter {counted} is ahead of signal {rung}"));
            }
            if rung > messages as u64 {
                fail(format!("sender {sender}: {rung} signals of {messages} were seen"));
            }
        }
        busy
    });
    if !ended {
        fail("it did not end: a wait outlived its deadline".into());
    }
    if fault == Fault::KeyRevoked && turns >= strikes_at {
        rig.register_again(1);
    }
    if fault == Fault::PeerKilled && turns >= strikes_at {
        rig.revive();
    }
    let (wrong, errors) = (wrong.take(), errors.take());
    let lasting = fault != Fault::None;
    let wrong = wrong.or_else(|| {
        (!lasting && broke == Broke::Nothing && !errors.is_empty())
            .then(|| format!("there was no fault, but {errors:?}"))
    });
    Verdict { wrong, errors }
}

fn first_seed() -> u64 {
    let seed = std::env::var("FUSEWIRE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    seed.unwrap_or_else(|| std::process::id().into())
}

fn many(schedules: u64, salt: u64) {
    let (rig, first) = (Rig::new(), first_seed());
    println!("seed {first}: FUSEWIRE_TEST_SEED={first} repeats it");
    let mut failed = 0;
    let mut by_adapter = 0;
    for k in 0..schedules {
        let seed = first.wrapping_add(salt).wrapping_add(k);
        let verdict = play(&rig, seed, Broke::Nothing, true);
        if let Some(wrong) = verdict.wrong {
            panic!("schedule {k} of seed {first}, salt {salt}: {wrong}");
        }
        failed += u64::from(!verdict.errors.is_empty());
        by_adapter += u64::from(verdict.errors.iter().any(|e| matches!(e, Broken::Adapter { .. })));
    }
    println!("{schedules} schedules; {failed} ended with errors, {by_adapter} of them with an adapter's");
    // The faults were really there.
    assert!(failed > schedules / 20 && by_adapter > schedules / 50, "{failed}, {by_adapter}");
}

#[test]
fn schedules_first_half() {
    many(50_000, 0);
}

#[test]
fn schedules_second_half() {
    many(50_000, 1 << 40);
}

/// How many of some schedules without faults notice what is left out.
fn caught(broke: Broke) -> usize {
    let (rig, first) = (Rig::new(), first_seed());
    println!("seed {first}: FUSEWIRE_TEST_SEED={first} repeats it");
    (0..2000).filter(|k| play(&rig, first.wrapping_add(*k), broke, false).wrong.is_some()).count()
}

#[test]
fn a_signal_without_a_fence_is_caught() {
    let n = caught(Broke::Fence);
    assert!(n > 20, "in {n} of 2,000 schedules");
}

#[test]
fn a_signal_on_another_queue_pair_is_caught() {
    let n = caught(Broke::Queue);
    assert!(n > 20, "in {n} of 2,000 schedules");
}

#[test]
fn a_counter_that_does_not_wait_is_caught() {
    let n = caught(Broke::Wait);
    assert!(n > 20, "in {n} of 2,000 schedules");
}

#[test]
fn what_is_whole_is_not_caught() {
    assert_eq!(caught(Broke::Nothing), 0);
}
