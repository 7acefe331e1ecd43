//! What operations cost, by the adapters' own counts. The table in `docs/ibgda.md` has these very lines.

mod common;

use common::{Rank, ranks_with};
use fusewire_device::group::Thread;
use fusewire_device::ops::{Line, Ops};
use fusewire_nic::emulated::Counts;
use fusewire_transports::Transport;
use fusewire_transports::ibgda::{Endpoint, IbgdaOptions, LocalBuffer, Posted, RemoteBuffer};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ibgda.md");

fn line(what: &str, c: &Counts) -> String {
    format!(
        "| {what} | {} | {} | {} | {} | {} |",
        c.entries(),
        c.doorbells,
        c.completions,
        c.transactions(),
        c.pcie_bytes()
    )
}

#[track_caller]
fn documented(lines: &[String]) {
    let docs = std::fs::read_to_string(DOCS).expect("docs/ibgda.md");
    for line in lines {
        assert!(docs.contains(line), "docs/ibgda.md should have this line:\n{}", lines.join("\n"));
    }
}

type Operation = fn(&Endpoint, LocalBuffer, RemoteBuffer) -> Posted;

/// Everything that an adapter did for one operation of rank 0.
fn cost(rank: &Rank, operation: Operation) -> Counts {
    let (own, remote) = (rank.memory.local(), rank.remotes[1]);
    let endpoint = rank.endpoint(1, 0);
    let work = operation(&endpoint, own, remote).expect("a place in the queue");
    // SAFETY: work of this endpoint.
    unsafe { endpoint.wait_local(work) }.expect("no fault");
    settled(rank)
}

/// The counts once nothing changes them any more.
fn settled(rank: &Rank) -> Counts {
    let start = Instant::now();
    let mut before = rank.nic.counts();
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = rank.nic.counts();
        if now == before || start.elapsed() > Duration::from_secs(5) {
            return now;
        }
        before = now;
    }
}

#[test]
#[allow(clippy::undocumented_unsafe_blocks)] // one comment for all of them
fn of_single_operations() {
    // SAFETY (all of them): registered ranges that nobody looks at.
    let operations: [(&str, Operation); 8] = [
        ("put of 8 bytes", |e, own, far| unsafe { e.put(own, far, 8) }),
        ("put of 64 KiB", |e, own, far| unsafe { e.put(own, far, 64 << 10) }),
        ("put of 1 MiB", |e, own, far| unsafe { e.put(own, far, 1 << 20) }),
        ("8 bytes inside the entry", |e, _, far| unsafe { e.put_value(far, 1) }),
        ("signal_remote", |e, _, far| unsafe { e.signal_remote(far, 1) }),
        ("put_signal of 8 bytes", |e, own, far| unsafe { e.put_signal(own, far.at(8), 8, far, 1) }),
        ("put_signal of 64 KiB", |e, own, far| unsafe { e.put_signal(own, far.at(8), 64 << 10, far, 1) }),
        ("put_signal_counter_remote of 64 KiB", |e, own, far| unsafe {
            e.put_signal_counter_remote(own.at(8), far.at(8), 64 << 10, far, 1, own, 1)
        }),
    ];
    let lines = Mutex::new(Vec::new());
    for (what, operation) in operations {
        ranks_with(2, 2 << 20, IbgdaOptions::new(16 << 10).queue_pairs(1), |rank| {
            if rank.me == 0 {
                lines.lock().unwrap().push(line(what, &cost(rank, operation)));
            }
            rank.world.barrier().unwrap();
        });
    }
    documented(&lines.into_inner().unwrap());
}

/// The staged schedule's operations for one chunk of 64 KiB to each peer, on one channel.
#[test]
fn of_an_all_to_all() {
    const BYTES: u64 = 64 << 10;
    let mut lines = Vec::new();
    for n in [2u32, 4, 8] {
        let sum = Mutex::new(Counts::default());
        let options = || {
            let mut options = IbgdaOptions::new(128 << 10).queue_pairs(1);
            options.transport.channels = 1;
            options
        };
        ranks_with(n as usize, 4096, options(), |rank| {
            // SAFETY: the transport lives as long as this rank runs.
            let ops = unsafe { rank.ibgda.ops() };
            let peers = || (1..n).map(|step| (ops.rank() + step) % n);
            for peer in peers() {
                // SAFETY: the ring is free, and this thread alone works it.
                unsafe {
                    ops.flush(&Thread, peer, 0, 0, BYTES);
                    ops.signal(&Thread, peer, Line::Ready(0), BYTES);
                }
            }
            for peer in peers() {
                let start = Instant::now();
                // SAFETY: a live line of this rank.
                while unsafe { fusewire_transports::ibgda::read_signal(ops.line(peer, Line::Ready(0))) }
                    < BYTES
                {
                    assert!(start.elapsed() < common::WAIT, "rank {peer}'s chunk does not arrive");
                    std::thread::yield_now();
                }
                // The data's own queue pair has rung by then: this doorbell is one of its own.
                // SAFETY: as above.
                unsafe { ops.signal(&Thread, peer, Line::Free(0), BYTES) };
            }
            rank.world.barrier().unwrap();
            *sum.lock().unwrap() += settled(rank);
            rank.world.barrier().unwrap();
        });
        let mut sum = sum.into_inner().unwrap();
        // Two doorbells of one queue pair that the adapter found at once count as one: whether it did is a matter of time.
        let rung = u64::from(2 * n * (n - 1));
        assert!((rung / 2..=rung).contains(&sum.doorbells), "{}", sum.doorbells);
        let missed = rung - sum.doorbells;
        (sum.doorbells, sum.entry_reads) = (rung, sum.entry_reads + missed);
        let sum = line(&format!("all-to-all of {n} ranks, 64 KiB to each peer"), &sum);
        lines.push(sum);
    }
    documented(&lines);
}
