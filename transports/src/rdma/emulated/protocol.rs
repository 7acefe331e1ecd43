//! What goes over the sockets.

use bytemuck::{Pod, Zeroable};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

pub const WRITE: u32 = 1;
pub const WRITE_WITH_NUMBER: u32 = 2;
pub const READ: u32 = 3;
pub const SEND: u32 = 4;
pub const FETCH_ADD: u32 = 5;
pub const COMPARE_SWAP: u32 = 6;

/// A request; `bytes` bytes follow if it is a write or a message.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Ask {
    pub op: u32,
    pub bytes: u32,
    pub address: u64,
    pub rkey: u32,
    pub number: u32,
    /// Operands of atomics.
    pub a: u64,
    pub b: u64,
}

impl Ask {
    /// Whether bytes follow.
    pub fn carries(&self) -> bool {
        matches!(self.op, WRITE | WRITE_WITH_NUMBER | SEND)
    }
}

/// An answer, in the order of the requests; `bytes` bytes follow.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Answer {
    pub status: u32,
    pub bytes: u32,
}

/// Most bytes of one request.
pub const MESSAGE: u32 = 1 << 30;

/// Sends a header and what follows it.
pub fn send<T: Pod>(to: &mut impl Write, header: &T, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytemuck::bytes_of(header))?;
    to.write_all(bytes)
}

/// Whether something comes within `patience`.
pub fn arrives(stream: &impl AsFd, patience: Duration) -> bool {
    let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
    poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&patience)).is_ok_and(|ready| ready > 0)
}

/// Reads a header.
pub fn receive<T: Pod>(from: &mut impl Read) -> io::Result<T> {
    let mut header = T::zeroed();
    from.read_exact(bytemuck::bytes_of_mut(&mut header))?;
    Ok(header)
}

/// Reads `bytes` bytes into `into`, whose contents are replaced.
pub fn receive_bytes(from: &mut impl Read, bytes: u32, into: &mut Vec<u8>) -> io::Result<()> {
    into.resize(bytes as usize, 0);
    from.read_exact(into)
}
