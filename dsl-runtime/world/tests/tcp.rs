//! Worlds over TCP, the ranks being threads with a connection each.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fusewire_world::{Error, Kind, Options, PeerError, Rank, Result, Teardown, UniqueId, World};

fn options() -> Options {
    Options::default().with_timeout(Duration::from_secs(5))
}

/// Runs `body` as each of `n` ranks; returns what they return, by rank.
fn ranks<R: Send>(n: usize, options: &Options, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    let id = UniqueId::create_on(Ipv4Addr::LOCALHOST.into()).unwrap();
    std::thread::scope(|scope| {
        let body = &body;
        let run = |rank: Rank| scope.spawn(move || body(World::connect(&id, rank, n, options).unwrap()));
        let threads: Vec<_> = (0..n).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn collectives_of_every_size() {
    for n in [1, 2, 3, 5, 8, 16] {
        for result in ranks(n, &options(), |world| -> Result<()> {
            assert_eq!((world.size(), world.local_size(), world.kind()), (n, n, Kind::Tcp));
            for round in 0..3 {
                let own = vec![world.rank() as u8; world.rank() * 1000 + round];
                for (rank, part) in world.all_gather(&own)?.into_iter().enumerate() {
                    assert_eq!(part, vec![rank as u8; rank * 1000 + round]);
                }
                assert_eq!(world.broadcast_as(n - 1, Some(&world.rank()))?, n - 1);
                world.barrier()?;
                world.send((world.rank() + 1) % n, 7, &[round as u8])?;
                assert_eq!(world.recv((world.rank() + n - 1) % n, 7)?, [round as u8]);
            }
            world.teardown_barrier()
        }) {
            result.unwrap();
        }
    }
}

#[test]
fn a_big_message_passes_and_a_bigger_one_is_refused() {
    let options = options().with_max_message(4 << 20);
    for result in ranks(3, &options, |world| -> Result<()> {
        let all = world.all_gather(&vec![7; 3 << 20])?;
        assert!(all.iter().all(|part| part.len() == 3 << 20));
        let error = world.all_gather(&vec![7; 5 << 20]).unwrap_err();
        assert!(matches!(error, Error::Misuse(_)), "{error}");
        Ok(())
    }) {
        result.unwrap();
    }
}

#[test]
fn a_timeout_names_who_is_missing_and_fails_for_all() {
    let started = Instant::now();
    let errors = ranks(4, &options(), |world| {
        let short = world.with_timeout(Duration::from_millis(300));
        if world.rank() >= 2 {
            std::thread::sleep(Duration::from_millis(if world.rank() == 2 { 600 } else { 900 }));
        }
        let error = short.barrier().unwrap_err();
        // The goodbye must not be what the others hear of.
        std::thread::sleep(Duration::from_millis(1000));
        error
    });
    for (rank, error) in errors.iter().enumerate() {
        let Error::Timeout(timeout) = error else { panic!("rank {rank}: {error}") };
        assert_eq!(timeout.missing, [2, 3], "rank {rank}: {error}");
        assert!(error.to_string().contains("barrier"), "{error}");
    }
    assert!(
        errors.iter().any(|e| e.to_string().contains("ranks 2 and 3 each had not arrived")),
        "{errors:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn ranks_that_never_come_are_named_when_joining() {
    let id = UniqueId::create_on(Ipv4Addr::LOCALHOST.into()).unwrap();
    let short = Options::default().with_timeout(Duration::from_millis(400));
    let error = std::thread::scope(|scope| {
        let other = scope.spawn(|| World::connect(&id, 2, 4, &short).unwrap_err());
        let error = World::connect(&id, 0, 4, &short).unwrap_err();
        drop(other.join());
        error
    });
    let text = error.to_string();
    assert!(text.contains("meeting of 4 ranks") && text.contains("ranks 1 and 3"), "{text}");
}

#[test]
fn a_lost_rank_is_known_to_the_others_at_once() {
    let started = Instant::now();
    ranks(4, &options(), |world| {
        let (tell, told) = mpsc::channel();
        world.on_lost(move |rank, why| tell.send((rank, why.to_owned())).unwrap());
        if world.rank() == 2 {
            // A thread that panics with the last clone in hand ends without a goodbye.
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _world = world;
                panic!("on purpose");
            }));
            assert!(panic.is_err());
            return;
        }
        let error = world.barrier().unwrap_err();
        assert_eq!(error.lost_rank(), Some(2), "{error}");
        assert_eq!(told.recv_timeout(Duration::from_secs(1)).unwrap().0, 2);
        assert_eq!(world.lost(), [2]);
        assert_eq!(world.recv(2, 0).unwrap_err().lost_rank(), Some(2));
        assert_eq!(world.send(2, 0, b"x").unwrap_err().lost_rank(), Some(2));
        assert_eq!(world.exchange_fds(&[]).unwrap_err().lost_rank(), Some(2));
        let rest = world.subgroup(&[0, 1, 3]).unwrap();
        rest.barrier().unwrap();
        world.teardown_barrier().unwrap();
    });
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_notice_reaches_ranks_that_are_doing_something_else() {
    ranks(4, &options(), |world| {
        let (tell, told) = mpsc::channel();
        let listen = |world: &World, topic| {
            let tell = tell.clone();
            world.on_notice(topic, move |rank, text| tell.send((topic, rank, text.to_owned())).unwrap());
        };
        listen(&world, 5);
        let group = (world.rank() > 0).then(|| world.subgroup(&[3, 1, 2]).unwrap());
        group.iter().for_each(|group| listen(group, 6));
        world.barrier().unwrap();
        if world.rank() == 3 {
            world.notify(4, "nobody listens to this").unwrap();
            world.notify(5, "to all\x1b[0m").unwrap();
            group.as_ref().unwrap().notify(6, "to the group").unwrap();
        }
        let next = || told.recv_timeout(Duration::from_secs(10));
        if world.rank() != 3 {
            assert_eq!(next(), Ok((5, 3, "to all\\u{1b}[0m".to_owned())));
            if group.is_some() {
                // Rank 3 is the first of the group.
                assert_eq!(next(), Ok((6, 0, "to the group".to_owned())));
            }
        }
        world.off_notice(5);
        world.barrier().unwrap();
        if world.rank() == 1 {
            world.notify(5, "too late").unwrap();
            group.as_ref().unwrap().notify(6, "behind it").unwrap();
        }
        if let 2 | 3 = world.rank() {
            assert_eq!(next(), Ok((6, 1, "behind it".to_owned())));
        }
        world.teardown_barrier().unwrap();
        assert!(told.try_recv().is_err());
    });
}

#[test]
fn the_loss_of_the_store_is_the_loss_of_its_rank() {
    let id = UniqueId::create_on(Ipv4Addr::LOCALHOST.into()).unwrap();
    let options = options();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let world = World::connect(&id, 1, 2, &options).unwrap();
            world.barrier().unwrap_err()
        });
        let world = World::connect(&id, 0, 2, &options);
        let panic = std::thread::spawn(move || {
            let _world = world;
            panic!("on purpose");
        });
        assert!(panic.join().is_err());
        let error = other.join().unwrap();
        // Which of the two connects first holds the store: either way rank 0 is what is lost.
        assert_eq!(error.lost_rank(), Some(0), "{error}");
    });
}

