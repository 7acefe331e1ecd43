//! A port: what an emulated adapter shows to its peers, in memory that all of them map.

use crate::nic::{Error, Result, Share};
use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Regions that one adapter can have registered.
pub(super) const REGIONS: usize = 1024;

/// The page itself: zero at first. Whoever maps it may write it, so no address and no size is in it.
#[repr(C)]
pub(super) struct Page {
    /// 0: nobody is there any more.
    pub alive: AtomicU32,
    /// 0: the cable is out.
    pub link: AtomicU32,
    /// Requests that are still to be answered with "not ready".
    pub not_ready: AtomicU32,
    reserved: AtomicU32,
    /// Keys of the regions that are registered; else 0.
    keys: [AtomicU32; REGIONS],
}

/// The size stays as it is, and so does that: memory that became shorter would end whoever has it mapped.
const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[derive(Debug)]
pub(super) struct Port {
    map: MmapRaw,
    fd: OwnedFd,
}

impl Port {
    pub fn create() -> Result<Port> {
        let fd = memfd_create("fusewire-port", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|e| Error::system("creating an emulated port")(e.into()))?;
        ftruncate(&fd, size_of::<Page>() as u64)
            .and_then(|()| fcntl_add_seals(&fd, SIZED))
            .map_err(|e| Error::system("sizing an emulated port")(e.into()))?;
        let port = Port::map(fd)?;
        port.page().alive.store(1, Ordering::Release);
        port.page().link.store(1, Ordering::Release);
        Ok(port)
    }

    pub fn map(fd: OwnedFd) -> Result<Port> {
        let file = File::from(fd);
        let size = file.metadata().map_err(Error::system("looking at an emulated port"))?.len();
        if size < size_of::<Page>() as u64 || !is_sized(&file) {
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
    pub fn publish(&self, key: u32) {
        self.page().keys[slot_of(key)].store(key, Ordering::Release);
    }

    /// Takes the region in this slot back.
    pub fn revoke(&self, slot: usize) {
        self.page().keys[slot].store(0, Ordering::Release);
    }

    /// Whether a region has this key.
    fn has(&self, key: u32) -> bool {
        let slot = self.page().keys.get(slot_of(key));
        key != 0 && slot.is_some_and(|slot| slot.load(Ordering::Acquire) == key)
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

fn is_sized(file: &File) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SIZED))
}

/// A peer: its port, and its regions.
#[derive(Debug)]
pub(super) struct Peer {
    pub port: Port,
    regions: HashMap<u32, Reach>,
}

/// A region, as it was when it was admitted.
#[derive(Debug)]
struct Reach {
    addr: u64,
    bytes: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The owner's own address: it is this process.
    Same(u64),
    /// A mapping, and where the region begins in it.
    Mapped(MmapRaw, u64),
}

impl Peer {
    pub fn new(port: Port) -> Peer {
        Peer { port, regions: HashMap::new() }
    }

    pub fn admit(&mut self, share: Share) -> Result<()> {
        let remote = share.remote;
        let place = match share.file {
            Some(fd) => {
                let file = File::from(fd);
                let size = file.metadata().map_err(Error::system("looking at a peer's memory"))?.len();
                if size < remote.offset.saturating_add(remote.bytes) {
                    return Err(Error::misuse(format!(
                        "a peer shared a file of {size} bytes for a region of {} at {}",
                        remote.bytes, remote.offset
                    )));
                }
                if !is_sized(&file) {
                    return Err(Error::misuse(
                        "a peer shared a file whose size can change: all ranks must run the same version",
                    ));
                }
                let map = MmapRaw::map_raw(&file).map_err(Error::system("mapping a peer's memory"))?;
                Place::Mapped(map, remote.offset)
            }
            None if remote.process == std::process::id() && remote.host != 0 => Place::Same(remote.host),
            None => {
                return Err(Error::misuse(
                    "a peer's region is private memory of another process, which an emulated adapter cannot reach: register memory \
                     that is a shared file (`Memory::file`)",
                ));
            }
        };
        self.regions.insert(remote.rkey, Reach { addr: remote.addr, bytes: remote.bytes, place });
        Ok(())
    }

    /// Where `bytes` at `addr` under `key` are for this process, if the region is valid and holds them.
    pub fn find(&self, key: u32, addr: u64, bytes: u64) -> Option<*mut u8> {
        let Reach { addr: base, bytes: size, place } =
            self.regions.get(&key).filter(|_| self.port.has(key))?;
        let offset = addr.checked_sub(*base)?;
        if offset.checked_add(bytes)? > *size {
            return None;
        }
        match place {
            Place::Same(host) => Some((host + offset) as *mut u8),
            // SAFETY: within the mapping: the file was as large as the region when it was admitted, and is sealed.
            Place::Mapped(map, start) => Some(unsafe { map.as_mut_ptr().add((start + offset) as usize) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Remote;

    const BYTES: u64 = 1 << 12;
    const ADDR: u64 = 0x10_0000;
    const KEY: u32 = 5 << 8 | 1;

    fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
        let fd = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, bytes).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    fn share(file: OwnedFd, offset: u64) -> Share {
        let remote = Remote { addr: ADDR, bytes: BYTES, rkey: KEY, process: 0, host: 0, offset };
        Share { remote, file: Some(file) }
    }

    /// Whatever a peer writes into pages that it maps: accesses stay within what it shared.
    #[test]
    fn pages_that_peers_write_bound_nothing() {
        let owner = Port::create().unwrap();
        let mut peer = Peer::new(Port::map(owner.fd().unwrap()).unwrap());
        peer.admit(share(file(2 * BYTES, SIZED), 0)).unwrap();
        assert!(peer.find(KEY, ADDR, 8).is_none(), "not registered yet");
        // All of the page but the key itself.
        let page = std::ptr::from_ref(owner.page()).cast::<AtomicU32>();
        for word in 0..size_of::<Page>() / 4 {
            // SAFETY: a word of the page, which has only such words.
            unsafe { &*page.add(word) }.store(u32::MAX, Ordering::Relaxed);
        }
        owner.publish(KEY);
        assert!(peer.find(KEY, ADDR, BYTES).is_some());
        for (addr, bytes) in
            [(ADDR, BYTES + 1), (ADDR + BYTES, 1), (ADDR - 1, 1), (u64::MAX, 1), (ADDR, u64::MAX)]
        {
            assert!(peer.find(KEY, addr, bytes).is_none(), "{bytes} bytes at {addr:#x}");
        }
        // A key in a slot that there is not, or that was not shared.
        assert!(peer.find(u32::MAX, ADDR, 8).is_none());
        owner.publish(6 << 8 | 1);
        assert!(peer.find(6 << 8 | 1, ADDR, 8).is_none());
        owner.revoke(slot_of(KEY));
        assert!(peer.find(KEY, ADDR, 8).is_none(), "taken back");
    }

    #[test]
    fn files_are_as_long_as_is_said_and_stay_so() {
        let mut peer = Peer::new(Port::create().unwrap());
        for offset in [1, BYTES, u64::MAX] {
            let text = peer.admit(share(file(BYTES, SIZED), offset)).unwrap_err().to_string();
            assert!(text.contains("a file of 4096 bytes for a region of 4096"), "{text}");
        }
        let text = peer.admit(share(file(BYTES, SealFlags::GROW), 0)).unwrap_err().to_string();
        assert!(text.contains("whose size can change"), "{text}");
        assert!(Port::map(file(1 << 20, SealFlags::GROW)).is_err());
        assert!(Port::map(file(16, SIZED)).is_err());
    }
}
