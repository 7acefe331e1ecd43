//! The adapter at work: one small step at a time, chosen by a seed.
//!
//! A step of a queue pair is one of: listening to the doorbell, taking up an entry, sending a packet, placing bytes, completing. The
//! receiving side of a connection is worked here as well, in the peer's memory: what it has had, what it has answered.

use super::decode::{Action, Decoded, Far, Local};
use super::options::{Behaviour, Counts, FETCH, PCIE_PAYLOAD, PCIE_READ, Rng};
use super::port::Peer;
use super::queue::{Cursor, Flight, Link, Pair, State, Unplaced, syndrome};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Everything behind an adapter's lock.
#[derive(Debug)]
pub(super) struct Engine {
    pub behaviour: Behaviour,
    pub rng: Rng,
    pub counts: Counts,
    pub pairs: Vec<Pair>,
    pub own: Peer,
    pub peers: HashMap<usize, Peer>,
    /// Whether the completion queue of each number has an error, and how many entries: what waits look at.
    pub queues: HashMap<u32, usize>,
}

/// What became of a packet at the receiver.
enum Arrival {
    Executed,
    Refused(u8),
}

impl Engine {
    /// One step of some queue pair. Whether there was anything to do; queue pairs that wait for a time have nothing to do before it.
    pub fn step(&mut self, now: u64) -> bool {
        let n = self.pairs.len();
        let start = self.rng.below(n as u64) as usize;
        (0..n).any(|k| self.advance((start + k) % n, now))
    }

    fn advance(&mut self, which: usize, now: u64) -> bool {
        let pair = &mut self.pairs[which];
        if pair.state == State::Unconnected {
            return false;
        }
        match pair.listen() {
            Ok(false) => {}
            Ok(true) => {
                self.counts.doorbells += 1;
                let fresh = pair.posted - pair.taken;
                self.counts.entry_reads += fresh.div_ceil(FETCH);
                return true;
            }
            Err(syndrome) => {
                pair.fail(syndrome, &mut self.counts);
                return true;
            }
        }
        if pair.state == State::Error {
            return pair.flush(&mut self.counts);
        }
        if now < pair.wake {
            return false;
        }
        if pair.waiting {
            self.time_out(which);
            return true;
        }
        let first = self.rng.below(4);
        (0..4).any(|k| match (first + k) % 4 {
            0 => self.finish_oldest(which),
            1 => self.take_up(which),
            // Now and then, so that others get ahead.
            2 => self.rng.below(4) == 0 && self.pairs[which].place() && self.acknowledge(which),
            _ => self.send(which, now),
        }) || self.wait_for_acknowledgement(which, now)
    }

    /// Completes the oldest entry under way if it is done.
    fn finish_oldest(&mut self, which: usize) -> bool {
        let pair = &mut self.pairs[which];
        let Some(oldest) = pair.flight.front() else { return false };
        if let Some(syndrome) = oldest.failed {
            pair.fail(syndrome, &mut self.counts);
            return true;
        }
        // What does nothing is done as soon as its turn has come.
        let its_turn = oldest.entry.is_silent() && pair.send.entry > oldest.index;
        if !oldest.acknowledged && !its_turn {
            return false;
        }
        if let Some(flight) = pair.flight.pop_front() {
            pair.complete(flight.index, Some(&flight.entry), None, &mut self.counts);
        }
        true
    }

    fn take_up(&mut self, which: usize) -> bool {
        let pair = &self.pairs[which];
        let blocked = pair.flight.iter().any(|f| f.failed.is_some());
        if pair.taken == pair.posted || pair.flight.len() >= self.behaviour.window || blocked {
            return false;
        }
        let before = pair.taken;
        let decoded = self.pairs[which].take();
        let mut flight = Flight {
            index: before,
            entry: Decoded { action: Action::Nop, fence: false, report: true, opcode: 0 },
            acknowledged: false,
            before: None,
            answered: false,
            failed: None,
        };
        match decoded {
            Err(syndrome) => flight.failed = Some(syndrome),
            Ok(entry) => {
                flight.entry = entry;
                if entry.fence && !self.pairs[which].flight.is_empty() {
                    // It waits for everything before it.
                    self.pairs[which].taken = before;
                    return false;
                }
                if let Action::Wait { queue, index } = entry.action {
                    match self.waited_for(which, queue, index) {
                        Ok(true) => {}
                        Ok(false) => {
                            self.pairs[which].taken = before;
                            return false;
                        }
                        Err(syndrome) => flight.failed = Some(syndrome),
                    }
                }
                self.count(&entry);
                if flight.failed.is_none() {
                    flight.failed = self.check_local(&entry).err();
                }
            }
        }
        self.pairs[which].flight.push_back(flight);
        true
    }

