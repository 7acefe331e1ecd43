//! Waits of every transport that a program ends: on threads, in processes, beside `renew` and `close`.

use fusewire_device::group::Thread;
use fusewire_device::ops::Line;
use fusewire_device::wait::{Flow, Stopped, Watch, operation};
use fusewire_transports::host::{AbortHandle, Collective, Cut, Error, Fault, Operation, Options, Result};
use fusewire_transports::ibgda::IbgdaOptions;
use fusewire_transports::rdma::Fabric;
use fusewire_transports::{HostIb, HostIbOptions, Ibgda, Shm, ShmMesh, Transport};
use fusewire_world::World;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Nothing here may run into it.
const DEADLINE: Duration = Duration::from_secs(60);
/// Far below it, for a machine that is busy.
const SOON: Duration = Duration::from_secs(10);

fn options() -> Options {
    Options::per_peer(64 << 10).ll128_channels(0).deadline(DEADLINE)
}

/// What a block does that waits for a signal of `peer`.
fn wait(transport: &impl Transport, peer: usize) -> Flow {
    // SAFETY: the transport outlives this, and nothing else runs on it.
    let (ops, control) = (unsafe { transport.ops() }, transport.link().control(None));
    // SAFETY: words of the live transport.
    let watch = unsafe { Watch::begin(&Thread, control, transport.rank() as u32, 0) };
    watch.enter(&Thread)?;
    watch.until_line(&Thread, &ops, peer as u32, Line::User(0), 1, operation::WAIT)
}

#[track_caller]
fn fault(outcome: Result<()>) -> Fault {
    match outcome {
        Err(Error::Fault(fault)) => *fault,
        other => panic!("a fault, not {other:?}"),
    }
}

#[track_caller]
fn aborted(transport: &impl Transport, by: usize, why: &str) {
    let fault = fault(transport.check());
    assert_eq!((fault.rank, fault.reader), (by, transport.rank()), "{fault}");
    assert_eq!(fault.operation, Some(Operation::Aborted { reason: why.to_owned() }), "{fault}");
}

/// Returns once the word of an abort has come.
fn told(transport: &impl Transport) {
    let start = Instant::now();
    while transport.check().is_ok() {
        assert!(start.elapsed() < SOON, "no word of an abort");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rank 0 never comes. Rank 1 waits for it, and rank 2 for rank 1; another thread of rank 1 ends both.
fn a_third_thread_ends_all_waits<T: Transport>(meet: impl Fn(&World) -> Result<T> + Sync) {
    let ranks = World::threads(3, |world| {
        let transport = meet(&world).unwrap();
        let start = Instant::now();
        let abort = transport.abort_handle();
        std::thread::scope(|scope| {
            if world.rank() == 1 {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(50));
                    abort.abort("rank 0 is late").unwrap();
                });
            }
            if world.rank() > 0 {
                assert_eq!(wait(&transport, world.rank() - 1), Err(Stopped));
                assert!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
            } else {
                told(&transport);
            }
        });
        aborted(&transport, 1, "rank 0 is late");
        let text = transport.check().unwrap_err().to_string();
        assert!(text.contains("rank 1 aborted") && text.contains("rank 0 is late"), "{text}");
        assert_eq!(text.contains(&format!("rank {} was stopped by rank 1", world.rank())), world.rank() != 1);
        // Poisoned until it is renewed, as after any fault.
        assert_eq!(wait(&transport, (world.rank() + 1) % 3), Err(Stopped));
        transport.renew().unwrap();
        transport.check().unwrap();
        world.barrier().unwrap();
        start.elapsed()
    });
    println!("{:?}", ranks.unwrap());
}

#[test]
fn shm() {
    a_third_thread_ends_all_waits(|world| Shm::rendezvous(world, options()));
}

/// Who finds out behind an abort that launches differ says nothing of its own, and queues nothing.
#[test]
fn what_differs_behind_an_abort_does_not_go() {
    let ranks = World::threads(2, |world| {
        let transport = Shm::rendezvous(&world, options()).unwrap();
        let (link, first) = (transport.link(), world.rank() == 0);
        let note = |digest| {
            let launch = Collective { digest, launches: 1, ..Collective::default() };
            link.note("kernel", ["", ""], Some(1), Cut::default(), Some(&launch), |_| "")
        };
        assert!(note(1).unwrap());
        if first {
            assert!(note(2).unwrap());
            transport.abort_handle().abort("enough").unwrap();
        }
        world.barrier().unwrap();
        told(&transport);
        if !first {
            assert!(!note(3).unwrap());
            assert!(
                !note(4).unwrap(),
                "there is none to compare it with, but it comes behind one that differed"
            );
        }
        aborted(&transport, 0, "enough");
        transport.renew().unwrap();
        if first {
            assert!(note(5).unwrap());
        }
        world.barrier().unwrap();
        if !first {
            let fault = fault(note(6).map(drop));
            assert!(matches!(fault.operation, Some(Operation::Disagreed { .. })), "{fault}");
            assert!(!note(7).unwrap(), "it comes behind one that was refused");
        }
        world.barrier().unwrap();
    });
    ranks.unwrap();
}

fn ibgda_options() -> IbgdaOptions {
    IbgdaOptions { transport: options(), ..IbgdaOptions::new(64 << 10) }
}

