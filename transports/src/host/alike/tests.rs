use super::*;
use std::sync::Arc;

const PROTOCOLS: Protocols = |number| ["by Simple", "by LL128"][usize::from(number)];

fn ring() -> Arc<Vec<AtomicU64>> {
    Arc::new((0..RING as usize * WORDS).map(|_| AtomicU64::new(0)).collect())
}

fn launch(digest: u64) -> Collective {
    Collective { digest, launches: 1, ..Collective::default() }
}

/// A rank with its own ring and a peer's.
struct Side {
    count: Count,
    own: Arc<Vec<AtomicU64>>,
    other: Arc<Vec<AtomicU64>>,
}

impl Side {
    fn pair() -> [Side; 2] {
        let [a, b] = [ring(), ring()];
        let side = |own: &Arc<Vec<_>>, other: &Arc<Vec<_>>| Side {
            count: Count::default(),
            own: Arc::clone(own),
            other: Arc::clone(other),
        };
        [side(&a, &b), side(&b, &a)]
    }

    fn launch(&mut self, launch: &Collective) -> Option<Differs> {
        self.count.launch(launch, Ring(&self.own), [(7, Ring(&self.other))].into_iter())
    }

    fn differs(&mut self, with: &Collective) -> bool {
        self.launch(with).is_some()
    }
}

#[test]
fn what_stands_in_a_ring_is_what_was_launched() {
    let cut = Cut { parts: 32, cols: 160, first: 8 };
    let all = Collective { digest: 1, launches: 1, kernel: 9, elements: 77, root: Some(0), protocol: 3, cut };
    for launch in [all, Collective { root: None, ..all }, Collective { launches: 12, ..launch(5) }] {
        assert_eq!(Collective::of(launch.words()), launch);
    }
}

#[test]
fn the_second_of_two_that_differ_sees_it() {
    let [mut one, mut other] = Side::pair();
    for number in 1..3 * RING {
        assert!(!one.differs(&launch(number)));
        assert!(!other.differs(&launch(number)), "{number}");
    }
    assert!(!one.differs(&launch(1)));
    let found = other.launch(&launch(2));
    assert_eq!(found, Some(Differs { number: 3 * RING, peer: 7, theirs: launch(1) }));
}

#[test]
fn a_rank_that_is_far_ahead_is_not_compared_with_and_one_that_is_less_is() {
    let [mut one, mut other] = Side::pair();
    for number in 0..=RING {
        assert!(!one.differs(&launch(number)));
    }
    // Its place has another launch.
    assert!(!other.differs(&launch(1000)));
    assert!(!other.differs(&launch(1)));
    assert!(other.differs(&launch(1000)));
}

#[test]
fn replays_keep_numbers_in_step_and_are_compared_with_replays() {
    let [mut one, mut other] = Side::pair();
    let graph = Collective::default().then(&launch(4)).then(&launch(5)).then(&launch(6));
    assert_eq!(graph.launches, 3);
    assert_eq!(Collective::default().then(&launch(4)), launch(4));
    assert_ne!(Collective::default().then(&launch(5)).then(&launch(4)).then(&launch(6)).digest, graph.digest);
    // However they are nested.
    let two = Collective::default().then(&launch(5)).then(&launch(6));
    assert_eq!(Collective::default().then(&launch(4)).then(&two), graph);
    // Three by one replay against one by one, in both orders.
    assert!(!one.differs(&graph));
    [4, 5, 6, 7].into_iter().for_each(|digest| assert!(!other.differs(&launch(digest))));
    assert!(!one.differs(&launch(7)));
    [4, 5, 6].into_iter().for_each(|digest| assert!(!one.differs(&launch(digest))));
    assert!(!other.differs(&graph) && !other.differs(&launch(8)) && !one.differs(&launch(8)));
    assert!(!one.differs(&graph));
    assert!(other.differs(&Collective::default().then(&launch(4)).then(&launch(6)).then(&launch(5))));
    // A graph of none counts for nothing.
    assert!(!one.differs(&Collective::default()));
    assert!(!one.differs(&launch(9)) && !other.differs(&launch(9)));
}

#[test]
fn what_was_taken_back_is_forgotten_and_what_others_replay_is_not_compared() {
    let [mut one, mut other] = Side::pair();
    assert!(!one.differs(&launch(1)));
    one.count.take_back(&launch(1), Ring(&one.own));
    assert!(!other.differs(&launch(2)) && !one.differs(&launch(2)));
    let graph = launch(3).then(&launch(4));
    assert!(!one.differs(&graph));
    one.count.take_back(&graph, Ring(&one.own));
    assert!(!other.differs(&launch(5)) && !one.differs(&launch(5)));
    // Behind a `renew` all is gone.
    one.count.clear();
    Ring(&one.own).clear();
    Ring(&other.own).clear();
    other.count.clear();
    assert!(!one.differs(&launch(3)) && !other.differs(&launch(3)));
    one.count.has_unseen();
    assert!(!one.differs(&launch(4)) && !other.differs(&launch(5)) && !one.differs(&launch(6)));
    one.count.clear();
    other.count.clear();
    [&one.own, &other.own].into_iter().for_each(|own| Ring(own).clear());
    assert!(!one.differs(&launch(4)) && !other.differs(&launch(5)), "graphs of others outlast a renew");
}

