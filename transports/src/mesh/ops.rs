//! Device half: each operation on the link that reaches the peer.

use fusewire_device::group::Group;
use fusewire_device::ops::{ChannelState, Get, Line, Ops, Put, SignalState};

/// A peer outside this rank's domain, in the table of places.
pub const FAR: u32 = u32::MAX;

/// Device operations of [`Mesh`](super).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MeshOps<A, B> {
    /// To peers of the domain.
    intra: A,
    /// To every rank.
    inter: B,
    /// Address of a table of `world` numbers (`u32`): each rank's number in this rank's domain, or [`FAR`].
    places: u64,
    /// [`Ops::domain`].
    domain: u32,
}

/// Where a peer is.
enum Place {
    Near(u32),
    Far,
}

impl<A, B> MeshOps<A, B> {
    /// Operations on two transports.
    ///
    /// # Safety
    /// At `places` is a table of as many numbers (`u32`) as `inter` has ranks, as long as the value is used: each rank's number in
    /// `intra`, or [`FAR`]. `domain` is what [`Ops::domain`] says of them.
    pub const unsafe fn new(intra: A, inter: B, places: u64, domain: u32) -> Self {
        MeshOps { intra, inter, places, domain }
    }

    #[inline(always)]
    fn place(&self, peer: u32) -> Place {
        // SAFETY: the table has `world` entries, written before any launch; schedules pass ranks below `world`.
        match unsafe { (self.places as *const u32).add(peer as usize).read() } {
            FAR => Place::Far,
            near => Place::Near(near),
        }
    }
}

macro_rules! route {
    ($self:ident, $peer:ident, $method:ident($($arg:expr),*)) => {
        match $self.place($peer) {
            Place::Near(near) => $self.intra.$method(near, $($arg),*),
            Place::Far => $self.inter.$method($peer, $($arg),*),
        }
    };
}

// SAFETY: each pointer is that of one of two transports, which agree on channels and windows; a line and the data before it go over the
// same one, but for user signals: those follow puts on `inter`, and what was stored over `intra` before them is performed by the fence
// with which `inter` posts.
unsafe impl<A: Ops, B: Ops> Ops for MeshOps<A, B> {
    const NAME: &'static str = "mesh";

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.inter.rank()
    }
    #[inline(always)]
    fn world(&self) -> u32 {
        self.inter.world()
    }
    #[inline(always)]
    fn channels(&self) -> u32 {
        self.inter.channels()
    }
    #[inline(always)]
    fn signals(&self) -> u32 {
        self.inter.signals()
    }
    #[inline(always)]
    fn window(&self) -> u64 {
        self.inter.window()
    }
    #[inline(always)]
    fn heap_bytes(&self) -> u64 {
        self.inter.heap_bytes()
    }
    #[inline(always)]
    fn heap(&self) -> *mut u8 {
        self.inter.heap()
    }
    #[inline(always)]
    fn domain(&self) -> u32 {
        self.domain
    }
    #[inline(always)]
    fn outgoing(&self, peer: u32, channel: u32) -> *mut u8 {
        route!(self, peer, outgoing(channel))
    }
    #[inline(always)]
    fn incoming(&self, peer: u32, channel: u32) -> *const u8 {
        route!(self, peer, incoming(channel))
    }
    #[inline(always)]
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        match line {
            Line::User(_) => self.inter.line(peer, line),
            _ => route!(self, peer, line(line)),
        }
    }
    #[inline(always)]
    fn state(&self, peer: u32, channel: u32) -> *mut ChannelState {
        route!(self, peer, state(channel))
    }
    #[inline(always)]
    fn signal_state(&self, peer: u32, id: u32) -> *mut SignalState {
        self.inter.signal_state(peer, id)
    }
    #[inline(always)]
    unsafe fn flush<G: Group>(&self, group: &G, peer: u32, channel: u32, from: u64, to: u64) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.place(peer) {
                Place::Near(near) => self.intra.flush(group, near, channel, from, to),
                Place::Far => self.inter.flush(group, peer, channel, from, to),
            }
        }
    }
    #[inline(always)]
    unsafe fn signal<G: Group>(&self, group: &G, peer: u32, line: Line, value: u64) {
        // SAFETY: the caller's contract.
        unsafe {
            match (self.place(peer), line) {
                (Place::Near(near), Line::Ready(_) | Line::Free(_)) => {
                    self.intra.signal(group, near, line, value);
                }
                _ => self.inter.signal(group, peer, line, value),
            }
        }
    }
    #[inline(always)]
    fn raise_abort(&self, peer: u32, code: u64) {
        self.inter.raise_abort(peer, code);
    }
}

impl<A: Ops, B: Put> Put for MeshOps<A, B> {
    #[inline(always)]
    unsafe fn put<G: Group>(&self, group: &G, peer: u32, to: u64, from: *const u8, bytes: u64) {
        // SAFETY: the caller's contract.
        unsafe { self.inter.put(group, peer, to, from, bytes) };
    }
}

impl<A: Ops, B: Get> Get for MeshOps<A, B> {
    #[inline(always)]
    unsafe fn get<G: Group>(&self, group: &G, peer: u32, from: u64, to: *mut u8, bytes: u64) {
        // SAFETY: the caller's contract.
        unsafe { self.inter.get(group, peer, from, to, bytes) };
    }
}