#[test]
fn ibgda() {
    a_third_thread_ends_all_waits(|world| Ibgda::emulated(world, ibgda_options()));
}

#[test]
fn host_ib() {
    let how = HostIbOptions::default().fabric(Fabric::Emulated);
    a_third_thread_ends_all_waits(|world| HostIb::rendezvous_with(world, options(), &how));
}

/// Rank 2 in a domain of its own: its wait goes over the adapter, that of rank 1 does not.
#[test]
fn mesh() {
    a_third_thread_ends_all_waits(|world| {
        let nic = std::sync::Arc::new(fusewire_nic::Emulated::new(Default::default())?);
        ShmMesh::rendezvous(world, world.rank() as u64 / 2, nic, ibgda_options())
    });
}

#[test]
fn the_first_of_several_counts() {
    let ranks = World::threads(2, |world| {
        let transport = Shm::rendezvous(&world, options()).unwrap();
        if world.rank() == 0 {
            for why in ["first", "second"] {
                transport.abort(why).unwrap();
                aborted(&transport, 0, "first");
            }
        }
        told(&transport);
        if world.rank() == 1 {
            transport.abort("third").unwrap();
        }
        world.barrier().unwrap();
        aborted(&transport, 0, "first");
        transport.renew().unwrap();
        // Both at once: each rank names one of them, and its own wait ends.
        transport.abort(&world.rank().to_string()).unwrap();
        assert_eq!(wait(&transport, 1 - world.rank()), Err(Stopped));
        let fault = fault(transport.check());
        assert_eq!(fault.operation, Some(Operation::Aborted { reason: fault.rank.to_string() }));
        // Not within a character.
        world.barrier().unwrap();
        transport.renew().unwrap();
        if world.rank() == 0 {
            transport.abort(&"é".repeat(5000)).unwrap();
        }
        told(&transport);
        aborted(&transport, 0, &"é".repeat(512));
    });
    ranks.unwrap();
}

/// Whatever meets a `renew` stops all ranks or none of them: no rank is left to wait for one that has stopped.
#[test]
fn beside_renew() {
    let outcomes = World::threads(3, |world| {
        let transport = Shm::rendezvous(&world, options()).unwrap();
        let mut stopped = 0;
        for round in 0..400u64 {
            std::thread::scope(|scope| {
                if world.rank() == 1 {
                    let abort = transport.abort_handle();
                    scope.spawn(move || {
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_micros(7 * (round % 50)) {}
                        abort.abort("now").unwrap();
                    });
                }
                transport.renew().unwrap();
            });
            let is_stopped = world.broadcast_as(1, Some(&transport.check().is_err())).unwrap();
            if is_stopped {
                told(&transport);
                aborted(&transport, 1, "now");
                stopped += 1;
            } else {
                std::thread::sleep(Duration::from_micros(300));
                transport.check().unwrap();
            }
            world.barrier().unwrap();
        }
        stopped
    });
    println!("{:?} of 400 came behind the `renew`", outcomes.unwrap());
}

#[test]
fn beside_close_and_behind_it() {
    let ranks = World::threads(2, |world| {
        for round in 0..20u64 {
            let transport = Shm::rendezvous(&world, options()).unwrap();
            let abort = transport.abort_handle();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for nth in 0..10 {
                        std::thread::sleep(Duration::from_micros(nth * round));
                        abort.abort("beside close").unwrap();
                    }
                });
                transport.close().unwrap();
            });
            abort.abort("gone").unwrap();
        }
        let handle: AbortHandle = Ibgda::emulated(&world, ibgda_options()).unwrap().abort_handle();
        handle.abort("gone").unwrap();
        let transport = Shm::rendezvous(&world, options()).unwrap();
        let (abort, link) = (transport.abort_handle(), std::sync::Arc::clone(transport.link()));
        transport.close().unwrap();
        abort.abort("closed").unwrap();
        link.check().unwrap();
    });
    ranks.unwrap();
}

const RANK: &str = "FUSEWIRE_TEST_ABORT_RANK";

/// A rank's process; nothing when it runs as a test.
#[test]
fn rank_process() {
    let Ok(rank) = std::env::var(RANK) else { return };
    let world = World::from_env().unwrap();
    assert_eq!(world.rank().to_string(), rank);
    let transport = Shm::rendezvous(&world, options()).unwrap();
    if world.rank() == 0 {
        let abort = transport.abort_handle();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            abort.abort("a checkpoint failed").unwrap();
        });
    }
    assert_eq!(wait(&transport, (world.rank() + 1) % world.size()), Err(Stopped));
    aborted(&transport, 0, "a checkpoint failed");
    world.teardown_barrier().unwrap();
}

#[test]
fn processes() {
    let folder = std::env::temp_dir().join(format!("fusewire-aborts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let start = Instant::now();
    let rank = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rank_process"])
            .env(RANK, rank.to_string())
            .env("FUSEWIRE_RANK", rank.to_string())
            .env("FUSEWIRE_WORLD_SIZE", "3")
            .env("FUSEWIRE_FILE", folder.join("meet"))
            .spawn()
            .unwrap()
    };
    let ranks: Vec<Child> = (0..3).map(rank).collect();
    let ends: Vec<_> = ranks.into_iter().map(|mut rank| rank.wait().unwrap()).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
    assert!(start.elapsed() < DEADLINE / 2, "it took {:?}", start.elapsed());
}
