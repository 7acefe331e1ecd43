//! A queue pair as kernels see it.
//!
//! Any number of threads post to one queue:
//!
//! 1. *Reserve.* A compare-and-swap takes the next indices if the queue has room. A thread that finds none rings the doorbell for
//!    whatever is ready, takes in completions and looks again: it holds no index meanwhile, so nobody waits for it, and a group that
//!    posts more than the queue holds waits only for entries that the adapter has.
//! 2. *Write* the entries.
//! 3. *Mark ready.* Each index has a word that says so. Nobody waits for the threads before it.
//! 4. *Ring.* Whoever finds no other thread at it takes over: it follows the ready indices in order, writes the doorbell record and
//!    rings, and looks again as long as others came meanwhile. So doorbells of many threads become few.
//!
//! Every entry is reported, at the place in the completion queue that has its index: a thread looks for its own entry there, without
//! a lock. The completion queue's consumer index is written by the thread that rings, so it has one writer, and what is posted is
//! never more than the completion queue has room for.

use super::wait::{Broken, Patience};
use super::wqe::{self, Entry, Head};
use crate::device::arch;
use crate::device::atomic::{self, AcqRel, Acquire, Device, Modify, Relaxed, Release, System};
use crate::device::wait::Control;

/// A queue pair and its completion queue: where they are. Plain data that kernels read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Queue {
    /// Address of the send queue: `depth` blocks of 64 bytes.
    pub sq: u64,
    /// Address of the send queue's doorbell record: a big-endian `u32`.
    pub sq_record: u64,
    /// Address of the doorbell: 8 bytes of the adapter's page.
    pub doorbell: u64,
    /// Address of the completion queue: `depth` entries of 64 bytes.
    pub cq: u64,
    /// Address of the completion queue's consumer index: a big-endian `u32`.
    pub cq_record: u64,
    /// Address of the [`QueueState`], followed by `depth` words.
    pub state: u64,
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// Number of the completion queue, 24 bits.
    pub cqn: u32,
    /// Entries; a power of two, 2 to 32,768.
    pub depth: u32,
    /// Zero.
    pub reserved: u32,
}

/// What threads that share a queue agree by. Zero at first; in memory of the machine that runs the kernels.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(all(feature = "host", not(target_arch = "nvptx64")), derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct QueueState {
    /// Next index that nobody has taken.
    pub reserved: u64,
    /// Threads that want the doorbell rung since it was last at rest.
    pub requests: u64,
    /// Indices below are the adapter's.
    pub posted: u64,
    /// Indices below are known to be done.
    pub completed: u64,
    /// 0, or why the queue refuses everything.
    pub error: u64,
    /// To the end of the line.
    pub padding: [u64; 11],
}

/// Bytes of a [`QueueState`] and the words after it.
pub const fn state_bytes(depth: u32) -> u64 {
    size_of::<QueueState>() as u64 + 8 * depth as u64
}

/// [`QueueState::error`] of a queue at which somebody gave up waiting.
const GIVEN_UP: u64 = 1 << 63;
const FAILED: u64 = 1 << 62;

/// Completion opcodes and the syndrome of entries that an earlier error took along.
const REQUEST_ERROR: u32 = 13;
const INVALID: u32 = 15;
const FLUSHED: u8 = 5;

/// Where an entry is.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    Pending,
    Done,
    Failed(u8),
}

/// A word of the live state that `Queue::state` names; for use in an unsafe block.
macro_rules! word {
    ($queue:expr, $field:ident) => {
        &raw mut (*($queue.state as *mut QueueState)).$field
    };
}

