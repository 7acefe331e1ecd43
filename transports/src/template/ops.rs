//! Device half of the blank.

use fusewire_device::group::Group;
use fusewire_device::ops::{ChannelState, Line, Ops, SignalState};

/// What a kernel needs to know of the transport: plain data (addresses, keys, queue numbers), passed by value.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct TemplateOps {
    /// This rank.
    pub rank: u32,
    /// Ranks.
    pub world: u32,
}

#[cold]
fn blank(what: &str) -> ! {
    panic!("the template transport has no `{what}`: it is a blank to copy")
}

// SAFETY: no pointer is ever returned.
unsafe impl Ops for TemplateOps {
    const NAME: &'static str = "template";

    fn rank(&self) -> u32 {
        self.rank
    }
    fn world(&self) -> u32 {
        self.world
    }
    fn channels(&self) -> u32 {
        0
    }
    fn signals(&self) -> u32 {
        0
    }
    /// A power of two.
    fn window(&self) -> u64 {
        1024
    }
    fn heap_bytes(&self) -> u64 {
        0
    }
    fn heap(&self) -> *mut u8 {
        blank("heap")
    }
    /// Memory that lanes store to with 16-byte stores. An RDMA transport gives local, registered memory and moves it in `flush`.
    fn outgoing(&self, _peer: u32, _channel: u32) -> *mut u8 {
        blank("outgoing")
    }
    /// Local memory, whole and visible up to the `Ready` line.
    fn incoming(&self, _peer: u32, _channel: u32) -> *const u8 {
        blank("incoming")
    }
    /// Local memory, a 128-byte line of its own, raised by the peer's `signal`.
    fn line(&self, _peer: u32, _line: Line) -> *const u64 {
        blank("line")
    }
    /// Local memory, zero at the start.
    fn state(&self, _peer: u32, _channel: u32) -> *mut ChannelState {
        blank("state")
    }
    /// Local memory, zero at the start.
    fn signal_state(&self, _peer: u32, _id: u32) -> *mut SignalState {
        blank("signal_state")
    }
    /// After a group sync. Where `outgoing` is local: post the write of `from..to` here, before `signal` posts its own.
    unsafe fn flush<G: Group>(&self, _group: &G, _peer: u32, _channel: u32, _from: u64, _to: u64) {
        blank("flush")
    }
    /// Visible at the peer after everything the group stored, flushed or put before.
    unsafe fn signal<G: Group>(&self, _group: &G, _peer: u32, _line: Line, _value: u64) {
        blank("signal")
    }
    /// Best effort.
    fn raise_abort(&self, _peer: u32, _code: u64) {}
}
