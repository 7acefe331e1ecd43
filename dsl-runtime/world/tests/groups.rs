//! Subgroups, agreement, and a bootstrap of the caller's.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

mod common;

use common::{memfd_page, page_bytes};
use fusewire_world::{Bootstrap, Error, Kind, Options, PeerError, Rank, Result, World};

fn quick() -> Options {
    Options::default().with_timeout(Duration::from_millis(300))
}

#[test]
fn groups_are_renumbered_and_apart() {
    World::threads(6, |world| {
        let me = world.rank();
        let halves = world.split((me % 2) as u64, (10 - me) as u64).unwrap();
        assert_eq!(halves.size(), 3);
        let expected: Vec<_> = (0..6).rev().filter(|r| r % 2 == me % 2).collect();
        assert_eq!(halves.all_gather_as(&me).unwrap(), expected);
        assert_eq!(expected[halves.rank()], me);
        assert_eq!(halves.world_rank(0), Some(expected[0]));
        assert_eq!((halves.local_size(), halves.local_rank()), (3, halves.rank()));

        // The same tag in the world and in a group are two.
        let peer = (halves.rank() + 1) % 3;
        halves.send(peer, 5, b"group").unwrap();
        world.send(expected[peer], 5, b"world").unwrap();
        let from = (halves.rank() + 2) % 3;
        assert_eq!(world.recv(expected[from], 5).unwrap(), b"world");
        assert_eq!(halves.recv(from, 5).unwrap(), b"group");

        // The same ranks in another order are another group, the whole world too.
        let turned: Vec<Rank> = (0..6).rev().collect();
        let turned = world.subgroup(&turned).unwrap();
        assert_eq!(turned.rank(), 5 - me);
        assert_eq!(turned.all_gather_as(&me).unwrap(), [5, 4, 3, 2, 1, 0]);
        turned.agree("x", &[("y", "z".to_owned())]).unwrap();
        turned.teardown_barrier().unwrap();

        let page = memfd_page();
        let given = halves.exchange_fds(&[page.as_fd()]).unwrap();
        page_bytes(&given[0][0])[me].store(1, Ordering::SeqCst);
        halves.barrier().unwrap();
        if halves.rank() == 0 {
            let page = page_bytes(&page);
            let marked: Vec<_> = (0..6).filter(|&r| page[r].load(Ordering::SeqCst) == 1).collect();
            assert_eq!(marked, expected.iter().rev().copied().collect::<Vec<_>>());
        }
    })
    .unwrap();
}

/// Groups of the same members, of which two threads of each rank use one each, in no order among them.
fn apart(world: &World) {
    let me = world.rank();
    let pairs = world.split((me / 2) as u64, 0).unwrap();
    let groups = [
        pairs.clone(),
        world.split((me / 2) as u64, 0).unwrap(),
        world.split(0, 0).unwrap(),
        world.split(0, 0).unwrap(),
        world.split(0, 0).unwrap().split(0, 0).unwrap(),
        pairs.split(0, 0).unwrap(),
    ];
    std::thread::scope(|scope| {
        for (k, group) in groups.iter().enumerate() {
            scope.spawn(move || {
                let (n, place) = (group.size(), group.rank());
                let peer = |distance| (place + distance) % n;
                for i in 0..20 {
                    // Threads of ranks get ahead of each other.
                    std::thread::sleep(Duration::from_micros(((me + k + i) % 3 * 100) as u64));
                    assert_eq!(group.all_gather_as(&(k, i)).unwrap(), vec![(k, i); n]);
                    group.send(peer(1), 0, &[k as u8, i as u8]).unwrap();
                    assert_eq!(group.recv(peer(n - 1), 0).unwrap(), [k as u8, i as u8]);
                }
                let page = memfd_page();
                let pages = group.exchange_fds(&[page.as_fd()]).unwrap();
                page_bytes(&pages[peer(1)][0])[k].store(1 + k as u8, Ordering::SeqCst);
                group.barrier().unwrap();
                assert_eq!(page_bytes(&page)[k].load(Ordering::SeqCst), 1 + k as u8);
                group.subgroup(&[0, 1]).map(|two| two.teardown_barrier().unwrap()).unwrap_or_default();
                group.teardown_barrier().unwrap();
            });
        }
    });
}

#[test]
fn splits_of_the_same_members_are_apart() {
    World::threads(4, |world| apart(&world)).unwrap();
    let id = fusewire_world::UniqueId::create_on(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let id = &id;
            scope.spawn(move || apart(&World::connect(id, rank, 4, &Options::default()).unwrap()));
        }
    });
}