impl Queue {
    /// Posts `N` entries that follow each other; `make` gives each from its place and its head. With `ring` the adapter is told.
    /// Returns the index of the last.
    ///
    /// # Errors
    /// Why there was no room: see [`Broken`]. Nothing was posted then.
    ///
    /// # Safety
    /// The queue is live, and what the entries name is registered. `N` is at most half the queue's depth.
    #[inline(always)]
    pub unsafe fn post<const N: usize>(
        &self,
        control: &Control,
        ring: bool,
        make: impl Fn(usize, Head) -> Entry,
    ) -> Result<u64, Broken> {
        let first = self.reserve(N as u64, control)?;
        let mut k = 0;
        while k < N {
            let index = first.wrapping_add(k as u64);
            let entry = make(k, Head { qpn: self.qpn, index, fence: false });
            self.write(index, &entry);
            k += 1;
        }
        let mut k = 0;
        while k < N {
            let index = first.wrapping_add(k as u64);
            // SAFETY: the word of an index that this thread reserved.
            unsafe { atomic::store::<Device, Release, u64>(self.ready(index), index.wrapping_add(1)) };
            k += 1;
        }
        if ring {
            self.ring();
        }
        Ok(first.wrapping_add(N as u64 - 1))
    }

    #[inline(always)]
    fn reserve(&self, n: u64, control: &Control) -> Result<u64, Broken> {
        let mut patience: Option<Patience> = None;
        loop {
            if let Some(broken) = self.broken() {
                return Err(broken);
            }
            // SAFETY: live state.
            let (next, done) = unsafe {
                (
                    atomic::load::<Device, Relaxed, u64>(word!(self, reserved)),
                    atomic::load::<Device, Acquire, u64>(word!(self, completed)),
                )
            };
            if next.wrapping_add(n).wrapping_sub(done) <= u64::from(self.depth) {
                // SAFETY: live state.
                let was = unsafe {
                    <u64 as Modify<Device, AcqRel>>::compare_exchange(
                        word!(self, reserved),
                        next,
                        next.wrapping_add(n),
                    )
                };
                if was == next {
                    return Ok(next);
                }
                continue;
            }
            // Entries may be ready that nobody has rung for.
            self.ring();
            if self.look(done) == Look::Pending {
                let waiting = patience.get_or_insert_with(Patience::begin);
                if let Err(broken) = waiting.turn(control) {
                    // Nothing may follow what was left out here.
                    self.refuse(GIVEN_UP);
                    return Err(broken);
                }
            }
        }
    }

    #[inline(always)]
    fn ready(&self, index: u64) -> *mut u64 {
        let at = self.state + size_of::<QueueState>() as u64 + 8 * (index & (u64::from(self.depth) - 1));
        at as *mut u64
    }

    #[inline(always)]
    fn write(&self, index: u64, entry: &Entry) {
        let at = (self.sq + wqe::BYTES * (index & (u64::from(self.depth) - 1))) as *mut u8;
        let mut k = 0;
        while k < 4 {
            if k < entry.used as usize {
                // SAFETY: the block of an index that this thread reserved, whose last entry the adapter is done with.
                unsafe { arch::store_16(at.add(16 * k), entry.segments[k]) };
            }
            k += 1;
        }
    }

    /// Tells the adapter of everything that is ready, in order.
    #[inline(always)]
    pub fn ring(&self) {
        // SAFETY: live state.
        if unsafe { <u64 as Modify<Device, AcqRel>>::fetch_add(word!(self, requests), 1) } != 0 {
            // Whoever is at it looks again.
            return;
        }
        let mut requests = 1;
        loop {
            self.submit();
            // SAFETY: live state.
            let was = unsafe {
                <u64 as Modify<Device, AcqRel>>::compare_exchange(word!(self, requests), requests, 0)
            };
            if was == requests {
                return;
            }
            requests = was;
        }
    }

    /// By one thread at a time.
    #[inline(always)]
    fn submit(&self) {
        // SAFETY: live state, written by the one thread that is here.
        let from = unsafe { atomic::load::<Device, Relaxed, u64>(word!(self, posted)) };
        let mut to = from;
        while to.wrapping_sub(from) < u64::from(self.depth) {
            // SAFETY: a live word.
            let ready = unsafe { atomic::load::<Device, Acquire, u64>(self.ready(to)) };
            if ready != to.wrapping_add(1) {
                break;
            }
            to = to.wrapping_add(1);
        }
        if to == from {
            return;
        }
        // SAFETY: live state, records and doorbell, written by the one thread that is here. The release makes the entries, and what
        // other threads had written before they marked theirs, visible to the adapter.
        unsafe {
            let done = atomic::load::<Device, Acquire, u64>(word!(self, completed));
            atomic::store::<Device, Relaxed, u64>(word!(self, posted), to);
            atomic::store::<System, Relaxed, u32>(
                self.cq_record as *mut u32,
                (done as u32 & wqe::COMPLETIONS).to_be(),
            );
            atomic::store::<System, Release, u32>(self.sq_record as *mut u32, (to as u32 & 0xffff).to_be());
            arch::fence_system();
            let doorbell = u64::from(((to as u32) << 8).to_be()) | u64::from((self.qpn << 8).to_be()) << 32;
            atomic::store::<System, Relaxed, u64>(self.doorbell as *mut u64, doorbell);
        }
    }

