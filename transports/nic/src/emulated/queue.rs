//! A queue pair and its completion queue inside an emulated adapter.

use super::decode::{Decoded, decode};
use super::options::Counts;
use crate::nic::QueuePair;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Syndromes of completions with an error (`mlx5dv.h`, `MLX5_CQE_SYNDROME_*`).
pub mod syndrome {
    /// The entry is malformed.
    pub const LOCAL_OPERATION: u8 = 0x02;
    /// The entry names local memory that is not registered.
    pub const LOCAL_PROTECTION: u8 = 0x04;
    /// An earlier entry failed.
    pub const FLUSHED: u8 = 0x05;
    /// The peer refuses the request: it is misaligned, say.
    pub const REMOTE_INVALID: u8 = 0x12;
    /// The entry names memory that the peer has not registered.
    pub const REMOTE_ACCESS: u8 = 0x13;
    /// The peer does not answer.
    pub const RETRIES: u8 = 0x15;
    /// The peer was not ready too often.
    pub const NOT_READY: u8 = 0x16;
}

/// Where a packet is in the stream of a queue pair: entry and byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    pub entry: u64,
    pub byte: u32,
}

impl Cursor {
    pub const fn start(entry: u64) -> Cursor {
        Cursor { entry, byte: 0 }
    }
}

/// An entry that was taken up and is not complete.
#[derive(Debug)]
pub(super) struct Flight {
    pub index: u64,
    pub entry: Decoded,
    /// The peer's adapter has acknowledged all of it.
    pub acknowledged: bool,
    /// Atomic operations: the value before, once the peer has executed it, and whether the answer has arrived.
    pub before: Option<u64>,
    pub answered: bool,
    /// It ends with this syndrome once it is the oldest.
    pub failed: Option<u8>,
}

/// A write that the receiving adapter has not placed yet.
#[derive(Debug)]
pub(super) struct Unplaced {
    pub index: u64,
    pub to: *mut u8,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unconnected,
    Ready,
    Error,
}

/// Whom a queue pair is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Peer(usize),
    Own,
}

/// Addresses for the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub sq: *const u8,
    pub sq_record: *const u32,
    pub doorbell: *const u64,
    pub cq: *mut u8,
    pub cq_record: *const u32,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub queue: QueuePair,
    pub places: Places,
    pub state: State,
    pub link: Link,
    pub mtu: u32,
    /// Last value of the doorbell.
    pub rung: u64,
    /// Entries handed over, taken up, completed.
    pub posted: u64,
    pub taken: u64,
    pub produced: u64,
    pub flight: VecDeque<Flight>,
    /// Next packet to send, and the next that the receiver expects.
    pub send: Cursor,
    pub expected: Cursor,
    pub unplaced: VecDeque<Unplaced>,
    /// Nothing before this time.
    pub wake: u64,
    /// Waiting for an acknowledgement.
    pub waiting: bool,
    pub retries: u32,
    pub not_ready: u32,
    /// Entries that the completion queue holds, if fewer than its depth.
    pub room: u32,
    /// The completion queue overran: nothing is reported any more.
    pub overrun: bool,
}

// SAFETY: the pointers are to queue memory that outlives the adapter (`QueueSource`) and to peers' mappings; they are used under the
// adapter's lock.
unsafe impl Send for Pair {}

impl Pair {
    pub fn new(queue: QueuePair, places: Places) -> Pair {
        Pair {
            queue,
            places,
            state: State::Unconnected,
            link: Link::Own,
            mtu: 0,
            rung: 0,
            posted: 0,
            taken: 0,
            produced: 0,
            flight: VecDeque::new(),
            send: Cursor::start(0),
            expected: Cursor::start(0),
            unplaced: VecDeque::new(),
            wake: 0,
            waiting: false,
            retries: 0,
            not_ready: 0,
            room: u32::MAX,
            overrun: false,
        }
    }