    /// Whether completion queue `queue` has the entry of `index`. One that has it with an error, or was torn down, fails the wait: what
    /// it counts has not happened.
    fn waited_for(&self, which: usize, queue: u32, index: u32) -> Result<bool, u8> {
        if self.pairs[which].queue.kind != crate::Kind::Companion {
            return Err(syndrome::LOCAL_OPERATION);
        }
        let Some(other) = self.queues.get(&queue).map(|k| &self.pairs[*k]) else {
            return Err(syndrome::LOCAL_OPERATION);
        };
        // In 24 bits, as a signed difference.
        match ((other.produced as u32).wrapping_sub(index) << 8) as i32 > 0 {
            _ if other.state == State::Error || other.overrun => Err(syndrome::FLUSHED),
            there => Ok(there),
        }
    }

    fn count(&mut self, entry: &Decoded) {
        let c = &mut self.counts;
        match entry.action {
            Action::Nop => c.nops += 1,
            Action::Write(..) => c.writes += 1,
            Action::Inline(..) => c.inline_writes += 1,
            Action::Read(..) => c.reads += 1,
            Action::FetchAdd(..) | Action::CompareSwap { .. } => c.atomics += 1,
            Action::Wait { .. } => c.waits += 1,
        }
    }

    fn check_local(&self, entry: &Decoded) -> Result<(), u8> {
        let local = match entry.action {
            Action::Write(_, local) | Action::Read(_, local) | Action::FetchAdd(_, _, local) => local,
            Action::CompareSwap { old, .. } => old,
            _ => return Ok(()),
        };
        self.local(&local).map(drop).ok_or(syndrome::LOCAL_PROTECTION)
    }

    fn local(&self, local: &Local) -> Option<*mut u8> {
        self.own.find(local.key, local.addr, u64::from(local.bytes))
    }

    /// Sends the next packet.
    fn send(&mut self, which: usize, now: u64) -> bool {
        let pair = &mut self.pairs[which];
        let Some(oldest) = pair.flight.front() else { return false };
        // What was to be sent again may have been acknowledged meanwhile.
        pair.send = pair.send.max(Cursor::start(oldest.index));
        let at = pair.send;
        let Some(flight) = pair.flight.get((at.entry.saturating_sub(oldest.index)) as usize) else {
            return false;
        };
        if flight.failed.is_some() {
            return false;
        }
        let entry = flight.entry;
        if entry.is_silent() {
            self.pairs[which].send = Cursor::start(at.entry + 1);
            return true;
        }
        let b = self.behaviour;
        if self.rng.chance(b.delay) {
            let pause = self.rng.below(b.delay_ns);
            self.pairs[which].wake = now + pause;
            return true;
        }
        let (whole, mtu) = (length(&entry), self.pairs[which].mtu);
        let part = whole.saturating_sub(at.byte).min(mtu);
        let done = at.byte + part >= whole;
        let next = if done { Cursor::start(at.entry + 1) } else { Cursor { byte: at.byte + part, ..at } };
        self.counts.packets += 1;
        self.counts.wire_bytes += u64::from(part);
        let (link, peer_up) = {
            let pair = &self.pairs[which];
            (pair.link, self.peer(pair.link).is_some_and(|p| p.port.up()))
        };
        let up = link == Link::Own || self.own.port.up() && peer_up;
        let lost = !up || link != Link::Own && self.rng.chance(b.drop);
        self.pairs[which].send = next;
        if lost {
            self.counts.dropped += 1;
            return true;
        }
        let expected = self.pairs[which].expect();
        if at > expected {
            // Refused out of order: the sender goes back to what is missing.
            self.counts.out_of_order += 1;
            self.pairs[which].send = expected;
            return true;
        }
        if at < expected {
            self.counts.duplicates += 1;
        } else {
            if self.not_ready(link) {
                return self.hold(which, at, now);
            }
            match self.execute(which, at, part) {
                Arrival::Executed => self.pairs[which].expected = next,
                Arrival::Refused(syndrome) => {
                    let pair = &mut self.pairs[which];
                    // The refusal acknowledges everything before it.
                    let oldest = pair.flight.front().map_or(0, |f| f.index);
                    pair.flight[(at.entry - oldest) as usize].failed = Some(syndrome);
                    pair.send = at;
                    return self.acknowledge(which);
                }
            }
        }
        if done && self.rng.chance(b.drop_ack) && link != Link::Own {
            self.counts.dropped += 1;
            return true;
        }
        if done {
            self.answer(which, at.entry);
        }
        self.acknowledge(which);
        true
    }

    fn peer(&self, link: Link) -> Option<&Peer> {
        match link {
            Link::Own => Some(&self.own),
            Link::Peer(rank) => self.peers.get(&rank),
        }
    }

