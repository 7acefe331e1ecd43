//! The emulated adapter by itself: what the verbs' self-test asks of real ones.

use fusewire_transports::rdma::{
    Access, Adapter, Completion, Emulated, Local, Pair, PairOptions, Registration, Remote, Request, Status,
    Work,
};
use std::time::{Duration, Instant};

const WORDS: usize = 4096;

struct Side {
    pair: Box<dyn Pair>,
    memory: Box<dyn Registration>,
    /// After the registration, which ends before its memory does.
    words: Box<[std::sync::atomic::AtomicU64]>,
    adapter: Emulated,
}

impl Side {
    fn new(adapter: Emulated, options: &PairOptions, access: Access) -> Self {
        let words: Box<[_]> = (0..WORDS).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
        let (start, bytes) = (words.as_ptr().cast_mut().cast(), 8 * WORDS);
        // SAFETY: outlives the registration, and accessed by atomics or, for longer runs, when a completion says so.
        let memory = unsafe { adapter.register(start, bytes, access) }.unwrap();
        Side { pair: adapter.pair(options).unwrap(), memory, words, adapter }
    }

    fn set(&self, at: usize, value: u64) {
        self.words[at].store(value, std::sync::atomic::Ordering::Relaxed);
    }

    fn get(&self, at: usize) -> u64 {
        self.words[at].load(std::sync::atomic::Ordering::Relaxed)
    }

    fn local(&self, at: usize, words: usize) -> Local {
        Local {
            address: self.memory.start() + 8 * at as u64,
            bytes: 8 * words as u32,
            lkey: self.memory.lkey(),
        }
    }

    fn remote(&self, at: usize) -> Remote {
        Remote { address: self.memory.start() + 8 * at as u64, rkey: self.memory.rkey() }
    }

    fn post(&self, id: u64, work: Work<'_>) {
        // SAFETY: words of the tests, read behind completions.
        let posted = unsafe { self.pair.post(&Request { id, work, fence: false }) };
        assert!(posted.unwrap(), "the queue is full");
    }

    fn receives(&self, id: u64, local: Local) {
        // SAFETY: as for `post`.
        assert!(unsafe { self.pair.post_receive(id, local) }.unwrap());
    }

    fn completions(&self, n: usize) -> Vec<Completion> {
        let (mut got, start) = (Vec::new(), Instant::now());
        while got.len() < n {
            self.pair.poll(&mut got).unwrap();
            assert!(start.elapsed() < Duration::from_secs(10), "{got:?}");
            std::thread::yield_now();
        }
        assert_eq!(got.len(), n, "{got:?}");
        got
    }

    fn fails(&self, work: Work<'_>, status: Status) {
        self.post(1, work);
        self.post(2, Work::WriteInline { bytes: &[0; 8], to: Remote { address: 0, rkey: 0 } });
        let seen: Vec<(u64, Status)> = self.completions(2).iter().map(|c| (c.id, c.status)).collect();
        assert_eq!(seen, [(1, status), (2, Status::Flushed)]);
    }
}

fn link(options: &PairOptions) -> (Side, Side) {
    link_by(Emulated::new, options)
}

fn link_by(adapter: fn() -> Emulated, options: &PairOptions) -> (Side, Side) {
    let [mut a, mut b] = [0; 2].map(|_| Side::new(adapter(), options, Access::ALL));
    let (to_a, to_b) = (a.pair.endpoint(), b.pair.endpoint());
    std::thread::scope(|scope| {
        scope.spawn(|| a.pair.connect(&to_b).unwrap());
        b.pair.connect(&to_a).unwrap();
    });
    (a, b)
}

fn usual() -> (Side, Side) {
    link(&PairOptions::default())
}

