//! A world in plain memory whose ranks are in domains.

use super::world::Peers;
use fusewire_device::{
    group::Group,
    ops::{ChannelState, Line, Ops, SignalState},
};

/// The device half of such a world: domains of so many ranks.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct InDomains(pub Peers, pub u32);

// SAFETY: those of the world, of which every rank's staging can be loaded.
unsafe impl Ops for InDomains {
    const NAME: &'static str = "domains";
    #[inline(always)]
    fn domain(&self) -> u32 {
        self.1
    }
    #[inline(always)]
    fn rank(&self) -> u32 {
        self.0.rank()
    }
    #[inline(always)]
    fn world(&self) -> u32 {
        self.0.world()
    }
    #[inline(always)]
    fn channels(&self) -> u32 {
        self.0.channels()
    }
    #[inline(always)]
    fn signals(&self) -> u32 {
        self.0.signals()
    }
    #[inline(always)]
    fn window(&self) -> u64 {
        self.0.window()
    }
    #[inline(always)]
    fn heap_bytes(&self) -> u64 {
        self.0.heap_bytes()
    }
    #[inline(always)]
    fn heap(&self) -> *mut u8 {
        self.0.heap()
    }
    #[inline(always)]
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        self.0.outgoing(peer, channel)
    }
    #[inline(always)]
    fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        self.0.incoming(peer, channel)
    }
    #[inline(always)]
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        self.0.line(peer, line)
    }
    #[inline(always)]
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        self.0.state(peer, channel)
    }
    #[inline(always)]
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        self.0.signal_state(peer, id)
    }
    #[inline(always)]
    unsafe fn flush<G: Group>(&self, group: &G, peer: u32, channel: u32, from: u64, to: u64) {
        // SAFETY: the caller's contract.
        unsafe { self.0.flush(group, peer, channel, from, to) }
    }
    #[inline(always)]
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        // SAFETY: the caller's contract.
        unsafe { self.0.signal(group, peer, line, value) }
    }
    #[inline(always)]
    fn raise_abort(&self, peer: u32, code: u64) {
        self.0.raise_abort(peer, code);
    }
}
