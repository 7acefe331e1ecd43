//! A port: what an emulated adapter shows to its peers, in memory that all of them map.

use crate::nic::{Error, Result, Share};
use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Regions that one adapter can have registered.
pub(super) const REGIONS: usize = 1024;

/// The page itself: zero at first.
#[repr(C)]
pub(super) struct Page {
    /// 0: nobody is there any more.
    pub alive: AtomicU32,
    /// 0: the cable is out.
    pub link: AtomicU32,
    /// Requests that are still to be answered with "not ready".
    pub not_ready: AtomicU32,
    reserved: AtomicU32,
    regions: [Slot; REGIONS],
}

/// A region as peers see it: valid while the key is not zero.
#[repr(C)]
struct Slot {
    key: AtomicU32,
    reserved: AtomicU32,
    addr: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Port {
    map: MmapRaw,
    fd: OwnedFd,
}

impl Port {
    pub fn create() -> Result<Port> {
        let fd = memfd_create("fusewire-port", MemfdFlags::CLOEXEC)
            .map_err(|e| Error::system("creating an emulated port")(e.into()))?;
        ftruncate(&fd, size_of::<Page>() as u64)
            .map_err(|e| Error::system("sizing an emulated port")(e.into()))?;
        let port = Port::map(fd)?;
        port.page().alive.store(1, Ordering::Release);
        port.page().link.store(1, Ordering::Release);
        Ok(port)
    }

    pub fn map(fd: OwnedFd) -> Result<Port> {
        let file = File::from(fd);
        let size = file.metadata().map_err(Error::system("looking at an emulated port"))?.len();
        if size < size_of::<Page>() as u64 {
            return Err(Error::misuse(
                "what a peer passed is no emulated port: all ranks must run the same version",
            ));
        }
        let map = MmapRaw::map_raw(&file).map_err(Error::system("mapping an emulated port"))?;
        Ok(Port { map, fd: file.into() })
    }

    pub fn fd(&self) -> Result<OwnedFd> {
        self.fd.as_fd().try_clone_to_owned().map_err(Error::system("passing on an emulated port"))
    }

    pub fn page(&self) -> &Page {
        // SAFETY: the mapping is as large as the page (checked by `map`), aligned to a memory page, lives as long as `self`, and has only
        // atomics, for which any bytes are valid.
        unsafe { &*self.map.as_ptr().cast::<Page>() }
    }

    /// Shows a region.
    pub fn publish(&self, slot: usize, key: u32, addr: u64, bytes: u64) {
        let slot = &self.page().regions[slot];
        slot.addr.store(addr, Ordering::Relaxed);
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.key.store(key, Ordering::Release);
    }

    /// Takes a region back.
    pub fn revoke(&self, slot: usize) {
        self.page().regions[slot].key.store(0, Ordering::Release);
    }

    /// Address and bytes of the region under `key`, if it is valid.
    pub fn find(&self, key: u32) -> Option<(u64, u64)> {
        let slot = self.page().regions.get(slot_of(key))?;
        (key != 0 && slot.key.load(Ordering::Acquire) == key)
            .then(|| (slot.addr.load(Ordering::Relaxed), slot.bytes.load(Ordering::Relaxed)))
    }

    pub fn up(&self) -> bool {
        let page = self.page();
        page.alive.load(Ordering::Acquire) != 0 && page.link.load(Ordering::Acquire) != 0
    }
}

/// The slot of a key: keys are a slot's number, then eight bits that differ each time it is used.
pub(super) fn slot_of(key: u32) -> usize {
    (key >> 8) as usize
}

/// A peer: its port, and where its regions are for this process.
#[derive(Debug)]
pub(super) struct Peer {
    pub port: Port,
    maps: HashMap<u32, Reach>,
}

#[derive(Debug)]
enum Reach {
    /// The owner's own address: it is this process.
    Same(u64),
    Mapped(MmapRaw, u64),
}

impl Peer {
    pub fn new(port: Port) -> Peer {
        Peer { port, maps: HashMap::new() }
    }

    pub fn admit(&mut self, share: Share) -> Result<()> {
        let remote = share.remote;
        let reach = match share.file {
            Some(fd) => {
                let file = File::from(fd);
                let size = file.metadata().map_err(Error::system("looking at a peer's memory"))?.len();
                if size < remote.offset.saturating_add(remote.bytes) {
                    return Err(Error::misuse(format!(
                        "a peer shared a file of {size} bytes for a region of {} at {}",
                        remote.bytes, remote.offset
                    )));
                }
                let map = MmapRaw::map_raw(&file).map_err(Error::system("mapping a peer's memory"))?;
                Reach::Mapped(map, remote.offset)
            }
            None if remote.process == std::process::id() && remote.host != 0 => Reach::Same(remote.host),
            None => {
                return Err(Error::misuse(
                    "a peer's region is private memory of another process, which an emulated adapter cannot reach: register memory \
                     that is a shared file (`Memory::file`)",
                ));
            }
        };
        self.maps.insert(remote.rkey, reach);
        Ok(())
    }

    /// Where `bytes` at `addr` under `key` are for this process, if the region is valid and holds them.
    pub fn find(&self, key: u32, addr: u64, bytes: u64) -> Option<*mut u8> {
        let (base, size) = self.port.find(key)?;
        let offset = addr.checked_sub(base)?;
        if offset.checked_add(bytes)? > size {
            return None;
        }
        match self.maps.get(&key)? {
            Reach::Same(host) => Some((host + offset) as *mut u8),
            // SAFETY: within the mapping: the file was as large as the region when it was admitted.
            Reach::Mapped(map, start) => Some(unsafe { map.as_mut_ptr().add((start + offset) as usize) }),
        }
    }
}