    /// Empties queues, records and state.
    pub fn reset(&mut self) {
        let (queue, places, link, mtu, room) = (self.queue, self.places, self.link, self.mtu, self.room);
        let connected = self.state != State::Unconnected;
        *self = Pair::new(queue, places);
        (self.link, self.mtu, self.room) = (link, mtu, room);
        if connected {
            self.state = State::Ready;
        }
        for k in 0..u64::from(queue.depth) {
            // SAFETY: in the completion queue, which nobody looks at meanwhile. Opcode invalid, owned by the adapter.
            unsafe {
                let at = places.cq.add(64 * k as usize);
                at.write_bytes(0, 64);
                AtomicU32::from_ptr(at.add(60).cast()).store(u32::to_be(0xf1), Ordering::Release);
            }
        }
        // SAFETY: live records and doorbell, aligned by their making.
        unsafe {
            AtomicU32::from_ptr(places.sq_record.cast_mut()).store(0, Ordering::Relaxed);
            AtomicU32::from_ptr(places.cq_record.cast_mut()).store(0, Ordering::Relaxed);
            AtomicU64::from_ptr(places.doorbell.cast_mut()).store(0, Ordering::Release);
        }
    }

    /// As after `first` entries, all of them complete.
    pub fn begin_at(&mut self, first: u64) {
        (self.posted, self.taken, self.produced) = (first, first, first);
        (self.send, self.expected) = (Cursor::start(first), Cursor::start(first));
        // SAFETY: live records, aligned by their making.
        unsafe {
            let (sq, cq) = (self.places.sq_record.cast_mut(), self.places.cq_record.cast_mut());
            AtomicU32::from_ptr(sq).store((first as u32 & 0xffff).to_be(), Ordering::Relaxed);
            AtomicU32::from_ptr(cq).store((first as u32 & 0xff_ffff).to_be(), Ordering::Release);
        }
    }

