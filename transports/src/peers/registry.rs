//! Registered memory: once for each allocation, however many buffers in it are in use.

use super::PeersError;
use crate::host::Result;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// What an adapter gives out for registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKeys {
    /// For this rank's own operations.
    pub local: u32,
    /// For the peers'; no two regions have the same.
    pub remote: u32,
}

/// A whole allocation: what adapters register.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    /// Address of its first byte.
    pub base: u64,
    /// Bytes.
    pub bytes: u64,
    /// The file that it is a mapping of, if it is one: what another process's emulated adapter maps.
    pub file: Option<BorrowedFd<'a>>,
}

/// The part of an adapter that registers memory. A call takes long (it pins pages): the cache makes few.
///
/// # Safety
/// Keys are of the memory that was registered, until it is taken back.
pub unsafe trait Registrar: Send + Sync {
    /// Registers an allocation, from its base: a GPU's memory cannot be exported from the middle.
    ///
    /// # Errors
    /// If the adapter refuses.
    ///
    /// # Safety
    /// The memory stays valid until [`Registrar::deregister`] has returned.
    unsafe fn register(&self, allocation: Allocation<'_>) -> Result<MemoryKeys>;
    /// Takes a registration back.
    fn deregister(&self, keys: MemoryKeys);
}

struct Entry {
    bytes: u64,
    keys: MemoryKeys,
    users: usize,
}

/// Registrations by the base of their allocation.
pub(super) struct Cache {
    registrar: Arc<dyn Registrar>,
    entries: Mutex<HashMap<u64, Entry>>,
}

impl Cache {
    pub fn new(registrar: Arc<dyn Registrar>) -> Arc<Self> {
        Arc::new(Cache { registrar, entries: Mutex::default() })
    }

    /// Counts a use of the allocation; the adapter is asked only for the first.
    ///
    /// # Safety
    /// The allocation stays valid until the registration is dropped.
    pub unsafe fn register(
        self: &Arc<Self>,
        allocation: Allocation<'_>,
        start: u64,
        bytes: u64,
    ) -> Result<Registration> {
        let Allocation { base, bytes: size, .. } = allocation;
        let end = start.checked_add(bytes);
        if start < base || end.is_none_or(|end| end - base > size) {
            let what = format!(
                "{bytes} bytes at {start:#x} do not lie within their allocation of {size} bytes at {base:#x}"
            );
            return Err(PeersError::Foreign { what }.into());
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = match entries.get_mut(&base) {
            Some(entry) if entry.bytes == size => {
                entry.users += 1;
                entry.keys
            }
            Some(entry) => {
                let what = format!(
                    "the allocation at {base:#x} is registered with {} bytes, and now it should have {size}: drop its registration before it is freed",
                    entry.bytes
                );
                return Err(PeersError::Foreign { what }.into());
            }
            None => {
                // SAFETY: the caller's contract; the last registration of it takes it back.
                let keys = unsafe { self.registrar.register(allocation)? };
                entries.insert(base, Entry { bytes: size, keys, users: 1 });
                keys
            }
        };
        Ok(Registration { start, bytes, keys: Some((Arc::clone(self), base, keys)) })
    }

    fn release(&self, base: u64) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get_mut(&base) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            let keys = entry.keys;
            entries.remove(&base);
            self.registrar.deregister(keys);
        }
    }

    /// Allocations that are registered now.
    pub fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A range of registered memory; deregistered when the last range of its allocation is dropped. Without an adapter there was nothing
/// to do, and it has no keys.
#[must_use = "dropping it deregisters the memory"]
pub struct Registration {
    start: u64,
    bytes: u64,
    keys: Option<(Arc<Cache>, u64, MemoryKeys)>,
}

impl Registration {
    /// Of a rank that has no adapter.
    pub(super) fn unneeded(start: u64, bytes: u64) -> Self {
        Registration { start, bytes, keys: None }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.start
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The adapter's keys; `None` without an adapter.
    pub fn keys(&self) -> Option<MemoryKeys> {
        self.keys.as_ref().map(|k| k.2)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some((cache, base, _)) = self.keys.take() {
            cache.release(base);
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}, {:?}", self.bytes, self.start, self.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::{Allocation, Cache, MemoryKeys, Registrar, Registration};
    use crate::host::{Error, Result};
    use std::sync::{Arc, Mutex};

    /// Notes what it is asked for.
    #[derive(Default)]
    struct Noted(Mutex<Vec<String>>);

    // SAFETY: nothing follows these keys.
    unsafe impl Registrar for Noted {
        unsafe fn register(&self, allocation: Allocation<'_>) -> Result<MemoryKeys> {
            self.0.lock().unwrap().push(format!("register {:#x}+{}", allocation.base, allocation.bytes));
            if allocation.bytes == 13 {
                return Err(Error::Misuse { what: "thirteen".into() });
            }
            Ok(MemoryKeys { local: 7, remote: allocation.base as u32 })
        }
        fn deregister(&self, keys: MemoryKeys) {
            self.0.lock().unwrap().push(format!("deregister {:#x}", keys.remote));
        }
    }

    fn whole(base: u64, bytes: u64) -> Allocation<'static> {
        Allocation { base, bytes, file: None }
    }

    /// Of memory that is not there: `Noted` only notes.
    fn register(cache: &Arc<Cache>, of: Allocation<'_>, start: u64, bytes: u64) -> Result<Registration> {
        // SAFETY: nobody looks at the memory.
        unsafe { cache.register(of, start, bytes) }
    }

    #[test]
    fn an_allocation_is_registered_once_from_its_base() {
        let noted = Arc::new(Noted::default());
        let cache = Cache::new(noted.clone());
        let page = whole(0x1000, 4096);
        let other = whole(0x9000, 64);
        let a = register(&cache, page, 0x1000, 4096).unwrap();
        let b = register(&cache, page, 0x1800, 16).unwrap();
        let c = register(&cache, other, 0x9000, 64).unwrap();
        assert_eq!((a.keys(), cache.len()), (b.keys(), 2));
        assert_eq!((b.address(), b.bytes()), (0x1800, 16));
        drop(a);
        assert_eq!(cache.len(), 2);
        drop((c, b));
        assert_eq!(cache.len(), 0);
        let again = register(&cache, page, 0x1001, 1).unwrap();
        drop(again);
        let want = [
            "register 0x1000+4096",
            "register 0x9000+64",
            "deregister 0x9000",
            "deregister 0x1000",
            "register 0x1000+4096",
            "deregister 0x1000",
        ];
        assert_eq!(*noted.0.lock().unwrap(), want);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_leaves_nothing() {
        let noted = Arc::new(Noted::default());
        let cache = Cache::new(noted.clone());
        let page = whole(0x1000, 4096);
        for (start, bytes) in [(0xfff, 2), (0x1001, 4096), (0x2000, 1), (0x1000, u64::MAX), (u64::MAX, 2)] {
            let error = register(&cache, page, start, bytes).unwrap_err().to_string();
            assert!(error.contains("do not lie within"), "{error}");
        }
        assert!(noted.0.lock().unwrap().is_empty());
        assert!(register(&cache, whole(1, 13), 1, 13).is_err());
        let held = register(&cache, page, 0x1000, 1).unwrap();
        let grown = register(&cache, whole(0x1000, 8192), 0x1000, 1).unwrap_err();
        assert!(grown.to_string().contains("registered with 4096 bytes"), "{grown}");
        drop(held);
        assert_eq!(cache.len(), 0);
    }
}
