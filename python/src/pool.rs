//! Symmetric memory for pools of PyTorch. A `torch.cuda.MemPool` takes two functions of C that are told sizes and streams, and no transport: so there is a
//! pair of functions for each pool that there can be.
//!
//! PyTorch calls them with its allocator locked, and nothing here takes Python's lock: a thread that has that may be waiting for the allocator's.

use crate::error::{Said, misuse};
use crate::handle::Handle;
use crate::open::Open;
use fusewire_capi::{fusewire_status, fusewire_symmetric};
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pool's memory, by the pair of functions that PyTorch calls.
struct Slot(Mutex<Option<Pool>>);

struct Pool {
    on: Arc<Open>,
    live: Vec<Segment>,
    /// What could not be given back yet, and the stream that may use it.
    kept: Vec<(Segment, usize)>,
    /// Python has no pool of it any more.
    closed: bool,
}

type Segment = Handle<fusewire_symmetric>;

fn address(segment: &Segment) -> *mut c_void {
    // SAFETY: the memory is there.
    unsafe { (segment.api.fusewire_symmetric_address)(segment.get().0) }.cast()
}

impl Pool {
    /// Gives a segment back behind what its stream has queued; not, if that cannot be.
    fn give_back(&self, segment: &Segment, stream: usize) -> bool {
        let (api, mut at) = (segment.api, ptr::null_mut());
        // SAFETY: PyTorch's stream, as it names it; `at` takes the handle, which is freed here.
        unsafe {
            let raw = ptr::with_exposed_provenance_mut(stream);
            let wrapped = (api.fusewire_stream_wrap)(self.on.handle.get().0, raw, &mut at);
            let handed = wrapped == fusewire_status::FUSEWIRE_OK
                && (api.fusewire_symmetric_hand_to)(segment.get().0, at) == fusewire_status::FUSEWIRE_OK;
            if !at.is_null() {
                (api.fusewire_stream_free)(at);
            }
            handed
        }
    }

    fn settle(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.kept = kept.into_iter().filter(|(segment, stream)| !self.give_back(segment, *stream)).collect();
    }
}

impl Slot {
    const fn new() -> Self {
        Slot(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of so many bytes on every rank; null if there is none, which PyTorch takes for want of memory. Collective.
    fn alloc(&self, bytes: isize, device: c_int) -> *mut c_void {
        let Some(on) = self.lock().as_ref().map(|pool| Arc::clone(&pool.on)) else { return ptr::null_mut() };
        let refused = |what: String| {
            // PyTorch says no more than that there is no memory. A message that cannot be written is no reason to end the process.
            let asked = format!("a pool of symmetric memory needs {bytes} more bytes on every rank");
            let _ = writeln!(std::io::stderr(), "fusewire: {asked}: {what}");
            ptr::null_mut()
        };
        if device != on.device {
            let own = on.device;
            return refused(format!("the pool is of GPU {own}, but PyTorch allocates on GPU {device}"));
        }
        let (api, mut at) = (on.handle.api, ptr::null_mut());
        // SAFETY: the transport is there, and `at` takes the memory.
        let status =
            unsafe { (api.fusewire_symmetric_new)(on.handle.get().0, bytes.max(1) as usize, &mut at) };
        if status != fusewire_status::FUSEWIRE_OK {
            return refused(format!(
                "{} (all ranks allocate and free the same in their pools, in the same order)",
                Said::last(api).message
            ));
        }
        // SAFETY: made just now.
        let segment = unsafe { Handle::new(api, at, api.fusewire_symmetric_free) };
        let start = address(&segment);
        // It may have been closed meanwhile, and be another's.
        match &mut *self.lock() {
            Some(pool) if Arc::ptr_eq(&pool.on, &on) => {
                pool.settle();
                pool.live.push(segment);
                start
            }
            _ => refused("the pool was closed meanwhile".into()),
        }
    }

    fn free(&self, at: *mut c_void, stream: *mut c_void) {
        let mut slot = self.lock();
        if let Some(pool) = &mut *slot {
            if let Some(k) = pool.live.iter().position(|segment| address(segment) == at) {
                let segment = pool.live.swap_remove(k);
                pool.kept.push((segment, stream.expose_provenance()));
            }
            pool.settle();
        }
        self.end(slot);
    }

    /// Lets go of a pool that nobody has, of which nothing is left.
    fn end(&self, mut slot: MutexGuard<'_, Option<Pool>>) {
        let ended = slot.take_if(|pool| pool.closed && pool.live.is_empty() && pool.kept.is_empty());
        drop(slot);
        drop(ended);
    }
}

macro_rules! slots {
    ($($number:literal $alloc:ident $free:ident;)*) => {
        static SLOTS: [Slot; [$($number),*].len()] = [const { Slot::new() }; [$($number),*].len()];
        /// Their names, by which PyTorch finds them.
        const NAMES: [[&str; 2]; SLOTS.len()] = [$([stringify!($alloc), stringify!($free)]),*];
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $alloc(bytes: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
                SLOTS[$number].alloc(bytes, device)
            }

            #[unsafe(no_mangle)]
            extern "C" fn $free(at: *mut c_void, _bytes: isize, _device: c_int, stream: *mut c_void) {
                SLOTS[$number].free(at, stream);
            }
        )*
    };
}

slots! {
    0 fusewire_pool_0_alloc fusewire_pool_0_free;
    1 fusewire_pool_1_alloc fusewire_pool_1_free;
    2 fusewire_pool_2_alloc fusewire_pool_2_free;
    3 fusewire_pool_3_alloc fusewire_pool_3_free;
    4 fusewire_pool_4_alloc fusewire_pool_4_free;
    5 fusewire_pool_5_alloc fusewire_pool_5_free;
    6 fusewire_pool_6_alloc fusewire_pool_6_free;
    7 fusewire_pool_7_alloc fusewire_pool_7_free;
}

/// A pair of functions for a pool on a transport: its number and their names.
pub fn open(py: Python<'_>, on: &Arc<Open>) -> PyResult<(usize, &'static str, &'static str)> {
    for (number, slot) in SLOTS.iter().enumerate() {
        let mut pool = slot.lock();
        pool.iter_mut().for_each(Pool::settle);
        slot.end(pool);
        let mut slot = slot.lock();
        if slot.is_none() {
            *slot = Some(Pool { on: Arc::clone(on), live: Vec::new(), kept: Vec::new(), closed: false });
            let [alloc, free] = NAMES[number];
            return Ok((number, alloc, free));
        }
    }
    Err(misuse(
        py,
        format!(
            "there are {} pools of symmetric memory in this process, which is the most: use one again, or delete pools with all their tensors and call \
             `torch.cuda.empty_cache()`",
            SLOTS.len()
        ),
    ))
}

/// Python has no pool of this number any more; tensors of it may be left.
#[pyfunction]
pub fn _pool_closed(number: usize) {
    let Some(slot) = SLOTS.get(number) else { return };
    let mut pool = slot.lock();
    if let Some(pool) = &mut *pool {
        pool.closed = true;
        pool.settle();
    }
    slot.end(pool);
}