#[test]
fn a_goodbye_is_no_loss() {
    ranks(3, &options(), |world| {
        if world.rank() == 1 {
            world.send(0, 1, b"last words").unwrap();
            world.leave();
            assert!(matches!(world.barrier().unwrap_err(), Error::Misuse(_)));
            return;
        }
        if world.rank() == 0 {
            assert_eq!(world.recv(1, 1).unwrap(), b"last words");
        }
        let error = world.barrier().unwrap_err();
        assert!(matches!(error, Error::Peer(PeerError::Left { rank: 1, .. })), "{error}");
        let error = world.exchange_fds(&[]).unwrap_err();
        assert!(matches!(error, Error::Peer(PeerError::Left { rank: 1, .. })), "{error}");
        assert!(world.lost().is_empty());
        world.teardown_barrier().unwrap();
    });
}

#[test]
fn teardown_waits_for_the_slow_and_names_the_stuck() {
    ranks(3, &options(), |world| {
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(300));
        }
        let started = Instant::now();
        world.teardown_barrier().unwrap();
        assert!(world.rank() == 1 || started.elapsed() > Duration::from_millis(200));
        if world.rank() == 0 {
            let short = world.with_timeout(Duration::from_millis(200));
            let text = short.teardown_barrier().unwrap_err().to_string();
            assert!(text.contains("teardown_barrier timed out") && text.contains("ranks 1 and 2"), "{text}");
        } else {
            world.recv(0, 9).unwrap();
        }
        if world.rank() == 0 {
            world.send(1, 9, b"").unwrap();
            world.send(2, 9, b"").unwrap();
        }
    });
}

/// A rank that is done with one thing is not taken to be done with another.
#[test]
fn ends_have_names() {
    ranks(3, &options(), |world| {
        let [one, other] = [0, 1].map(|_| world.name_teardown().unwrap());
        assert_ne!(one, other);
        let started = Instant::now();
        match world.rank() {
            // Never comes to the one; for a while to nothing.
            0 => std::thread::sleep(Duration::from_millis(300)),
            _ => {
                let short = world.with_timeout(Duration::from_millis(100));
                let text = short.end(one).unwrap_err().to_string();
                assert!(
                    text.contains("teardown timed out") && text.contains("rank 0 had not arrived"),
                    "{text}"
                );
            }
        }
        assert!(world.teardown(other));
        assert!(started.elapsed() > Duration::from_millis(200) && started.elapsed() < Duration::from_secs(4));
    });
}

