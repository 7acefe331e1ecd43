//! Device half: the receiver fetches. What is sent stays in the sender's memory, and the receiver reads it there.

use fusewire::device::atomic::{self, Modify, Relaxed, Release, System};
use fusewire::device::group::Group;
use fusewire::device::mapped::Layout;
use fusewire::device::ops::{ChannelState, Line, Ops, SignalState};

/// Operations of a tube.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TubeOps {
    pub(crate) layout: Layout,
    pub(crate) rank: u32,
    /// Address of a table of every rank's region.
    pub(crate) bases: u64,
}

impl TubeOps {
    fn base(&self, rank: u32) -> u64 {
        // SAFETY: the table has an entry for every rank, written before any launch.
        unsafe { (self.bases as *const u64).add(rank as usize).read() }
    }
}

// SAFETY: regions of that layout, zeroed, mapped by every rank for as long as kernels run.
unsafe impl Ops for TubeOps {
    const NAME: &'static str = "tube";

    fn rank(&self) -> u32 {
        self.rank
    }
    fn world(&self) -> u32 {
        self.layout.world
    }
    fn channels(&self) -> u32 {
        self.layout.channels
    }
    fn signals(&self) -> u32 {
        self.layout.signals
    }
    fn window(&self) -> u64 {
        self.layout.window
    }
    fn heap_bytes(&self) -> u64 {
        self.layout.heap
    }
    fn heap(&self) -> *mut u8 {
        (self.base(self.rank) + self.layout.heap()) as *mut u8
    }
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        (self.base(self.rank) + self.layout.staging(peer, channel)) as *mut u8
    }
    fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        (self.base(peer) + self.layout.staging(self.rank, channel)) as *const u8
    }
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        (self.base(self.rank) + self.layout.line(peer, line)) as *const u64
    }
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        (self.base(self.rank) + self.layout.state(peer, channel)) as *mut ChannelState
    }
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        (self.base(self.rank) + self.layout.signal_state(peer, id)) as *mut SignalState
    }
    unsafe fn flush<G: Group>(&self, _: &G, _: u32, _: u32, _: u64, _: u64) {}
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        if group.leads() {
            let at = (self.base(peer) + self.layout.line(self.rank, line)) as *mut u64;
            // SAFETY: a line of the peer's region; this rank alone writes it.
            unsafe { atomic::store::<System, Release, u64>(at, value) };
        }
    }
    fn raise_abort(&self, peer: u32, code: u64) {
        let at = (self.base(peer) + self.layout.abort()) as *mut u64;
        // SAFETY: the abort word of the peer's region, accessed by atomics alone.
        unsafe { <u64 as Modify<System, Relaxed>>::compare_exchange(at, 0, code) };
    }
}