#[test]
fn moves_bytes_both_ways() {
    let (a, b) = usual();
    (0..WORDS).for_each(|i| a.set(i, 3 * i as u64));
    a.post(5, Work::Write { from: a.local(0, 1000), to: b.remote(7), immediate: None });
    assert_eq!(a.completions(1)[0].id, 5);
    assert!((0..1000).all(|i| b.get(7 + i) == 3 * i as u64) && b.get(6) == 0 && b.get(1007) == 0);
    b.post(6, Work::Read { to: b.local(2000, 500), from: a.remote(1000) });
    assert_eq!(b.completions(1)[0].status, Status::Done);
    assert!((0..500).all(|i| b.get(2000 + i) == 3 * (1000 + i) as u64));
    a.post(7, Work::WriteInline { bytes: &77u64.to_ne_bytes(), to: b.remote(0) });
    a.completions(1);
    assert_eq!(b.get(0), 77);
}

/// What is acknowledged may not be in memory yet. It is once the pair has carried out a read, an addition or a message behind it; and
/// nothing is placed behind a pair's end.
#[test]
fn writes_are_placed_behind_their_acknowledgement() {
    let (a, b) = link_by(Emulated::late, &PairOptions::default());
    let write = |round: u64, at| {
        a.post(0, Work::WriteInline { bytes: &round.to_ne_bytes(), to: b.remote(at) });
        a.completions(1);
    };
    let mut late = 0;
    for round in 1..=600u64 {
        write(round, 1);
        late += usize::from(b.get(1) != round);
        write(round, 2);
        let seen = (b.get(2), b.get(1));
        assert!(seen.0 != round || seen.1 == round, "in order");
        match round % 3 {
            0 => a.post(1, Work::Read { to: a.local(0, 1), from: b.remote(3) }),
            1 => a.post(1, Work::FetchAdd { at: b.remote(3), add: 1, old: a.local(0, 1) }),
            _ => {
                b.receives(7, b.local(4, 1));
                a.post(1, Work::Send { from: a.local(0, 1) });
                b.completions(1);
            }
        }
        a.completions(1);
        assert_eq!((b.get(1), b.get(2)), (round, round));
    }
    assert!(late > 0, "every write was there when it was acknowledged: this test shows nothing");
    // By and by, without anything behind it.
    write(1000, 1);
    let start = Instant::now();
    while b.get(1) != 1000 {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::yield_now();
    }
    for round in 0..100 {
        let (a, b) = link_by(Emulated::late, &PairOptions::default());
        a.post(0, Work::WriteInline { bytes: &[1; 8], to: b.remote(1) });
        a.completions(1);
        let Side { pair, words, memory: _memory, .. } = b;
        drop(pair);
        let word = || words[1].load(std::sync::atomic::Ordering::Relaxed);
        let at_end = word();
        std::thread::sleep(Duration::from_micros(50 * (round % 8)));
        assert_eq!(word(), at_end, "placed behind the pair's end");
    }
}

#[test]
fn messages_and_numbers_end_receives_in_order() {
    let (a, b) = usual();
    for id in 0..4 {
        b.receives(id, b.local(100 * id as usize, 10));
    }
    a.set(0, 11);
    a.post(0, Work::Send { from: a.local(0, 2) });
    a.post(1, Work::Write { from: a.local(0, 1), to: b.remote(50), immediate: Some(9) });
    a.post(2, Work::Send { from: a.local(0, 3) });
    a.completions(3);
    let got = b.completions(3);
    let seen: Vec<_> = got.iter().map(|c| (c.id, c.receive, c.bytes, c.immediate)).collect();
    assert_eq!(seen, [(0, true, 16, None), (1, true, 8, Some(9)), (2, true, 24, None)]);
    assert_eq!((b.get(0), b.get(50), b.get(100), b.get(200)), (11, 11, 0, 11));
}

#[test]
fn atomics_return_the_old_value() {
    let (a, b) = usual();
    b.set(9, 40);
    a.post(0, Work::FetchAdd { at: b.remote(9), add: 2, old: a.local(0, 1) });
    a.post(1, Work::CompareSwap { at: b.remote(9), expected: 1, new: 5, old: a.local(1, 1) });
    a.post(2, Work::CompareSwap { at: b.remote(9), expected: 42, new: 6, old: a.local(2, 1) });
    a.completions(3);
    assert_eq!((a.get(0), a.get(1), a.get(2), b.get(9)), (40, 42, 42, 6));
}

