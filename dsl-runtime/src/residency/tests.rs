use super::*;
use crate::Device;
use proptest::prelude::*;

const GPU: Gpu = Gpu {
    multiprocessors: 132,
    has: Footprint { threads: 2048, registers: 65536, shared: 228 << 10 },
    most_blocks: 32,
};
/// One of these fills a multiprocessor's registers, two of those.
const LARGE: Footprint = Footprint { threads: 256, registers: 256 * 216, shared: 1024 };
const SMALL: Footprint = Footprint { threads: 512, registers: 512 * 56, shared: 1024 };

fn queue() -> Arc<Queue> {
    Arc::clone(Device::host().stream().unwrap().queue())
}

fn queues(count: usize) -> Vec<Arc<Queue>> {
    (0..count).map(|_| queue()).collect()
}

fn busy(_: &Queue) -> bool {
    false
}

fn nowhere(_: &Arc<Queue>) -> Result<()> {
    unreachable!("every stream has a handle")
}

fn grid(block: Footprint, blocks: u32) -> Grid {
    Grid { block, blocks }
}

#[test]
fn a_stream_alone_has_all_of_the_gpu() {
    let (ledger, queues) = (Ledger::new(GPU), queues(1));
    for _ in 0..3 {
        assert!(!ledger.admit_with(&queues[0], grid(LARGE, 132), true, busy, nowhere).unwrap().follows);
        // Behind a large one a small one does not follow either.
        assert!(!ledger.admit_with(&queues[0], grid(SMALL, 10), true, busy, nowhere).unwrap().follows);
    }
}

#[test]
fn modest_kernels_follow() {
    let (ledger, queues) = (Ledger::new(GPU), queues(4));
    for _ in 0..20 {
        for queue in &queues {
            assert!(ledger.admit_with(queue, grid(SMALL, 16), true, busy, nowhere).unwrap().follows);
            assert!(!ledger.admit_with(queue, grid(SMALL, 16), false, busy, nowhere).unwrap().follows);
        }
    }
    // 4 x 32 of 264 are taken.
    let wide = grid(SMALL, 140);
    let told = ledger.admit_with(&queue(), wide, true, busy, nowhere).err().unwrap().to_string();
    assert!(told.contains("140 blocks") && told.contains("4 other streams may hold 128"), "{told}");
    assert!(!ledger.admit_with(&queue(), grid(SMALL, 136), true, busy, nowhere).unwrap().follows);
}

#[test]
fn idle_streams_are_forgotten_and_busy_ones_are_not() {
    let (ledger, queues) = (Ledger::new(GPU), queues(3));
    drop(ledger.admit_with(&queues[0], grid(LARGE, 100), true, busy, nowhere).unwrap());
    assert!(ledger.admit_with(&queues[1], grid(LARGE, 100), true, busy, nowhere).is_err());
    // Not while a launch that was admitted is still to be queued.
    let first = ledger.admit_with(&queues[0], grid(LARGE, 100), true, |_| true, nowhere).unwrap();
    assert!(ledger.admit_with(&queues[1], grid(LARGE, 100), true, |_| true, nowhere).is_err());
    drop(first);
    drop(ledger.admit_with(&queues[1], grid(LARGE, 100), true, |_| true, nowhere).unwrap());
    assert!(ledger.admit_with(&queues[2], grid(SMALL, 40), true, busy, nowhere).is_err());
    drop(queues);
    assert!(ledger.admit_with(&queue(), grid(SMALL, 40), true, busy, nowhere).is_ok());
}

#[test]
fn a_stream_behind_another_has_its_place() {
    let (ledger, queues) = (Ledger::new(GPU), queues(3));
    let join = |own: usize, before: usize| ledger.join(&queues[own], &queues[before], || Ok(())).unwrap();
    let admit =
        |queue: usize, blocks| ledger.admit_with(&queues[queue], grid(LARGE, blocks), false, busy, nowhere);
    drop(admit(0, 132).unwrap());
    assert!(admit(1, 132).is_err());
    join(1, 0);
    drop(admit(1, 132).unwrap());
    // And back; nothing adds up.
    for _ in 0..5 {
        assert!(admit(0, 132).is_err());
        join(0, 1);
        drop(admit(0, 132).unwrap());
        join(1, 0);
        drop(admit(1, 132).unwrap());
    }
    // For a third stream both are there.
    assert!(admit(2, 1).is_err());
    join(2, 1);
    drop(admit(2, 100).unwrap());

    // What the stream had before may run beside.
    let ledger = Ledger::new(GPU);
    let admit =
        |queue: usize, blocks| ledger.admit_with(&queues[queue], grid(LARGE, blocks), false, busy, nowhere);
    drop((admit(0, 60).unwrap(), admit(1, 50).unwrap()));
    ledger.join(&queues[1], &queues[0], || Ok(())).unwrap();
    assert!(admit(2, 23).is_err());
    // A launch that is not queued yet is not waited for.
    let queueing = admit(2, 22).unwrap();
    ledger.join(&queues[1], &queues[2], || Ok(())).unwrap();
    assert!(admit(1, 132).is_err());
    drop(queueing);
    ledger.join(&queues[1], &queues[2], || Ok(())).unwrap();
    drop(admit(1, 132).unwrap());
}