    /// Whether the receiver has no room for this request.
    fn not_ready(&self, link: Link) -> bool {
        let Some(peer) = self.peer(link) else { return false };
        let left = &peer.port.page().not_ready;
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    fn hold(&mut self, which: usize, at: Cursor, now: u64) -> bool {
        let b = self.behaviour;
        self.counts.not_ready += 1;
        let pair = &mut self.pairs[which];
        pair.send = at;
        pair.not_ready += 1;
        if b.not_ready_retries < 7 && pair.not_ready > b.not_ready_retries {
            let oldest = pair.flight.front().map_or(0, |f| f.index);
            pair.flight[(at.entry - oldest) as usize].failed = Some(syndrome::NOT_READY);
            return self.acknowledge(which);
        }
        pair.wake = now + b.not_ready_ns;
        true
    }

    /// The receiver's adapter takes the packet at `at`, which is the one it expects.
    fn execute(&mut self, which: usize, at: Cursor, part: u32) -> Arrival {
        let (entry, link, index) = {
            let pair = &self.pairs[which];
            let oldest = pair.flight.front().map_or(0, |f| f.index);
            let flight = &pair.flight[(at.entry - oldest) as usize];
            (flight.entry, pair.link, flight.index)
        };
        let Some(peer) = self.peer(link) else { return Arrival::Refused(syndrome::REMOTE_ACCESS) };
        let far = |far: Far, offset: u32, bytes: u32| {
            peer.find(far.key, far.addr.wrapping_add(u64::from(offset)), u64::from(bytes))
        };
        match entry.action {
            Action::Write(to, from) => {
                let part_of = Local { addr: from.addr + u64::from(at.byte), bytes: part, ..from };
                let (Some(to), Some(from)) = (far(to, at.byte, part), self.local(&part_of)) else {
                    return Arrival::Refused(syndrome::REMOTE_ACCESS);
                };
                self.counts.payload_reads += u64::from(part).div_ceil(PCIE_READ);
                self.counts.payload_read_bytes += u64::from(part);
                self.count_write(part);
                // SAFETY: `part` bytes of registered memory, checked just now.
                let bytes = unsafe { std::slice::from_raw_parts(from, part as usize) };
                self.put(which, index, to, bytes);
            }
            Action::Inline(to, payload, bytes) => {
                let Some(to) = far(to, 0, bytes) else { return Arrival::Refused(syndrome::REMOTE_ACCESS) };
                self.count_write(bytes);
                self.put(which, index, to, &payload[..bytes as usize]);
            }
            Action::Read(from, to) => {
                let part_of = Local { addr: to.addr + u64::from(at.byte), bytes: part, ..to };
                let (Some(from), Some(to)) = (far(from, at.byte, part), self.local(&part_of)) else {
                    return Arrival::Refused(syndrome::REMOTE_ACCESS);
                };
                self.counts.payload_reads += u64::from(part).div_ceil(PCIE_READ);
                self.counts.payload_read_bytes += u64::from(part);
                self.count_write(part);
                // What this queue pair wrote before is read.
                while self.pairs[which].place() {}
                // SAFETY: `part` bytes of registered memory each, checked just now; `copy` as the two may be one for a loopback.
                unsafe { std::ptr::copy(from, to, part as usize) };
                fence(Ordering::Release);
            }
            Action::FetchAdd(to, add, _) => match far(to, 0, 8) {
                None => return Arrival::Refused(syndrome::REMOTE_ACCESS),
                Some(to) if !to.addr().is_multiple_of(8) => {
                    return Arrival::Refused(syndrome::REMOTE_INVALID);
                }
                Some(to) => {
                    // SAFETY: 8 aligned bytes of registered memory, checked just now.
                    let word = unsafe { AtomicU64::from_ptr(to.cast()) };
                    let before = word.fetch_add(add, Ordering::AcqRel);
                    self.executed_atomic(which, at, before);
                }
            },
            Action::CompareSwap { far: to, swap, compare, .. } => match far(to, 0, 8) {
                None => return Arrival::Refused(syndrome::REMOTE_ACCESS),
                Some(to) if !to.addr().is_multiple_of(8) => {
                    return Arrival::Refused(syndrome::REMOTE_INVALID);
                }
                Some(to) => {
                    // SAFETY: 8 aligned bytes of registered memory, checked just now.
                    let word = unsafe { AtomicU64::from_ptr(to.cast()) };
                    let before = word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
                    self.executed_atomic(which, at, before.unwrap_or_else(|before| before));
                }
            },
            Action::Nop | Action::Wait { .. } => {}
        }
        Arrival::Executed
    }

    fn count_write(&mut self, bytes: u32) {
        self.counts.payload_writes += u64::from(bytes).div_ceil(PCIE_PAYLOAD);
        self.counts.payload_written_bytes += u64::from(bytes);
    }

    fn executed_atomic(&mut self, which: usize, at: Cursor, before: u64) {
        self.counts.atomic_transactions += 2;
        let pair = &mut self.pairs[which];
        let oldest = pair.flight.front().map_or(0, |f| f.index);
        pair.flight[(at.entry - oldest) as usize].before = Some(before);
    }

    /// Bytes arrive: placed now, or later where that is how this adapter behaves. Writes are placed in order among themselves.
    fn put(&mut self, which: usize, index: u64, to: *mut u8, bytes: &[u8]) {
        let late = self.behaviour.late_placement && self.rng.below(2) == 0;
        let pair = &mut self.pairs[which];
        if late || !pair.unplaced.is_empty() {
            pair.unplaced.push_back(Unplaced { index, to, bytes: bytes.to_vec() });
        } else if bytes.len() == 8 && to.addr().is_multiple_of(8) {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            // SAFETY: 8 aligned bytes of registered memory; a waiting thread may look at them.
            unsafe { AtomicU64::from_ptr(to.cast()) }.store(u64::from_ne_bytes(word), Ordering::Release);
        } else {
            // SAFETY: registered memory of that length, checked by the caller; `copy` as source and target of a loopback may overlap.
            unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
            fence(Ordering::Release);
        }
    }

    /// The answer to the entry arrives, if it has one: the value before an atomic operation.
    fn answer(&mut self, which: usize, index: u64) {
        let pair = &self.pairs[which];
        let oldest = pair.flight.front().map_or(0, |f| f.index);
        let Some(flight) = pair.flight.get((index - oldest) as usize) else { return };
        let sink = match flight.entry.action {
            Action::FetchAdd(_, _, old) | Action::CompareSwap { old, .. } => Some(old),
            _ => None,
        };
        if let (Some(sink), Some(before)) = (sink, flight.before)
            && let Some(to) = self.local(&sink)
        {
            self.count_write(8);
            // SAFETY: 8 bytes of registered memory, checked by `local`.
            unsafe { to.copy_from_nonoverlapping(before.to_ne_bytes().as_ptr(), 8) };
        }
        self.pairs[which].flight[(index - oldest) as usize].answered = true;
    }

    /// An acknowledgement of everything that the receiver has had arrives. An answer that is missing holds up what comes after it.
    fn acknowledge(&mut self, which: usize) -> bool {
        let pair = &mut self.pairs[which];
        let unplaced = pair.unplaced.front().map_or(u64::MAX, |u| u.index);
        for flight in &mut pair.flight {
            let has_answer = matches!(
                flight.entry.action,
                Action::FetchAdd(..) | Action::CompareSwap { .. } | Action::Read(..)
            );
            let executed = pair.expected.entry > flight.index;
            if flight.failed.is_some()
                || !executed
                || has_answer && !flight.answered
                || unplaced <= flight.index
            {
                break;
            }
            if !flight.acknowledged {
                flight.acknowledged = true;
                (pair.retries, pair.not_ready) = (0, 0);
            }
        }
        true
    }

    /// Everything was sent, and not everything acknowledged.
    fn wait_for_acknowledgement(&mut self, which: usize, now: u64) -> bool {
        let pair = &mut self.pairs[which];
        let sent = pair.flight.iter().all(|f| f.index < pair.send.entry || f.failed.is_some());
        let missing = pair.flight.iter().any(|f| !f.acknowledged && f.failed.is_none());
        if sent && missing && pair.unplaced.is_empty() {
            (pair.wake, pair.waiting) = (now + self.behaviour.timeout_ns, true);
        }
        false
    }

    fn time_out(&mut self, which: usize) {
        self.counts.timeouts += 1;
        let pair = &mut self.pairs[which];
        pair.waiting = false;
        pair.retries += 1;
        let Some(oldest) = pair.flight.iter_mut().find(|f| !f.acknowledged) else { return };
        if pair.retries > self.behaviour.retries {
            oldest.failed = Some(syndrome::RETRIES);
        }
        pair.send = Cursor::start(oldest.index);
    }

    /// When the next queue pair that waits goes on.
    pub fn next_wake(&self, now: u64) -> Option<u64> {
        self.pairs.iter().map(|p| p.wake).filter(|w| *w > now).min()
    }
}

fn length(entry: &Decoded) -> u32 {
    match entry.action {
        Action::Write(_, local) | Action::Read(_, local) => local.bytes,
        Action::Inline(_, _, bytes) => bytes,
        _ => 0,
    }
}