/// Without the fence both may look before either's launch is there.
#[test]
fn of_two_that_launch_at_once_one_sees_the_other() {
    const TIMES: u64 = 100_000;
    let met = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let threads = Side::pair().into_iter().enumerate().map(|(index, mut side)| {
        let met = Arc::clone(&met);
        std::thread::spawn(move || {
            let differs = |number| {
                // They meet, and go on as closely as can be: one a little later, in turn.
                met[index].store(number, Ordering::Release);
                let mut spins = 0u32;
                while met[1 - index].load(Ordering::Acquire) < number {
                    spins += 1;
                    if spins.is_multiple_of(1000) {
                        std::thread::yield_now();
                    }
                    std::hint::spin_loop();
                }
                let late = number.is_multiple_of(2) == (index == 0);
                (0..if late { number / 2 % 16 } else { 0 }).for_each(|_| std::hint::spin_loop());
                side.differs(&launch(index as u64))
            };
            (1..=TIMES).map(differs).collect::<Vec<_>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    let [one, other] = <[_; 2]>::try_from(threads).unwrap().map(|thread| thread.join().unwrap());
    let unseen = one.into_iter().zip(other).filter(|(one, other)| !one && !other).count();
    assert_eq!(unseen, 0, "launches of {TIMES} that neither saw");
}

#[test]
fn whoever_looks_meanwhile_finds_no_half_of_a_launch() {
    let words = ring();
    let writer = Arc::clone(&words);
    let stop = Arc::new(AtomicU64::new(0));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut number = 0;
        while stopped.load(Ordering::Relaxed) == 0 {
            // Of one place, again and again.
            number += RING;
            Ring(&writer).write(number, &Collective { elements: number, ..launch(number) });
        }
    });
    let (mut number, mut seen) = (RING, 0);
    while seen < 1000 {
        match Ring(&words).other(number, &launch(1)) {
            Some(theirs) => {
                assert_eq!((theirs.digest, theirs.elements), (number, number));
                seen += 1;
            }
            None => number = Ring(&words).0[0].load(Ordering::Relaxed).max(RING),
        }
    }
    stop.store(1, Ordering::Relaxed);
    thread.join().unwrap();
}

#[test]
fn what_differs_is_told_field_by_field() {
    let kernels = Kernels::default();
    let agreed =
        |kernel: &str, of: &str| vec![("kernel", format!("`{kernel}`")), ("element type", of.into())];
    kernels.agreed.lock().unwrap().extend([
        (0, agreed("a", "f32")),
        (1, agreed("b", "f32")),
        (2, agreed("b", "f32")),
    ]);
    let cut = Cut { parts: 2, cols: 0, first: 0 };
    let one = Collective { elements: 8, root: Some(1), cut, ..launch(1) };
    let text = |own: Collective, theirs| {
        let text = kernels.differences(3, &own, &Differs { number: 5, peer: 4, theirs }, PROTOCOLS);
        let text = text.strip_prefix("its collective launch number 5 is not that of rank 4 (").unwrap();
        text.split_once("). All ranks must launch the same kernels").unwrap().0.to_owned()
    };
    let other = Collective { protocol: 1, elements: 9, root: Some(0), ..one };
    assert_eq!(
        text(one, other),
        "root: 0 on rank 4, 1 on rank 3; elements to a peer: 9 on rank 4, 8 on rank 3; protocol: by LL128 on rank 4, by Simple on rank 3"
    );
    assert_eq!(text(one, Collective { kernel: 1, ..one }), "kernel: `b` on rank 4, `a` on rank 3");
    let second = Collective { kernel: 1, ..one };
    assert_eq!(
        text(second, Collective { kernel: 2, ..one }),
        "kernel: number 3 that was prepared on rank 4, number 2 that was prepared on rank 3"
    );
    let cut = Cut { parts: 4, cols: 16, first: 8 };
    assert_eq!(
        text(one, Collective { cut, root: None, ..one }),
        "root: none on rank 4, 1 on rank 3; channels: 4 on rank 4, 2 on rank 3; elements of a row: 16 on rank 4, none on rank 3; first \
         bytes by LL128: 128 on rank 4, none on rank 3"
    );
    assert!(text(one, one).starts_with("they cut chunks in another way"));
    // What to do is told however long the fields are.
    kernels.agreed.lock().unwrap().push((3, agreed(&"long::".repeat(200), "f32")));
    let long = text(one, Collective { kernel: 3, ..one });
    assert!(long.len() < 1000 && long.ends_with(" .."), "{long}");
    let graph = one.then(&one);
    assert!(text(graph, graph).contains("graphs of 2 collective launches"));
}
