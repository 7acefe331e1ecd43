//! A world in plain memory whose ranks are in domains.

use super::world::Peers;
use fusewire_device::{
    group::Group,
    ops::{ChannelState, Line, Ops, SignalState},
};

/// The device half of such a world: domains of so many ranks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct InDomains(pub Peers, pub u32);

// SAFETY: those of the world, of which every rank's staging can be loaded.
unsafe impl Ops for InDomains {
    const NAME: &'static str = "domains";
    fn domain(&self) -> u32 {
        self.1
    }
    fn rank(&self) -> u32 {
        self.0.rank()
    }
    fn world(&self) -> u32 {
        self.0.world()
    }
    fn channels(&self) -> u32 {
        self.0.channels()
    }
    fn signals(&self) -> u32 {
        self.0.signals()
    }
    fn window(&self) -> u64 {
        self.0.window()
    }
    fn heap_bytes(&self) -> u64 {
        self.0.heap_bytes()
    }
    fn heap(&self) -> *mut u8 {
        self.0.heap()
    }
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        self.0.outgoing(peer, channel)
    }
    fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        self.0.incoming(peer, channel)
    }
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        self.0.line(peer, line)
    }
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        self.0.state(peer, channel)
    }
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        self.0.signal_state(peer, id)
    }
    unsafe fn flush<G: Group>(&self, group: &G, peer: u32, channel: u32, from: u64, to: u64) {
        // SAFETY: the caller's contract.
        unsafe { self.0.flush(group, peer, channel, from, to) }
    }
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        // SAFETY: the caller's contract.
        unsafe { self.0.signal(group, peer, line, value) }
    }
    fn raise_abort(&self, peer: u32, code: u64) {
        self.0.raise_abort(peer, code);
    }
}