#[test]
fn splits_go_on_after_one_that_some_ranks_did_not_ask_for() {
    World::threads(3, |world| {
        let refused = match world.rank() {
            0 => world.split(0, 0).map(drop),
            1 => world.barrier(),
            _ => world.all_gather_as(&(0u64, 0u64)).map(drop),
        };
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("rank 0 has `split`"), "{text}");
        let group = world.split(0, 0).unwrap();
        assert_eq!(group.all_gather_as(&group.rank()).unwrap(), [0, 1, 2]);
    })
    .unwrap();
}

#[test]
fn groups_that_cannot_be_are_refused() {
    World::threads(3, |world| {
        for (ranks, why) in
            [(&[0, 1, 2, 3][..], "no rank 3"), (&[0, 1, 2, 1][..], "named twice"), (&[][..], "not in")]
        {
            let text = world.subgroup(ranks).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        }
        if world.rank() == 2 {
            assert!(world.subgroup(&[0, 1]).unwrap_err().to_string().contains("rank 2 is not in the group"));
        }
    })
    .unwrap();
}

#[test]
fn agreement_names_field_ranks_and_values() {
    let differ = |fields: fn(Rank) -> Vec<(&'static str, String)>| {
        let errors = World::threads(4, |world| match world.agree("all_to_all", &fields(world.rank())) {
            Err(Error::Peer(PeerError::Disagreement(what))) => what.to_string(),
            other => panic!("{other:?}"),
        });
        let errors = errors.unwrap();
        assert!(errors.iter().all(|error| *error == errors[0]), "every rank hears the same: {errors:?}");
        assert!(errors[0].starts_with("the ranks disagree on `all_to_all`: "), "{}", errors[0]);
        errors[0].clone()
    };
    let text = differ(|rank| vec![("slots", (if rank == 3 { 8 } else { 4 }).to_string())]);
    assert!(text.contains("rank 3 has slots `8`, ranks 0, 1 and 2 have `4`"), "{text}");
    let text = differ(|rank| if rank == 0 { vec![] } else { vec![("version", "1".to_owned())] });
    assert!(text.contains("rank 0 has no version, ranks 1, 2 and 3 have `1`"), "{text}");
    let text = differ(|rank| {
        let wire = if rank < 2 { "f32" } else { "bf16" };
        vec![("wire type", wire.to_owned()), ("same", "1".to_owned()), ("block", rank.to_string())]
    });
    assert!(text.contains("ranks 2 and 3 have wire type `bf16`, ranks 0 and 1 have `f32`; "), "{text}");
    assert!(text.contains("rank 3 has block `3`, rank 2 has `2`, rank 1 has `1`, rank 0 has `0`"), "{text}");
    assert!(!text.contains("same"), "{text}");
}

#[test]
fn ranks_in_different_collectives_are_told_so() {
    let errors = World::threads(3, |world| {
        if world.rank() == 1 { world.barrier().unwrap_err() } else { world.all_gather(b"x").unwrap_err() }
            .to_string()
    });
    for text in errors.unwrap() {
        assert!(text.contains("rank 1 has called `barrier`, ranks 0 and 2 have `all_gather`"), "{text}");
    }
    let errors =
        World::threads(2, |world| world.agree(["a", "b"][world.rank()], &[]).unwrap_err().to_string());
    assert!(errors.unwrap()[0].contains("rank 1 has topic `b`, rank 0 has `a`"));
}

#[test]
fn threads_time_out_by_name_too() {
    let errors = World::threads_with(3, &quick(), |world| {
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(700));
            return None;
        }
        Some(world.barrier().unwrap_err().to_string())
    });
    for text in errors.unwrap().into_iter().flatten() {
        assert!(text.contains("rank 1 had not arrived"), "{text}");
    }
}

#[test]
fn threads_share_pages() {
    for n in [1, 2, 3, 5, 8, 16] {
        World::threads(n, |world| {
            let page = memfd_page();
            for pages in (0..2).map(|_| world.exchange_fds(&[page.as_fd(), page.as_fd()]).unwrap()) {
                for (rank, fds) in pages.iter().enumerate() {
                    assert_eq!(fds.len(), 2, "of rank {rank}");
                    page_bytes(&fds[0])[world.rank()].fetch_add(1, Ordering::SeqCst);
                }
            }
            world.barrier().unwrap();
            assert!(page_bytes(&page)[..n].iter().all(|byte| byte.load(Ordering::SeqCst) == 2));
        })
        .unwrap();
    }
}

/// What a caller with an all-gather and messages of their own would write.
struct Own {
    rank: Rank,
    shared: Arc<Shared>,
}

/// (from, to, tag)
type Way = (Rank, Rank, u64);