    /// Waits until the adapter is done with the entry at `index`, and so with all before it.
    ///
    /// # Errors
    /// See [`Broken`]; the entry may still be done later if it expired.
    ///
    /// # Safety
    /// The queue is live.
    #[inline(always)]
    pub unsafe fn wait(&self, index: u64, control: &Control) -> Result<(), Broken> {
        let mut patience = Patience::begin();
        loop {
            match self.look(index) {
                Look::Done => return Ok(()),
                Look::Failed(_) => return Err(self.broken().unwrap_or(Broken::Elsewhere)),
                Look::Pending => patience.turn(control)?,
            }
        }
    }

    /// Looks for the completion of one entry.
    #[inline(always)]
    fn look(&self, index: u64) -> Look {
        let look = self.completion(index);
        match look {
            Look::Pending => {}
            Look::Done => {
                // SAFETY: live state.
                unsafe {
                    <u64 as Modify<Device, AcqRel>>::fetch_max(word!(self, completed), index.wrapping_add(1))
                };
            }
            Look::Failed(_) => self.find_cause(index),
        }
        look
    }

    #[inline(always)]
    fn completion(&self, index: u64) -> Look {
        // SAFETY: live state.
        let known = || unsafe { atomic::load::<Device, Acquire, u64>(word!(self, completed)) } > index;
        if known() {
            return Look::Done;
        }
        let at = self.cq + 64 * (index & (u64::from(self.depth) - 1));
        // SAFETY: an entry of the live queue: counter, signature and owner are its last word.
        let last = unsafe { atomic::load::<System, Acquire, u32>((at + 60) as *const u32) };
        let last = u32::from_be(last);
        let (counter, opcode, owner) = (last >> 16, last >> 4 & 15, last & 1);
        let round = u32::from(index & u64::from(self.depth) != 0);
        if opcode == INVALID || owner != round || counter != index as u32 & 0xffff {
            // A later entry's, if it was taken in meanwhile.
            return if known() { Look::Done } else { Look::Pending };
        }
        if opcode == REQUEST_ERROR {
            // SAFETY: as above; the syndrome is the fourth byte of this word.
            let word = unsafe { atomic::load::<System, Relaxed, u32>((at + 52) as *const u32) };
            return Look::Failed(u32::from_be(word) as u8);
        }
        Look::Done
    }

    /// Notes the first entry up to `index` that failed by itself.
    #[cold]
    #[inline(never)]
    fn find_cause(&self, index: u64) {
        // SAFETY: live state.
        let mut at = unsafe { atomic::load::<Device, Acquire, u64>(word!(self, completed)) };
        while at != index.wrapping_add(1) {
            if let Look::Failed(syndrome) = self.completion(at)
                && (syndrome != FLUSHED || at == index)
            {
                return self.refuse(FAILED | u64::from(syndrome) << 48 | at & 0xffff_ffff_ffff);
            }
            at = at.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn refuse(&self, why: u64) {
        // SAFETY: live state.
        unsafe { <u64 as Modify<Device, AcqRel>>::compare_exchange(word!(self, error), 0, why) };
    }

    /// Why the queue refuses everything, if it does.
    #[inline(always)]
    pub fn broken(&self) -> Option<Broken> {
        // SAFETY: live state.
        match unsafe { atomic::load::<Device, Relaxed, u64>(word!(self, error)) } {
            0 => None,
            why if why & FAILED != 0 => {
                Some(Broken::Adapter { syndrome: (why >> 48) as u8, entry: why & 0xffff_ffff_ffff })
            }
            _ => Some(Broken::Expired),
        }
    }
}
