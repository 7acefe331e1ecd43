//! Every verb of this crate against real adapters: two queue pairs, from the first adapter to the second (or to itself).
//!
//! `verbs-selftest` runs all checks. With `fence` and `no-fence` it runs the one check that a fence decides, which needs a link with a few
//! milliseconds of delay to tell the two apart. `loss` is for a link that loses one packet in ten; `fenced-loss` is the same with a fence,
//! which soft-RoCE does not survive (docs/host-infiniband.md). `none` expects a machine without an adapter. Exit code 0: as expected.

use fusewire_verbs::{
    Access, Adapter, Completion, CompletionQueue, Error, Filter, Local, Memory, PairOptions, QueuePair,
    Remote, Request, Status, Work, adapters,
};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: usize = 1 << 20;

/// A mapping that an adapter and this program share, and its registration.
struct Shared {
    start: *mut u8,
    memory: Memory,
}

impl Shared {
    fn new(adapter: &Arc<Adapter>, access: Access) -> fusewire_verbs::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        // SAFETY: a fresh mapping.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = start.map_err(|e| Error::misuse(format!("mmap: {e}")))?.cast::<u8>();
        // SAFETY: never unmapped; read and written through raw pointers, when a completion says that the adapter is done.
        let memory = unsafe { Memory::register(adapter, start, BYTES, access)? };
        Ok(Shared { start, memory })
    }

    fn local(&self, offset: usize, bytes: usize) -> Local {
        Local { address: self.memory.start() + offset as u64, bytes: bytes as u32, lkey: self.memory.lkey() }
    }

    fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.memory.start() + offset as u64, rkey: self.memory.rkey() }
    }

    fn fill(&self, seed: u8) {
        for i in 0..BYTES {
            // SAFETY: within the mapping; the adapter is idle.
            unsafe { self.start.add(i).write_volatile((i as u8).wrapping_mul(31) ^ seed) };
        }
    }

    fn holds(&self, seed: u8, from: usize, to: usize) -> bool {
        // SAFETY: within the mapping; the adapter is idle.
        (from..to).all(|i| unsafe { self.start.add(i).read_volatile() } == (i as u8).wrapping_mul(31) ^ seed)
    }

    fn word(&self, offset: usize) -> u64 {
        // SAFETY: within the mapping, aligned.
        unsafe { self.start.add(offset).cast::<u64>().read_volatile() }
    }

    fn set(&self, offset: usize, value: u64) {
        // SAFETY: within the mapping, aligned.
        unsafe { self.start.add(offset).cast::<u64>().write_volatile(value) };
    }
}

/// Two connected pairs.
struct Link {
    here: QueuePair,
    there: QueuePair,
    reports: [Arc<CompletionQueue>; 2],
    local: Shared,
    remote: Shared,
}

type Check = Result<(), String>;

fn text(error: Error) -> String {
    error.to_string()
}

impl Link {
    fn new(a: &Arc<Adapter>, b: &Arc<Adapter>, options: &PairOptions) -> Result<Self, String> {
        let queue = |adapter| CompletionQueue::new(adapter, 1024).map_err(text);
        let reports = [queue(a)?, queue(b)?];
        let here = QueuePair::new(&reports[0], &reports[0], options).map_err(text)?;
        let there = QueuePair::new(&reports[1], &reports[1], options).map_err(text)?;
        here.connect(&there.endpoint()).map_err(text)?;
        there.connect(&here.endpoint()).map_err(text)?;
        let local = Shared::new(a, Access::ALL).map_err(text)?;
        let remote = Shared::new(b, Access::ALL).map_err(text)?;
        Ok(Link { here, there, reports, local, remote })
    }

