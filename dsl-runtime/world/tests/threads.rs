//! Worlds of threads.

use std::time::{Duration, Instant};

use fusewire_world::{Error, Kind, PeerError, Result, World};

const SIZES: [usize; 6] = [1, 2, 3, 5, 8, 16];

fn all<R: std::fmt::Debug>(results: Result<Vec<Result<R>>>) -> Vec<R> {
    results.unwrap().into_iter().map(Result::unwrap).collect()
}

#[test]
fn every_rank_knows_its_place() {
    for n in SIZES {
        let ranks = World::threads(n, |world| {
            assert_eq!((world.size(), world.local_size(), world.kind()), (n, n, Kind::Threads));
            assert_eq!(world.local_rank(), world.rank());
            assert!((0..n).all(|peer| world.is_local(peer)) && !world.is_local(n));
            assert_eq!(world.peer_host_id(n - 1), Some(world.host_id()));
            world.rank()
        });
        assert_eq!(ranks.unwrap(), (0..n).collect::<Vec<_>>());
    }
}

#[test]
fn collectives_of_every_size() {
    for n in SIZES {
        all(World::threads(n, |world| -> Result<()> {
            for round in 0..5 {
                let own = vec![world.rank() as u8; world.rank() * 3 + round];
                for (rank, part) in world.all_gather(&own)?.into_iter().enumerate() {
                    assert_eq!(part, vec![rank as u8; rank * 3 + round]);
                }
                let squares = world.all_gather_as(&(world.rank() * world.rank(), "x".to_owned()))?;
                assert_eq!(squares, (0..n).map(|r| (r * r, "x".to_owned())).collect::<Vec<_>>());
                let root = round % n;
                assert_eq!(world.broadcast(root, &[world.rank() as u8])?, [root as u8]);
                let value = (world.rank() == root).then_some(41 + round);
                assert_eq!(world.broadcast_as(root, value.as_ref())?, 41 + round);
                world.barrier()?;
            }
            world.teardown_barrier()
        }));
    }
}

#[test]
fn messages_keep_order_and_tags_apart() {
    all(World::threads(5, |world| -> Result<()> {
        let (n, me) = (world.size(), world.rank());
        let (next, previous) = ((me + 1) % n, (me + n - 1) % n);
        for i in 0..10u8 {
            world.send(next, 1, &[i])?;
            world.send(next, 2, &[i, i])?;
        }
        for i in 0..10u8 {
            assert_eq!(world.recv(previous, 2)?, [i, i]);
        }
        for i in 0..10u8 {
            assert_eq!(world.recv(previous, 1)?, [i]);
        }
        world.send(me, 3, b"self")?;
        assert_eq!(world.recv(me, 3)?, b"self");
        Ok(())
    }));
}

#[test]
fn a_panic_names_its_rank_and_hangs_nobody() {
    let started = Instant::now();
    let failures = std::sync::Mutex::new(Vec::new());
    let error = World::threads(5, |world| {
        if world.rank() == 3 {
            panic!("out of cheese");
        }
        let error = world.barrier().unwrap_err();
        failures.lock().unwrap().push(error.lost_rank());
        assert_eq!(world.lost(), [3]);
        assert!(world.all_gather(b"later").unwrap_err().to_string().contains("out of cheese"));
        world.teardown_barrier().unwrap();
    });
    match error.unwrap_err() {
        Error::Peer(PeerError::Panicked { rank: 3, message, .. }) => assert_eq!(message, "out of cheese"),
        other => panic!("{other}"),
    }
    assert_eq!(failures.into_inner().unwrap(), [Some(3); 4]);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_world_is_cheap_to_hand_about() {
    fn check<T: Clone + Send + Sync + 'static>(_: &T) {}
    let world = World::single().unwrap();
    check(&world);
    assert_eq!((world.rank(), world.size(), world.kind()), (0, 1, Kind::Single));
    assert_eq!(world.all_gather(b"x").unwrap(), [b"x"]);
    assert_eq!(world.exchange_fds(&[]).unwrap().len(), 1);
    world.teardown_barrier().unwrap();
    assert!(World::threads(0, |_| ()).is_err());
}
