//! Pages that several ranks map, and ports.

#![allow(dead_code)]

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};

pub const PAGE: usize = 4096;

/// A page of shared memory.
pub fn memfd_page() -> OwnedFd {
    let fd = rustix::fs::memfd_create("fusewire-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, PAGE as u64).unwrap();
    fd
}

/// The page, mapped until the process ends.
pub fn page_bytes(fd: &OwnedFd) -> &'static [AtomicU8] {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: A new mapping, at a place of the kernel's choice, overlaps nothing.
    let page = unsafe { mmap(std::ptr::null_mut(), PAGE, prot, flags, fd.as_fd(), 0) }.unwrap();
    // SAFETY: The mapping has PAGE bytes, is never unmapped, and is only ever accessed by atomics, here and in the
    // other processes; an `AtomicU8` has the layout of a `u8` and any value is valid.
    unsafe { std::slice::from_raw_parts(page.cast::<AtomicU8>(), PAGE) }
}

/// A port that is free, below those that the system hands out by itself, with a free one before it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let nth = NEXT.fetch_add(2, Ordering::Relaxed);
        let port = 12_001 + (std::process::id() as u16).wrapping_mul(64).wrapping_add(nth) % 7_000;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port - 1) {
            return port;
        }
    }
}
