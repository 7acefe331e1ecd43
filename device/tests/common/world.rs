//! A world in plain memory: one region a rank, blocks as threads.

#![allow(dead_code)] // each test uses a part

use fusewire_device::{
    launch::{Grid, Shape},
    mapped::{Layout, Mapped, MappedParts},
    mapped_ops,
    ops::{ChannelState, Line, Ops},
    wait::{AbortRecord, Control, Flow},
};
use std::{
    alloc,
    sync::atomic::{AtomicU64, Ordering},
};

/// Of a schedule of one's own, on one channel.
pub const NO_ELEMENTS: Shape = Shape {
    elements: 0,
    rows: 1,
    cols: 0,
    chunk: 256,
    kernel: 42,
    share: 0,
    own_share: 0,
    first: 0,
    outputs: 0,
    output_offset: 0,
    input: 0,
    tiles: 0,
    channels: 1,
    self_copy: 0,
    flags: 0,
    allocation: 0,
    cut: 0,
};

/// The device half of this world.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Peers(pub Mapped);
mapped_ops!(Peers, "test");

/// Zeroed memory, aligned as a mapping is.
struct Region {
    start: *mut u8,
    layout: alloc::Layout,
}

impl Region {
    fn new(bytes: u64) -> Region {
        let layout = alloc::Layout::from_size_align(bytes as usize, 4096).unwrap();
        // SAFETY: the size is not zero.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        assert!(!start.is_null());
        Region { start, layout }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { alloc::dealloc(self.start, self.layout) }
    }
}

pub struct World {
    pub layout: Layout,
    regions: Vec<Region>,
    records: Vec<Region>,
    /// Addresses of the regions; then process ids, if there are any.
    bases: Vec<u64>,
}

// SAFETY: the pointers are to memory that the world owns; kernels access it by their own protocol.
unsafe impl Sync for World {}

impl World {
    pub fn new(ranks: u32, channels: u32, window: u64) -> World {
        let layout = Layout {
            world: ranks,
            channels,
            signals: 2,
            ll128_channels: 4,
            ll_channels: 4,
            reserved: 0,
            window,
            heap: 4096,
        };
        let regions: Vec<_> = (0..ranks).map(|_| Region::new(layout.total())).collect();
        let records = (0..ranks).map(|_| Region::new(size_of::<AbortRecord>() as u64)).collect();
        let bases = regions.iter().map(|region| region.start as u64).collect();
        World { layout, regions, records, bases }
    }

    /// The same with ranks that read each other's memory as that of process `id`.
    pub fn of_processes(mut self, id: u32) -> World {
        self.bases.extend((0..self.layout.world).map(|_| u64::from(id)));
        self
    }

    pub fn ops(&self, rank: u32) -> Peers {
        let own = self.bases[rank as usize];
        let processes = u32::from(self.bases.len() > self.layout.world as usize);
        let bases = self.bases.as_ptr() as u64;
        let parts = MappedParts { layout: self.layout, rank, processes, own, bases };
        // SAFETY: regions that live as long as this world, in which alone tests use what they are given.
        Peers(unsafe { Mapped::new(parts) })
    }

    pub fn control(&self, rank: u32, deadline_ms: u64) -> Control {
        let abort = self.bases[rank as usize] + self.layout.abort();
        let record = self.records[rank as usize].start as u64;
        Control { abort, record, deadline_ns: deadline_ms * 1_000_000 }
    }

    pub fn abort_word(&self, rank: u32) -> u64 {
        self.word(rank, self.layout.abort()).load(Ordering::SeqCst)
    }

    /// The record; nobody may be writing it.
    pub fn record(&self, rank: u32) -> AbortRecord {
        // SAFETY: zeroed or filled, aligned, and quiet by this function's contract.
        unsafe { self.records[rank as usize].start.cast::<AbortRecord>().read() }
    }

    fn word(&self, rank: u32, offset: u64) -> &AtomicU64 {
        // SAFETY: an aligned word of the region, accessed by atomics alone while kernels run.
        unsafe { AtomicU64::from_ptr((self.bases[rank as usize] + offset) as *mut u64) }
    }

    /// Puts the streams of all channels to `position`, as if so many bytes had passed.
    pub fn start_at(&self, position: u64) {
        let Layout { world, channels, .. } = self.layout;
        for rank in 0..world {
            for peer in 0..world {
                for channel in 0..channels {
                    let state = ChannelState { sent: position, received: position };
                    // SAFETY: live state; no kernel runs.
                    unsafe { self.ops(rank).state(peer, channel).write(state) };
                    for line in [Line::Ready(channel), Line::Free(channel)] {
                        self.word(rank, self.layout.line(peer, line)).store(position, Ordering::SeqCst);
                    }
                }
            }
        }
    }

    /// Runs `kernel` on `blocks` threads for each rank; what each block came to, by rank.
    pub fn run(&self, blocks: u32, kernel: impl Fn(u32, Grid) -> Flow + Sync) -> Vec<Vec<Flow>> {
        let kernel = &kernel;
        std::thread::scope(|threads| {
            let spawn = |rank, block| threads.spawn(move || kernel(rank, Grid { block, blocks }));
            let running: Vec<Vec<_>> = (0..self.layout.world)
                .map(|rank| (0..blocks).map(|block| spawn(rank, block)).collect())
                .collect();
            let join = |blocks: Vec<std::thread::ScopedJoinHandle<'_, Flow>>| {
                blocks.into_iter().map(|block| block.join().unwrap()).collect()
            };
            running.into_iter().map(join).collect()
        })
    }
}

/// A small generator, so that tests need no crate for plain noise.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