    fn post(&self, id: u64, work: Work<'_>, fence: bool) -> Check {
        // SAFETY: memory of the tests, read behind completions.
        match unsafe { self.here.post(&Request { id, work, fence }) } {
            Ok(true) => Ok(()),
            Ok(false) => Err("the queue is full".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The next `n` completions of one side.
    fn completions(&self, side: usize, n: usize) -> Result<Vec<Completion>, String> {
        let (mut got, start) = (Vec::new(), Instant::now());
        while got.len() < n {
            self.reports[side].poll(&mut got).map_err(text)?;
            if start.elapsed() > Duration::from_secs(15) {
                return Err(format!("{} of {n} completions within 15 s: {got:?}", got.len()));
            }
        }
        Ok(got)
    }

    fn done(&self, work: Work<'_>) -> Check {
        self.post(7, work, false)?;
        let report = self.completions(0, 1)?[0];
        ensure(report.status == Status::Done && report.id == 7 && !report.receive, || format!("{report:?}"))
    }

    fn fails(&self, work: Work<'_>, status: Status) -> Check {
        self.post(8, work, false)?;
        self.post(9, Work::WriteInline { bytes: &[1], to: self.remote.remote(0) }, false)?;
        let reports = self.completions(0, 2)?;
        let seen = [reports[0].status, reports[1].status];
        ensure(seen == [status, Status::Flushed], || format!("{seen:?} instead of {status:?}"))?;
        ensure(status.describe().len() > 10, || "no words for it".into())
    }
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(why()) }
}

fn write(link: &Link) -> Check {
    link.local.fill(1);
    link.done(Work::Write { from: link.local.local(0, BYTES), to: link.remote.remote(0), immediate: None })?;
    ensure(link.remote.holds(1, 0, BYTES), || "other bytes arrived".into())
}

fn write_with_number(link: &Link) -> Check {
    // SAFETY: no memory.
    unsafe { link.there.post_receive(3, Local { address: 0, bytes: 0, lkey: 0 }) }.map_err(text)?;
    let work = Work::Write {
        from: link.local.local(0, 4),
        to: link.remote.remote(64),
        immediate: Some(0x0102_0304),
    };
    link.done(work)?;
    let report = link.completions(1, 1)?[0];
    ensure(report.receive && report.id == 3 && report.immediate == Some(0x0102_0304), || {
        format!("{report:?}")
    })
}

fn write_inline(link: &Link) -> Check {
    let bytes = 0x1122_3344_5566_7788u64.to_ne_bytes();
    link.done(Work::WriteInline { bytes: &bytes, to: link.remote.remote(128) })?;
    ensure(link.remote.word(128) == 0x1122_3344_5566_7788, || format!("{:#x}", link.remote.word(128)))?;
    let long = [0; 4096];
    let work = Work::WriteInline { bytes: &long, to: link.remote.remote(0) };
    // SAFETY: refused.
    let refused = unsafe { link.here.post(&Request { id: 0, work, fence: false }) };
    ensure(matches!(refused, Err(Error::Misuse { .. })), || format!("too long a request: {refused:?}"))
}

fn read(link: &Link) -> Check {
    link.remote.fill(9);
    link.done(Work::Read { to: link.local.local(0, BYTES), from: link.remote.remote(0) })?;
    ensure(link.local.holds(9, 0, BYTES), || "other bytes arrived".into())
}

fn send_and_receive(link: &Link) -> Check {
    for id in 0..8 {
        // SAFETY: memory of the tests, read behind completions.
        unsafe { link.there.post_receive(id, link.remote.local(256 * id as usize, 256)) }.map_err(text)?;
    }
    link.local.fill(4);
    for id in 0..8usize {
        link.done(Work::Send { from: link.local.local(256 * id, 100 + id) })?;
    }
    let reports = link.completions(1, 8)?;
    for (id, report) in reports.iter().enumerate() {
        let right = report.receive && report.id == id as u64 && report.bytes == 100 + id as u32;
        ensure(right && link.remote.holds(4, 256 * id, 356 * id - 100 * id + 100), || format!("{report:?}"))?;
    }
    Ok(())
}

fn atomics(link: &Link) -> Check {
    link.remote.set(512, 40);
    link.done(Work::FetchAdd { at: link.remote.remote(512), add: 2, old: link.local.local(0, 8) })?;
    ensure((link.local.word(0), link.remote.word(512)) == (40, 42), || "fetch-add".into())?;
    let swap = |expected| Work::CompareSwap {
        at: link.remote.remote(512),
        expected,
        new: 7,
        old: link.local.local(0, 8),
    };
    link.done(swap(41))?;
    ensure((link.local.word(0), link.remote.word(512)) == (42, 42), || "a swap that should not be".into())?;
    link.done(swap(42))?;
    ensure((link.local.word(0), link.remote.word(512)) == (42, 7), || "a swap that should be".into())
}

/// Reads a word, then writes what was read to another place, in two requests posted at once.
fn forward(link: &Link, fence: bool) -> Check {
    for turn in 1..20u64 {
        link.local.set(0, 0);
        link.remote.set(0, turn);
        link.post(0, Work::Read { to: link.local.local(0, 8), from: link.remote.remote(0) }, false)?;
        let back = Work::Write { from: link.local.local(0, 8), to: link.remote.remote(64), immediate: None };
        link.post(1, back, fence)?;
        link.completions(0, 2)?;
        let seen = link.remote.word(64);
        ensure(seen == turn, || format!("turn {turn}: the write overtook the read: {seen} arrived"))?;
    }
    Ok(())
}

/// A write and a read behind it, over a link that loses packets: both are sent again until they are there.
fn again(link: &Link, fence: bool) -> Check {
    const READ: usize = 8192;
    for turn in 1..=50u64 {
        link.remote.set(READ - 8, turn);
        let bytes = turn.to_ne_bytes();
        link.post(0, Work::WriteInline { bytes: &bytes, to: link.remote.remote(READ) }, fence)?;
        link.post(1, Work::Read { to: link.local.local(0, READ), from: link.remote.remote(0) }, false)?;
        let ended = link.completions(0, 2).map_err(|why| format!("turn {turn}: {why}"))?;
        ensure(ended.iter().all(|c| c.status == Status::Done), || format!("turn {turn}: {ended:?}"))?;
        let seen = (link.remote.word(READ), link.local.word(READ - 8));
        ensure(seen == (turn, turn), || format!("turn {turn}: {seen:?} arrived"))?;
    }
    Ok(())
}

fn more_requests_than_the_queue_holds(link: &Link) -> Check {
    let (mut posted, mut ended, mut full) = (0u64, Vec::new(), 0);
    while posted < 2000 {
        let to = link.remote.remote(8 * posted as usize);
        let bytes = posted.to_ne_bytes();
        let work = Work::WriteInline { bytes: &bytes, to };
        // SAFETY: memory of the tests, read behind completions.
        match unsafe { link.here.post(&Request { id: posted, work, fence: false }) } {
            Ok(true) => posted += 1,
            Ok(false) => full += 1,
            Err(error) => return Err(error.to_string()),
        }
        link.reports[0].poll(&mut ended).map_err(text)?;
    }
    while ended.len() < 2000 {
        ended.extend(link.completions(0, 1)?);
    }
    ensure(ended.iter().enumerate().all(|(i, c)| c.id == i as u64 && c.status == Status::Done), || {
        format!("not in order, {full} times full")
    })?;
    ensure((0..2000).all(|i| link.remote.word(8 * i) == i as u64), || "other bytes arrived".into())
}

fn memory_of_all_kinds(link: &Link) -> Check {
    // A memfd, mapped twice: what arrives through one mapping is in the other.
    let own = link.local.memory.adapter();
    let fd =
        rustix::fs::memfd_create("selftest", rustix::fs::MemfdFlags::CLOEXEC).map_err(|e| e.to_string())?;
    rustix::fs::ftruncate(&fd, 4096).map_err(|e| e.to_string())?;
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let map = || {
        // SAFETY: a fresh mapping.
        unsafe {
            mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &fd, 0)
        }
        .map_err(|e| e.to_string())
    };
    let (one, other) = (map()?.cast::<u8>(), map()?.cast::<u64>());
    // SAFETY: never unmapped; read when a completion says that the adapter is done.
    let memory = unsafe { Memory::register(own, one, 4096, Access::LOCAL) }.map_err(text)?;
    link.remote.set(0, 77);
    let to = Local { address: memory.start(), bytes: 8, lkey: memory.lkey() };
    link.done(Work::Read { to, from: link.remote.remote(0) })?;
    // SAFETY: within the mapping; the adapter is idle.
    ensure(unsafe { other.read_volatile() } == 77, || "the other mapping of the memfd".into())?;
    let mut heap = vec![0u64; 512];
    // SAFETY: the vector lives through the requests below and is read after them.
    let memory =
        unsafe { Memory::register(own, heap.as_mut_ptr().cast(), 4096, Access::LOCAL) }.map_err(text)?;
    let to = Local { address: memory.start() + 80, bytes: 8, lkey: memory.lkey() };
    link.done(Work::Read { to, from: link.remote.remote(0) })?;
    drop(memory);
    ensure(heap[10] == 77, || "memory of the heap".into())?;
    // Neither a memfd nor soft-RoCE has dma-bufs: an error that says so, of one kind or the other.
    // SAFETY: nothing is registered.
    let refused = unsafe { Memory::register_dmabuf(own, fd.as_fd(), 0, 4096, 0, Access::LOCAL) };
    ensure(matches!(refused, Err(Error::Unsupported { .. } | Error::Call { .. })), || format!("{refused:?}"))
}

fn all(a: &Arc<Adapter>, b: &Arc<Adapter>) -> Vec<(&'static str, Check)> {
    let usual = PairOptions { send_depth: 64, ..PairOptions::default() };
    let on = |options: &PairOptions, check: &dyn Fn(&Link) -> Check| check(&Link::new(a, b, options)?);
    let local = Access::LOCAL;
    let past = |link: &Link| {
        link.fails(
            Work::Write {
                from: link.local.local(0, 128),
                to: link.remote.remote(BYTES - 64),
                immediate: None,
            },
            Status::RemoteAccess,
        )
    };
    vec![
        ("write", on(&usual, &write)),
        ("write with a number", on(&usual, &write_with_number)),
        ("write inline", on(&usual, &write_inline)),
        ("read", on(&usual, &read)),
        ("send and receive", on(&usual, &send_and_receive)),
        ("atomics", on(&usual, &atomics)),
        ("a read, then a fenced write of what was read", on(&usual, &|link| forward(link, true))),
        ("more requests than the queue holds", on(&usual, &more_requests_than_the_queue_holds)),
        ("memory of all kinds", on(&usual, &memory_of_all_kinds)),
        ("a write past the end fails", on(&usual, &past)),
        (
            "a wrong key fails",
            on(&usual, &|link| {
                let to = Remote { rkey: link.remote.memory.rkey() ^ 0x0001_0000, ..link.remote.remote(0) };
                link.fails(
                    Work::Write { from: link.local.local(0, 8), to, immediate: None },
                    Status::RemoteAccess,
                )
            }),
        ),
        (
            "a wrong key of one's own fails",
            on(&usual, &|link| {
                let from =
                    Local { lkey: link.local.memory.lkey() ^ 0x0001_0000, ..link.local.local(0, 4096) };
                link.fails(
                    Work::Write { from, to: link.remote.remote(0), immediate: None },
                    Status::LocalAccess,
                )
            }),
        ),
        (
            "memory that peers may not write",
            on(&usual, &|link| {
                let closed = Shared::new(b, local).map_err(text)?;
                let work =
                    Work::Write { from: link.local.local(0, 8), to: closed.remote(0), immediate: None };
                link.fails(work, Status::RemoteAccess)
            }),
        ),
        (
            "a receiver that never posts",
            on(&PairOptions { receiver_retries: 3, ..usual }, &|link| {
                link.fails(Work::Send { from: link.local.local(0, 8) }, Status::NotReceived)
            }),
        ),
        (
            "a peer that is gone",
            on(&PairOptions { timeout: 12, retries: 3, ..usual }, &|link| {
                link.there.break_off().map_err(text)?;
                link.fails(
                    Work::Write { from: link.local.local(0, 8), to: link.remote.remote(0), immediate: None },
                    Status::Unreachable,
                )
            }),
        ),
        ("names and filters", names(a)),
    ]
}

fn names(a: &Arc<Adapter>) -> Check {
    let names = adapters().map_err(text)?;
    ensure(names.iter().any(|n| n == a.name()), || format!("{names:?}"))?;
    let only = Filter::parse(&format!("={}", a.name())).map_err(text)?;
    let again = Adapter::open(&only, 5).map_err(text)?;
    ensure(again.name() == a.name() && again.limits() == a.limits(), || format!("{again:?}"))?;
    let none = Filter::parse("=no_such_adapter").map_err(text)?;
    let refused = Adapter::open(&none, 0).err();
    ensure(refused.as_ref().is_some_and(Error::is_no_adapter), || format!("{refused:?}"))
}

fn main() -> ExitCode {
    let what = std::env::args().nth(1).unwrap_or_default();
    let open = |nth| Filter::from_env().and_then(|filter| Adapter::open(&filter, nth));
    let (a, b) = match (open(0), open(1)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => {
            println!("{error}");
            return ExitCode::from(u8::from(what != "none" || !error.is_no_adapter()));
        }
    };
    println!("from {a:?} to {b:?}: {:?}", a.limits());
    let link = || Link::new(&a, &b, &PairOptions::default());
    let results = match what.as_str() {
        "" => all(&a, &b),
        "fence" => vec![("a fenced write after a read", link().and_then(|l| forward(&l, true)))],
        "no-fence" => vec![("an unfenced write after a read", link().and_then(|l| forward(&l, false)))],
        "loss" => vec![("what is lost is sent again", link().and_then(|l| again(&l, false)))],
        "fenced-loss" => vec![("what is lost is sent again, fenced", link().and_then(|l| again(&l, true)))],
        other => vec![("arguments", Err(format!("`{other}`: there are adapters here, or no such argument")))],
    };
    let mut failed = 0;
    for (name, result) in results {
        match result {
            Ok(()) => println!("ok      {name}"),
            Err(why) => {
                failed += 1;
                println!("FAILED  {name}: {why}");
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}