struct Shared {
    parts: Mutex<Vec<Vec<u8>>>,
    turn: Barrier,
    mail: Mutex<HashMap<Way, Vec<Vec<u8>>>>,
}

impl Shared {
    fn new(n: usize) -> Arc<Self> {
        let parts = Mutex::new(vec![Vec::new(); n]);
        Arc::new(Self { parts, turn: Barrier::new(n), mail: Mutex::default() })
    }
}

/// The three methods that are enough.
struct Bare(Own);

impl Bootstrap for Bare {
    fn rank(&self) -> Rank {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn all_gather(&self, bytes: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.0.all_gather(bytes, deadline)
    }
}

#[test]
fn an_all_gather_is_enough_but_for_groups_and_messages() {
    let shared = Shared::new(2);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let own = Own { rank, shared: Arc::clone(&shared) };
            scope.spawn(move || {
                let world = World::with_bootstrap(Box::new(Bare(own))).unwrap();
                assert_eq!(world.broadcast(1, &[rank as u8]).unwrap(), [1]);
                assert_eq!(world.exchange_fds(&[memfd_page().as_fd()]).unwrap()[1 - rank].len(), 1);
                let turned = world.subgroup(&[1, 0]).unwrap();
                for error in [turned.barrier().unwrap_err(), world.send(0, 1, b"").unwrap_err()] {
                    assert!(error.to_string().contains("implement `Bootstrap::send`"), "{error}");
                }
                world.teardown_barrier().unwrap();
            });
        }
    });
}

impl Bootstrap for Own {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> usize {
        self.shared.parts.lock().unwrap().len()
    }
    fn all_gather(&self, bytes: &[u8], _deadline: Instant) -> Result<Vec<Vec<u8>>> {
        self.shared.parts.lock().unwrap()[self.rank] = bytes.to_vec();
        self.shared.turn.wait();
        let all = self.shared.parts.lock().unwrap().clone();
        self.shared.turn.wait();
        Ok(all)
    }
    fn send(&self, peer: Rank, tag: u64, bytes: &[u8], _deadline: Instant) -> Result<()> {
        self.shared.mail.lock().unwrap().entry((self.rank, peer, tag)).or_default().push(bytes.to_vec());
        Ok(())
    }
    fn recv(&self, peer: Rank, tag: u64, deadline: Instant) -> Result<Vec<u8>> {
        while Instant::now() < deadline {
            if let Some(queue) = self.shared.mail.lock().unwrap().get_mut(&(peer, self.rank, tag))
                && !queue.is_empty()
            {
                return Ok(queue.remove(0));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(Error::timeout("recv", Duration::ZERO, vec![peer]))
    }
}

#[test]
fn a_bootstrap_of_ones_own() {
    for n in [1, 2, 5] {
        let shared = Shared::new(n);
        std::thread::scope(|scope| {
            for rank in 0..n {
                let own = Own { rank, shared: Arc::clone(&shared) };
                scope.spawn(move || {
                    let world = World::with_bootstrap_and(Box::new(own), &Options::default()).unwrap();
                    assert_eq!((world.kind(), world.rank(), world.local_size()), (Kind::Custom, rank, n));
                    assert_eq!(world.all_gather_as(&rank).unwrap(), (0..n).collect::<Vec<_>>());
                    world.agree("topic", &[("field", "value".to_owned())]).unwrap();
                    let page = memfd_page();
                    let pages = world.exchange_fds(&[page.as_fd()]).unwrap();
                    page_bytes(&pages[(rank + 1) % n][0])[0].store(7, Ordering::SeqCst);
                    world.barrier().unwrap();
                    assert_eq!(page_bytes(&page)[0].load(Ordering::SeqCst), 7);
                    if rank != 1 {
                        let members: Vec<_> = (0..n).filter(|&r| r != 1).collect();
                        let group = world.subgroup(&members).unwrap();
                        assert_eq!(group.all_gather_as(&rank).unwrap(), members);
                        group.teardown_barrier().unwrap();
                    }
                    // Which cannot tell groups apart.
                    let again = world.split(0, 0).unwrap();
                    assert_eq!(again.all_gather_as(&rank).unwrap(), (0..n).collect::<Vec<_>>());
                    again.teardown_barrier().unwrap();
                    world.teardown_barrier().unwrap();
                    assert!(world.lost().is_empty());
                });
            }
        });
    }
}

#[test]
fn clones_and_groups_work_from_several_threads() {
    World::threads(3, |world| {
        let other = world.subgroup(&[2, 1, 0]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|_| other.barrier().unwrap()));
            (0..50).for_each(|i| assert_eq!(world.all_gather_as(&i).unwrap(), [i; 3]));
        });
    })
    .unwrap();
}
