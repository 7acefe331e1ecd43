//! A mesh sends everything of a peer over the link that reaches it, by the number that the peer has there.

use fusewire_device::group::{Group, Thread};
use fusewire_device::ops::{ChannelState, Get, Line, Ops, Put, SignalState};
use fusewire_transports::mesh::{FAR, MeshOps};
use std::cell::RefCell;

thread_local! {
    static DONE: RefCell<Vec<(char, &'static str, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Says who was asked for what.
#[derive(Clone, Copy)]
struct Told(char);

impl Told {
    fn note<T>(&self, what: &'static str, peer: u32, value: T) -> T {
        DONE.with_borrow_mut(|done| done.push((self.0, what, peer)));
        value
    }
}

fn line_name(line: Line) -> &'static str {
    match line {
        Line::Ready(_) => "ready",
        Line::Free(_) => "free",
        Line::User(_) => "user",
    }
}

// SAFETY: nothing is accessed.
unsafe impl Ops for Told {
    const NAME: &'static str = "told";
    fn rank(&self) -> u32 {
        self.note("rank", 0, if self.0 == 'n' { 1 } else { 3 })
    }
    fn world(&self) -> u32 {
        self.note("world", 0, if self.0 == 'n' { 2 } else { 4 })
    }
    fn channels(&self) -> u32 {
        1
    }
    fn signals(&self) -> u32 {
        1
    }
    fn window(&self) -> u64 {
        1024
    }
    fn heap_bytes(&self) -> u64 {
        self.note("heap_bytes", 0, 0)
    }
    fn heap(&self) -> *mut u8 {
        self.note("heap", 0, std::ptr::null_mut())
    }
    fn outgoing(&self, peer: u32, _: u32) -> *mut u8 {
        self.note("outgoing", peer, std::ptr::null_mut())
    }
    fn incoming(&self, peer: u32, _: u32) -> *const u8 {
        self.note("incoming", peer, std::ptr::null())
    }
    fn line(&self, peer: u32, line: Line) -> *const u64 {
        self.note(line_name(line), peer, std::ptr::null())
    }
    fn state(&self, peer: u32, _: u32) -> *mut ChannelState {
        self.note("state", peer, std::ptr::null_mut())
    }
    fn signal_state(&self, peer: u32, _: u32) -> *mut SignalState {
        self.note("signal_state", peer, std::ptr::null_mut())
    }
    unsafe fn flush<G: Group>(&self, _: &G, peer: u32, _: u32, _: u64, _: u64) {
        self.note("flush", peer, ());
    }
    unsafe fn signal<G: Group>(&self, _: &G, peer: u32, line: Line, _: u64) {
        self.note(line_name(line), peer, ());
    }
    fn raise_abort(&self, peer: u32, _: u64) {
        self.note("abort", peer, ());
    }
}

impl Put for Told {
    unsafe fn put<G: Group>(&self, _: &G, peer: u32, _: u64, _: *const u8, _: u64) {
        self.note("put", peer, ());
    }
}

impl Get for Told {
    unsafe fn get<G: Group>(&self, _: &G, peer: u32, _: u64, _: *mut u8, _: u64) {
        self.note("get", peer, ());
    }
}

/// What was asked for since the last time.
fn done() -> Vec<(char, &'static str, u32)> {
    DONE.with_borrow_mut(std::mem::take)
}

#[test]
fn each_peer_is_reached_over_its_own_link() {
    // Ranks 2 and 3 are a domain: their numbers there are 0 and 1. This is rank 3.
    let places = [FAR, FAR, 0, 1];
    // SAFETY: a table of all ranks, which lives to the end.
    let mesh = unsafe { MeshOps::new(Told('n'), Told('f'), places.as_ptr() as u64, 2) };
    for (peer, link, number) in [(0, 'f', 0), (1, 'f', 1), (2, 'n', 0)] {
        mesh.outgoing(peer, 0);
        mesh.incoming(peer, 0);
        mesh.state(peer, 0);
        for line in [Line::Ready(0), Line::Free(0)] {
            mesh.line(peer, line);
            // SAFETY: nothing is accessed.
            unsafe { mesh.signal(&Thread, peer, line, 1) };
        }
        // SAFETY: as above.
        unsafe { mesh.flush(&Thread, peer, 0, 0, 1) };
        let own = ["outgoing", "incoming", "state", "ready", "ready", "free", "free", "flush"];
        assert_eq!(done(), own.map(|what| (link, what, number)), "of the peer's channel");
        // What belongs to a rank as a whole goes over what reaches all.
        mesh.line(peer, Line::User(0));
        mesh.signal_state(peer, 0);
        mesh.raise_abort(peer, 1);
        // SAFETY: as above.
        unsafe {
            mesh.signal(&Thread, peer, Line::User(0), 1);
            mesh.put(&Thread, peer, 0, std::ptr::null(), 0);
            mesh.get(&Thread, peer, 0, std::ptr::null_mut(), 0);
        }
        let all = ["user", "signal_state", "abort", "user", "put", "get"];
        assert_eq!(done(), all.map(|what| ('f', what, peer)), "of the rank");
    }
    assert_eq!((mesh.rank(), mesh.world()), (3, 4));
    mesh.heap();
    mesh.heap_bytes();
    assert!(done().iter().all(|(link, ..)| *link == 'f'));
}