/// Each rank waits for the other's first, which is its own second: nobody waits for the deadline, and who cannot know keeps its memory.
#[test]
fn ends_in_opposite_orders_do_not_wait_for_each_other() {
    for _ in 0..20 {
        let started = Instant::now();
        let ended = ranks(2, &options(), |world| {
            let mut names = [0, 1].map(|_| world.name_teardown().unwrap());
            if world.rank() == 1 {
                names.reverse();
            }
            names.map(|name| world.teardown(name))
        });
        assert!(started.elapsed() < Duration::from_secs(4), "{ended:?}");
        // Of each thing, whoever let go second knew that the other was done.
        assert!(ended[0][1] && ended[1][1], "{ended:?}");
    }
}

/// A rank that unwinds says so and goes on: its peers are to hear of the panic.
#[test]
fn an_end_while_unwinding_does_not_wait() {
    struct Ends<'w>(&'w World, Option<Teardown>, Instant);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            assert!(!self.0.teardown(self.1.take().unwrap()), "rank 0 is not done");
            assert!(self.2.elapsed() < Duration::from_secs(2));
        }
    }
    ranks(2, &options(), |world| {
        let name = world.name_teardown().unwrap();
        if world.rank() == 0 {
            world.recv(1, 3).unwrap();
            assert!(world.teardown(name));
        } else {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _ends = Ends(&world, Some(name), Instant::now());
                panic!("on purpose");
            }));
            assert!(panic.is_err());
            world.send(0, 3, b"").unwrap();
        }
    });
}

/// Names are used once and leave nothing behind.
#[test]
fn many_ends() {
    for results in ranks(2, &options(), |world| {
        let rounds = 0..2000;
        rounds.map(|_| world.name_teardown().is_ok_and(|name| world.teardown(name))).collect::<Vec<_>>()
    }) {
        assert!(results.into_iter().all(|done| done));
    }
}

#[test]
fn descriptors_go_over_sockets_between_ranks_of_one_host() {
    for n in [1, 2, 5, 16] {
        ranks(n, &options(), |world| {
            for round in 0..3u64 {
                let count = (world.rank() + round as usize) % 3;
                let files: Vec<_> =
                    (0..count).map(|i| memfd(&format!("{}/{round}/{i}", world.rank()))).collect();
                let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
                let all = world.exchange_fds(&fds).unwrap();
                assert_eq!(all.len(), n);
                for (rank, fds) in all.into_iter().enumerate() {
                    assert_eq!(fds.len(), (rank + round as usize) % 3);
                    for (i, fd) in fds.into_iter().enumerate() {
                        assert_eq!(contents(fd), format!("{rank}/{round}/{i}"));
                    }
                }
            }
        });
    }
}

#[test]
fn more_descriptors_than_one_parcel_takes() {
    ranks(2, &options(), |world| {
        let file = memfd("many");
        let fds = vec![file.as_fd(); 300];
        let all = world.exchange_fds(&fds[..if world.rank() == 0 { 300 } else { 0 }]).unwrap();
        assert_eq!((all[0].len(), all[1].len()), (300, 0));
    });
}

#[test]
fn a_missing_rank_is_named_by_the_exchange_too() {
    ranks(3, &options(), |world| {
        if world.rank() != 2 {
            let short = world.with_timeout(Duration::from_millis(200));
            let text = short.exchange_fds(&[]).unwrap_err().to_string();
            assert!(
                text.contains("exchange_fds timed out") && text.contains("rank 2 had not arrived"),
                "{text}"
            );
        }
        world.barrier().unwrap();
    });
}

#[test]
fn a_deadline_that_never_comes_is_no_panic() {
    let mut options = Options::default().with_timeout(Duration::MAX).with_silence(Some(Duration::MAX));
    options.heartbeat = Duration::MAX;
    ranks(2, &options, |world| {
        world.barrier().unwrap();
        world.with_timeout(Duration::MAX).exchange_fds(&[]).unwrap();
        world.send(1 - world.rank(), 0, b"x").unwrap();
        world.recv(1 - world.rank(), 0).unwrap();
        world.teardown_barrier().unwrap();
    });
    World::single().unwrap().with_timeout(Duration::MAX).barrier().unwrap();
}

fn memfd(text: &str) -> std::fs::File {
    use std::io::Write;
    let fd = rustix::fs::memfd_create("fusewire-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = std::fs::File::from(fd);
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn contents(fd: std::os::fd::OwnedFd) -> String {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::from(fd);
    let mut text = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut text, 0).unwrap();
    String::from_utf8(text).unwrap()
}
