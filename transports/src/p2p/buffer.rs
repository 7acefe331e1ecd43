//! Buffers that adapters reach, and their registrations.

use super::{Error, Result};
use crate::host::Mapping;
use crate::rdma::bytes::{copy_in, copy_out};
use crate::rdma::{Access, Adapter, Registration};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of this process that peers may be given to write: a shared handle.
///
/// Copies in and out are atomic by byte at least, so that any thread and any peer may make them at any time. A peer's write and a `read`
/// of the same bytes are ordered by the transport's requests and control messages; without, the bytes come out old, new or mixed.
#[derive(Clone)]
pub struct HostBuffer(Arc<Pages>);

enum Pages {
    Mapped(Mapping),
    Heap(Box<[std::cell::UnsafeCell<u8>]>),
}

// SAFETY: the bytes are reached by atomic copies alone, and by adapters.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl HostBuffer {
    /// Zeroed pages.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn new(bytes: usize) -> Result<Self> {
        Ok(HostBuffer(Arc::new(Pages::Mapped(Mapping::create(bytes.next_multiple_of(4096).max(4096))?))))
    }

    /// Takes over memory of the heap.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        let start = Box::into_raw(bytes.into_boxed_slice()).cast::<std::cell::UnsafeCell<u8>>();
        // SAFETY: the same allocation; `UnsafeCell<u8>` has the layout of `u8`.
        HostBuffer(Arc::new(Pages::Heap(unsafe {
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, len))
        })))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        match &*self.0 {
            Pages::Mapped(mapping) => mapping.bytes(),
            Pages::Heap(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn start(&self) -> *mut u8 {
        match &*self.0 {
            Pages::Mapped(mapping) => mapping.address() as *mut u8,
            Pages::Heap(bytes) => bytes.as_ptr().cast_mut().cast(),
        }
    }

    /// The range, if it is within the buffer.
    pub(crate) fn check(&self, offset: usize, bytes: usize) -> Result<Range<usize>> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len() => Ok(offset..end),
            _ => Err(Error::misuse(format!("{bytes} bytes at {offset} of a buffer of {}", self.len()))),
        }
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`Error::Misuse`] past the end.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        // SAFETY: in bounds by the check; all access is by such copies.
        unsafe { copy_in(self.start().add(offset), bytes) };
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`Error::Misuse`] past the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        // SAFETY: in bounds by the check; all access is by such copies.
        unsafe { copy_out(self.start().add(offset), into) };
        Ok(())
    }

    /// Copies out all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        // SAFETY: in bounds; all access is by such copies.
        unsafe { copy_out(self.start(), &mut bytes) };
        bytes
    }

    fn is(&self, other: &HostBuffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer of {} bytes at {:p}", self.len(), self.start())
    }
}

/// A buffer that is registered, whole, for peers to write and read.
#[derive(Debug)]
pub struct Registered {
    // Ended before the buffer goes.
    registration: Box<dyn Registration>,
    buffer: HostBuffer,
}

impl Registered {
    /// Registers a buffer outside of any cache.
    ///
    /// # Errors
    /// If the adapter refuses.
    pub fn new(adapter: &dyn Adapter, buffer: &HostBuffer) -> Result<Self> {
        // SAFETY: the buffer is held beside the registration; its bytes are reached through raw pointers.
        let registration = unsafe { adapter.register(buffer.start(), buffer.len(), Access::ALL)? };
        Ok(Registered { registration, buffer: buffer.clone() })
    }

    /// The keys.
    pub fn registration(&self) -> &dyn Registration {
        &*self.registration
    }

    /// The buffer.
    pub fn buffer(&self) -> &HostBuffer {
        &self.buffer
    }
}

/// Registrations by buffer: a buffer is registered once, for as long as it is used.
#[derive(Debug)]
pub struct Registrations {
    adapter: Arc<dyn Adapter>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: Vec<Arc<Registered>>,
    counts: Counts,
}

/// What a cache of registrations has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Buffers found registered.
    pub hits: u64,
    /// Buffers registered.
    pub misses: u64,
    /// Registrations ended.
    pub ended: u64,
}

impl Registrations {
    pub(crate) fn new(adapter: Arc<dyn Adapter>) -> Self {
        Registrations { adapter, kept: Mutex::default() }
    }

    /// The registration of a buffer: the one there is, or a new one. Those whose buffers nobody else has are ended.
    ///
    /// # Errors
    /// If the adapter refuses.
    pub fn of(&self, buffer: &HostBuffer) -> Result<Arc<Registered>> {
        let mut kept = self.lock();
        trim(&mut kept, Some(buffer));
        if let Some(found) = kept.entries.iter().find(|entry| entry.buffer.is(buffer)).cloned() {
            kept.counts.hits += 1;
            return Ok(found);
        }
        let made = Arc::new(Registered::new(&*self.adapter, buffer)?);
        kept.entries.push(Arc::clone(&made));
        kept.counts.misses += 1;
        Ok(made)
    }

    /// Ends the registrations of buffers that nobody else has; what has been done so far.
    pub fn trim(&self) -> Counts {
        let mut kept = self.lock();
        trim(&mut kept, None);
        kept.counts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Used by nobody: the registration is the cache's alone, and the buffer the registration's.
fn trim(kept: &mut Kept, but: Option<&HostBuffer>) {
    let before = kept.entries.len();
    kept.entries.retain(|entry| {
        but.is_some_and(|b| b.is(&entry.buffer))
            || Arc::strong_count(entry) > 1
            || Arc::strong_count(&entry.buffer.0) > 1
    });
    kept.counts.ended += (before - kept.entries.len()) as u64;
}