    /// Looks at the doorbell. Whether it was rung; the syndrome if what it says cannot be.
    pub fn listen(&mut self) -> Result<bool, u8> {
        // SAFETY: a live doorbell, aligned by its making.
        let word = unsafe { AtomicU64::from_ptr(self.places.doorbell.cast_mut()) }.load(Ordering::Acquire);
        if word == self.rung {
            return Ok(false);
        }
        self.rung = word;
        let bytes = word.to_ne_bytes();
        let index = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) >> 8;
        let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) >> 8;
        // SAFETY: a live record, aligned by its making.
        let record = unsafe { AtomicU32::from_ptr(self.places.sq_record.cast_mut()) }.load(Ordering::Acquire);
        let record = u32::from_be(record);
        // The record may be ahead of the doorbell, if the next ring is under way; it must not be behind.
        let behind = (record as u16).wrapping_sub(index as u16) as i16;
        let fresh = u64::from((record as u16).wrapping_sub(self.posted as u16));
        if number != self.queue.number || behind < 0 || record >> 16 != 0 {
            return Err(syndrome::LOCAL_OPERATION);
        }
        if self.posted + fresh - self.produced > u64::from(self.queue.depth) {
            return Err(syndrome::LOCAL_OPERATION);
        }
        self.posted += fresh;
        Ok(true)
    }

    /// Takes up the next entry.
    pub fn take(&mut self) -> Result<Decoded, u8> {
        let index = self.taken;
        let mut block = [0u8; 64];
        let place = (index & u64::from(self.queue.depth - 1)) as usize;
        // SAFETY: in the send queue; whoever posted it does not write it before its completion.
        unsafe { block.as_mut_ptr().copy_from_nonoverlapping(self.places.sq.add(64 * place), 64) };
        self.taken += 1;
        decode(&block, self.queue.number, index as u16).map_err(|_| syndrome::LOCAL_OPERATION)
    }

    /// Writes the completion of entry `index`, if one was asked for or it failed.
    pub fn complete(&mut self, index: u64, entry: Option<&Decoded>, failed: Option<u8>, counts: &mut Counts) {
        let report = failed.is_some() || entry.is_none_or(|e| e.report);
        if !report || self.overrun {
            return;
        }
        // SAFETY: a live record, aligned by its making.
        let consumed =
            unsafe { AtomicU32::from_ptr(self.places.cq_record.cast_mut()) }.load(Ordering::Acquire);
        let ahead = (self.produced as u32).wrapping_sub(u32::from_be(consumed)) & 0xff_ffff;
        if ahead >= self.queue.depth.min(self.room) {
            self.overrun = true;
            counts.overruns += 1;
            return;
        }
        let place = (self.produced & u64::from(self.queue.depth - 1)) as usize;
        let owner = u32::from(self.produced & u64::from(self.queue.depth) != 0);
        let opcode = if failed.is_some() { 13u32 } else { 0 };
        let last = (index as u32 & 0xffff) << 16 | opcode << 4 | owner;
        let work = u32::from(entry.map_or(0, |e| e.opcode)) << 24 | self.queue.number;
        // SAFETY: in the completion queue, at a place that its reader has given back; aligned.
        unsafe {
            let at = self.places.cq.add(64 * place);
            AtomicU32::from_ptr(at.add(52).cast())
                .store(u32::from(failed.unwrap_or(0)).to_be(), Ordering::Relaxed);
            AtomicU32::from_ptr(at.add(56).cast()).store(work.to_be(), Ordering::Relaxed);
            AtomicU32::from_ptr(at.add(60).cast()).store(last.to_be(), Ordering::Release);
        }
        self.produced += 1;
        counts.completions += 1;
        counts.errors += u64::from(failed.is_some());
    }

    /// Ends the oldest entry that is not complete with an error, and everything after it.
    pub fn fail(&mut self, syndrome: u8, counts: &mut Counts) {
        let oldest = self.flight.front().map(|f| (f.index, f.entry));
        let (index, entry) = oldest.map_or((self.taken, None), |(index, entry)| (index, Some(entry)));
        let entry = entry.as_ref();
        self.complete(index, entry, Some(syndrome), counts);
        self.state = State::Error;
        self.flight.clear();
        self.unplaced.clear();
        self.taken = index + 1;
        // A doorbell that lies has nothing behind it.
        self.posted = self.posted.max(self.taken);
        self.flush(counts);
    }

    /// Ends what is posted to a queue in error.
    pub fn flush(&mut self, counts: &mut Counts) -> bool {
        let any = self.taken < self.posted;
        while self.taken < self.posted {
            let index = self.taken;
            self.taken += 1;
            self.complete(index, None, Some(syndrome::FLUSHED), counts);
        }
        any
    }

    /// The packet that the receiver expects next. Entries that never go over the wire are passed over.
    pub fn expect(&mut self) -> Cursor {
        if let Some(oldest) = self.flight.front().map(|f| f.index) {
            self.expected = self.expected.max(Cursor::start(oldest));
            let silent =
                |at: u64| self.flight.get((at - oldest) as usize).is_some_and(|f| f.entry.is_silent());
            while silent(self.expected.entry) {
                self.expected = Cursor::start(self.expected.entry + 1);
            }
        }
        self.expected
    }

    /// Places the oldest bytes that have arrived and are not placed.
    pub fn place(&mut self) -> bool {
        let Some(Unplaced { to, bytes, .. }) = self.unplaced.pop_front() else { return false };
        // SAFETY: registered memory of the peer, checked when the bytes arrived.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        fence(Ordering::Release);
        true
    }

    /// Whether nothing is posted that is not complete, and nothing rung for that was not looked at.
    pub fn idle(&self) -> bool {
        // SAFETY: a live doorbell, aligned by its making.
        let word = unsafe { AtomicU64::from_ptr(self.places.doorbell.cast_mut()) }.load(Ordering::Acquire);
        word == self.rung && self.taken == self.posted && self.flight.is_empty()
    }
}