#[test]
fn behind_streams_that_nobody_has_there_is_a_place() {
    let (ledger, queues) = (Ledger::new(GPU), queues(3));
    let behind = |before: &Arc<Queue>| ledger.join(&queues[2], before, || Ok(()));
    drop(ledger.admit_with(&queues[0], grid(LARGE, 80), true, busy, nowhere).unwrap());
    drop(ledger.admit_with(&queues[1], grid(LARGE, 50), true, busy, nowhere).unwrap());
    queues[0].retired.store(true, std::sync::atomic::Ordering::Release);
    assert!(ledger.admit_with(&queues[2], grid(LARGE, 83), false, busy, behind).is_err());
    drop(ledger.admit_with(&queues[2], grid(LARGE, 82), false, busy, behind).unwrap());
    assert!(ledger.admit_with(&queues[0], grid(LARGE, 1), false, busy, nowhere).is_err());
}

#[test]
fn processes_have_a_part_each() {
    let (ledger, queues) = (Ledger::new(GPU), queues(2));
    ledger.shared_by(4);
    assert!(ledger.admit_with(&queues[0], grid(LARGE, 34), true, busy, nowhere).is_err());
    assert!(!ledger.admit_with(&queues[0], grid(LARGE, 33), true, busy, nowhere).unwrap().follows);
    assert!(ledger.admit_with(&queues[1], grid(SMALL, 1), true, busy, nowhere).is_err());
}

#[test]
fn graphs_count_as_a_whole() {
    let (ledger, mut demand) = (Ledger::new(GPU), Demand::default());
    assert!(demand.captured(&ledger, grid(SMALL, 16), true));
    assert!(demand.captured(&ledger, grid(SMALL, 60), true));
    assert!(!demand.captured(&ledger, grid(SMALL, 80), true));
    assert_eq!(demand.whole().blocks, 80);
    assert!(!demand.captured(&ledger, grid(LARGE, 8), true));
}

proptest! {
    /// Blocks that are placed as badly as can be: whoever the ledger admits finds a place beside all others.
    #[test]
    fn what_is_admitted_has_a_place(
        launches in prop::collection::vec((0usize..4, 0usize..5, 1u32..150, any::<bool>()), 1..12),
        seed in any::<u64>(),
    ) {
        let sizes = [
            LARGE, SMALL,
            Footprint { threads: 1024, registers: 1024 * 32, shared: 1024 },
            Footprint { threads: 128, registers: 128 * 64, shared: 130 << 10 },
            Footprint { threads: 64, registers: 64 * 32, shared: 2048 },
        ];
        let (ledger, queues) = (Ledger::new(GPU), queues(4));
        // By stream: its kernels, each with whether it follows.
        let mut admitted: Vec<Vec<(Grid, bool)>> = vec![Vec::new(); 4];
        for (stream, size, blocks, may_follow) in launches {
            let blocks = blocks.min(GPU.room(sizes[size]));
            let launch = grid(sizes[size], blocks);
            if let Ok(done) = ledger.admit_with(&queues[stream], launch, may_follow, busy, nowhere) {
                admitted[stream].push((launch, done.follows));
            }
        }
        // Of each stream the kernel that runs is any, with its follower.
        let mut random = seed;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        let mut blocks = Vec::new();
        for stream in admitted.iter().filter(|stream| !stream.is_empty()) {
            let running = next(stream.len());
            blocks.extend((0..stream[running].0.blocks).map(|_| stream[running].0.block));
            if let Some((follower, true)) = stream.get(running + 1) {
                blocks.extend((0..follower.blocks).map(|_| follower.block));
            }
        }
        for at in (1..blocks.len()).rev() {
            blocks.swap(at, next(at + 1));
        }
        let mut used = vec![(Footprint::default(), 0u32); GPU.multiprocessors as usize];
        for block in blocks {
            let start = next(used.len());
            let place = (0..used.len()).map(|k| (start + k) % used.len()).find(|at| {
                let (on, count) = used[*at];
                on.threads + block.threads <= GPU.has.threads
                    && on.registers + block.registers <= GPU.has.registers
                    && on.shared + block.shared <= GPU.has.shared
                    && count < GPU.most_blocks
            });
            let place = place.expect("a place for every block");
            let (on, count) = &mut used[place];
            on.threads += block.threads;
            on.registers += block.registers;
            on.shared += block.shared;
            *count += 1;
        }
    }
}
