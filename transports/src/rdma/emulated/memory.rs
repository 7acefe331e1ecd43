//! Registered memory, and the only accesses to it.

use crate::rdma::bytes::{copy_in, copy_out};
use crate::rdma::{Access, Registration};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What a key stands for.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    bytes: u64,
    access: Access,
}

/// Keys of an adapter. Accesses happen under its lock, so none outlives a registration.
#[derive(Debug, Default)]
pub struct Table {
    entries: RwLock<HashMap<u32, Entry>>,
    next: AtomicU32,
}

/// What a request wants to do with remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The own adapter, on behalf of its own process.
    Local,
    Write,
    Read,
    Atomic,
}

/// The key does not allow it.
#[derive(Clone, Copy, Debug)]
pub struct Refused;

impl Table {
    /// See [`crate::rdma::Adapter::register`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn register(table: &Arc<Self>, start: *mut u8, bytes: usize, access: Access) -> Registered {
        // Keys that follow each other are far apart, so that a wrong one is no key at all.
        let key = table.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9);
        let entry = Entry { start: start as u64, bytes: bytes as u64, access };
        table.write().insert(key, entry);
        Registered { table: Arc::clone(table), entry, key }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<u32, Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<u32, Entry>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        key: u32,
        at: u64,
        bytes: usize,
        right: Right,
        access: impl FnOnce(*mut u8) -> T,
    ) -> Result<T, Refused> {
        let entries = self.read();
        let entry = entries.get(&key).ok_or(Refused)?;
        let allowed = match right {
            Right::Local => true,
            Right::Write => entry.access.remote_write,
            Right::Read => entry.access.remote_read,
            Right::Atomic => entry.access.remote_atomic && at.is_multiple_of(8),
        };
        let offset = at.checked_sub(entry.start).ok_or(Refused)?;
        let within = offset.checked_add(bytes as u64).is_some_and(|end| end <= entry.bytes);
        // The read lock is held: nobody ends the registration meanwhile.
        if allowed && within { Ok(access(at as *mut u8)) } else { Err(Refused) }
    }

    /// Whether that could be done.
    pub fn check(&self, key: u32, at: u64, bytes: usize, right: Right) -> Result<(), Refused> {
        self.with(key, at, bytes, right, |_| ())
    }

    /// Copies into registered memory. Aligned words of up to 8 bytes arrive whole and after everything before them.
    pub fn store(&self, key: u32, at: u64, bytes: &[u8], right: Right) -> Result<(), Refused> {
        self.with(key, at, bytes.len(), right, |to| {
            // SAFETY: registered memory, in bounds by `with`; its owner orders accesses by flags, which are stored whole.
            unsafe {
                match bytes.try_into() {
                    Ok(word) if at.is_multiple_of(8) => {
                        AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes(word), Ordering::Release);
                    }
                    _ => {
                        fence(Ordering::Release);
                        copy_in(to, bytes);
                    }
                }
            }
        })
    }

    /// Copies out of registered memory.
    pub fn load(
        &self,
        key: u32,
        at: u64,
        bytes: usize,
        right: Right,
        into: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        self.with(key, at, bytes, right, |from| {
            fence(Ordering::Acquire);
            let had = into.len();
            into.resize(had + bytes, 0);
            // SAFETY: registered memory, in bounds by `with`; its owner's protocol keeps others from it, or they use atomics too.
            unsafe { copy_out(from, &mut into[had..]) };
        })
    }

    /// Changes a word; the old value.
    pub fn modify(&self, key: u32, at: u64, change: impl Fn(u64) -> Option<u64>) -> Result<u64, Refused> {
        self.with(key, at, 8, Right::Atomic, |word| {
            // SAFETY: a registered, aligned word, in bounds by `with`.
            let word = unsafe { AtomicU64::from_ptr(word.cast()) };
            match word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change) {
                Ok(old) | Err(old) => old,
            }
        })
    }
}

/// A registration; ended when dropped.
#[derive(Debug)]
pub struct Registered {
    table: Arc<Table>,
    entry: Entry,
    key: u32,
}

// SAFETY: the key is found as long as the value lives.
unsafe impl Registration for Registered {
    fn start(&self) -> u64 {
        self.entry.start
    }

    fn bytes(&self) -> usize {
        self.entry.bytes as usize
    }

    fn lkey(&self) -> u32 {
        self.key
    }

    fn rkey(&self) -> u32 {
        self.key
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.table.write().remove(&self.key);
    }
}