/// Reads a word and forwards it: a fence keeps the write back until the read has ended. How often it overtook.
fn forwards(fence: bool) -> usize {
    let (a, b) = usual();
    let mut overtaken = 0;
    for turn in 1..=300u64 {
        a.set(0, 0);
        b.set(0, turn);
        a.post(0, Work::Read { to: a.local(0, 1), from: b.remote(0) });
        let work = Work::Write { from: a.local(0, 1), to: b.remote(1), immediate: None };
        // SAFETY: as for `post`.
        assert!(unsafe { a.pair.post(&Request { id: 1, work, fence }) }.unwrap());
        a.completions(2);
        overtaken += usize::from(b.get(1) != turn);
    }
    overtaken
}

#[test]
fn a_fence_keeps_a_write_behind_a_read() {
    assert_eq!(forwards(true), 0);
    assert!(
        (0..20).any(|_| forwards(false) > 0),
        "without a fence, no write overtook its read: this test shows nothing"
    );
}

#[test]
fn a_full_queue_says_so() {
    let (a, b) = link(&PairOptions { send_depth: 4, receiver_retries: 7, ..PairOptions::default() });
    // Nobody receives, so nothing ends.
    for id in 0..4 {
        a.post(id, Work::Send { from: a.local(0, 1) });
    }
    assert!(
        // SAFETY: as for `post`.
        !unsafe { a.pair.post(&Request { id: 4, work: Work::Send { from: a.local(0, 1) }, fence: false }) }
            .unwrap()
    );
    for id in 0..4 {
        b.receives(id, b.local(0, 1));
    }
    assert!(a.completions(4).iter().enumerate().all(|(i, c)| c.id == i as u64 && c.status == Status::Done));
}

#[test]
fn what_is_not_allowed_fails_as_on_an_adapter() {
    let past = |b: &Side| b.remote(WORDS - 1);
    let write = |a: &Side, to| Work::Write { from: a.local(0, 2), to, immediate: None };
    let (a, b) = usual();
    a.fails(write(&a, past(&b)), Status::RemoteAccess);
    // The peer's end is broken as well.
    b.post(3, Work::WriteInline { bytes: &[1; 8], to: a.remote(0) });
    assert_eq!(b.completions(1)[0].status, Status::Flushed);
    let (a, b) = usual();
    a.fails(write(&a, Remote { rkey: b.memory.rkey() ^ 1, ..b.remote(0) }), Status::RemoteAccess);
    let (a, b) = usual();
    a.fails(Work::Send { from: Local { lkey: 3, ..a.local(0, 1) } }, Status::LocalAccess);
    drop(b);
    let (a, b) = usual();
    let words = b.words.as_ptr().cast_mut().cast();
    // SAFETY: outlives the registration; nothing is written.
    let closed = unsafe { b.adapter.register(words, 64, Access::LOCAL) }.unwrap();
    a.fails(write(&a, Remote { address: closed.start(), rkey: closed.rkey() }), Status::RemoteAccess);
    let (a, b) = usual();
    let ended = Remote { address: b.memory.start(), rkey: b.memory.rkey() };
    let Side { memory, pair: _pair, .. } = b;
    drop(memory);
    a.fails(write(&a, ended), Status::RemoteAccess);
}

#[test]
fn a_receiver_that_never_posts_or_is_gone() {
    let (a, _b) = link(&PairOptions { receiver_retries: 3, ..PairOptions::default() });
    a.fails(Work::Send { from: a.local(0, 1) }, Status::NotReceived);
    let (a, b) = usual();
    drop(b.pair);
    a.fails(Work::Write { from: a.local(0, 1), to: a.remote(0), immediate: None }, Status::Unreachable);
}

#[test]
fn an_endpoint_of_another_kind_is_refused() {
    let mut pair = Emulated::new().pair(&PairOptions::default()).unwrap();
    assert!(pair.connect(&[0; 24]).unwrap_err().to_string().contains("one fabric"));
}
