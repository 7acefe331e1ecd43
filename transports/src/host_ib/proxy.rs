//! The proxy: a thread that takes commands from the ring, posts requests, and reports what became of them.

mod thread;

pub use thread::Proxy;

use super::HostIbOps;
use super::memory::Memory;
use super::ring::{Command, GET, PUT, PUT_BOUNCED, SIGNAL, SLOT, Slot, WRITE};
use crate::host::Result;
use crate::rdma::{Completion, Pair, Registration, Remote, Request, Status, Work, local};
use fusewire_device::wait::{AbortRecord, FILLED, abort_code, kind, operation};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Commands taken in one turn, before completions are looked at.
const BATCH: usize = 32;

/// How long a peer that does not answer may turn out to be dead, which tells more.
const SUSPENSE: Duration = Duration::from_secs(1);

/// Most bytes of one request: adapters have limits, and waits see progress.
const MESSAGE: u64 = 4 << 20;

/// What a peer's memory is called.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub start: u64,
    pub rkey: u32,
}

/// A connected peer.
#[derive(Debug)]
pub struct Peer {
    pub pair: Box<dyn Pair>,
    pub region: Place,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    /// The command, if this is the last request of one.
    ticket: Option<u64>,
    operation: u32,
    channel: u32,
    since: Instant,
}

/// Why this rank's kernels are aborted: the fields of the record.
#[derive(Clone, Copy, Debug)]
struct Reason {
    kind: u32,
    peer: u32,
    channel: u32,
    operation: u32,
    expected: u64,
    seen: u64,
    age_ns: u64,
}

impl Reason {
    fn fabric(peer: u32, channel: u32, operation: u32, status: Status) -> Self {
        let seen = u64::from(status.code());
        Reason { kind: kind::FABRIC, peer, channel, operation, expected: 0, seen, age_ns: 0 }
    }
}

/// What the thread works on; locked for one turn at a time.
#[derive(Debug)]
pub struct Engine {
    // Pairs go before the memory they use.
    peers: Vec<Option<Peer>>,
    region: Box<dyn Registration>,
    local: Box<dyn Registration>,
    memory: Arc<Memory>,
    rank: u32,
    deadline: Duration,
    under_way: Vec<VecDeque<UnderWay>>,
    /// Peers that were written to since this rank last read there: what is acknowledged need not be in memory yet.
    unplaced: Vec<bool>,
    /// Next ticket, and bytes of its command that are posted already.
    next: (u64, u64),
    /// Slots that may be free again, from `retired` on.
    finished: VecDeque<bool>,
    retired: u64,
    /// Nothing is carried out any more.
    poisoned: bool,
    /// A request has failed: its pair is of no more use.
    broken: bool,
    /// A fault that may have a better reason, and since when.
    suspicion: Option<(Reason, Instant)>,
    /// Peers that have not been told yet of this rank's fault; `None` while there is none.
    to_tell: Option<Vec<usize>>,
    /// Peers whose fault this rank has taken notice of, and said so.
    answered: Vec<bool>,
    ended: Vec<Completion>,
}

/// Whether a turn found something to do.
type Busy = bool;

impl Engine {
    pub fn new(
        memory: Arc<Memory>,
        region: Box<dyn Registration>,
        local: Box<dyn Registration>,
        rank: usize,
        deadline: Duration,
    ) -> Self {
        let world = memory.layout.world as usize;
        Engine {
            peers: (0..world).map(|_| None).collect(),
            region,
            local,
            memory,
            rank: rank as u32,
            deadline,
            under_way: vec![VecDeque::new(); world],
            unplaced: vec![false; world],
            next: (0, 0),
            finished: VecDeque::new(),
            retired: 0,
            poisoned: false,
            broken: false,
            suspicion: None,
            to_tell: None,
            answered: vec![false; world],
            ended: Vec::new(),
        }
    }

    pub fn connect(&mut self, peers: Vec<Option<Peer>>) {
        self.peers = peers;
    }

    /// What peers' requests name this rank's region by.
    pub fn region(&self) -> Place {
        Place { start: self.region.start(), rkey: self.region.rkey() }
    }

    fn turn(&mut self) -> Busy {
        self.look_for_faults();
        let mut busy = self.take_commands();
        for peer in 0..self.peers.len() {
            busy |= self.look_for_completions(peer);
        }
        self.retire();
        busy
    }

    fn slot(&self, ticket: u64) -> *mut Slot {
        let index = ticket & u64::from(self.memory.slots - 1);
        (self.memory.commands.host() as u64 + index * SLOT) as *mut Slot
    }

    fn take_commands(&mut self) -> Busy {
        let mut busy = false;
        for _ in 0..BATCH {
            let (ticket, posted) = self.next;
            let slot = self.slot(ticket);
            // SAFETY: a live slot; the turn is accessed by atomics alone.
            let turn = unsafe { AtomicU64::from_ptr(&raw mut (*slot).turn) };
            if turn.load(Ordering::Acquire) != ticket + 1 {
                break;
            }
            // SAFETY: whole, by its turn, and not written again before it is retired.
            let command = unsafe { (&raw const (*slot).command).read_volatile() };
            // A kernel that gave up has said so before its next command.
            self.poisoned |= self.memory.filled_record().is_some();
            let keeps = !self.poisoned && matches!(command.op, PUT_BOUNCED | GET);
            if !self.poisoned && !self.carry_out(ticket, &command, posted) {
                break;
            }
            busy = true;
            self.next = (ticket + 1, 0);
            // Carried out, refused, or dropped.
            self.finished.push_back(!keeps || self.poisoned || command.peer == self.rank);
        }
        busy
    }

    /// Posts what is left of a command; `false` if the queue is full.
    fn carry_out(&mut self, ticket: u64, command: &Command, mut posted: u64) -> bool {
        let about = match command.op {
            SIGNAL => operation::SIGNAL,
            GET => operation::GET,
            _ => operation::PUT,
        };
        let bytes = command.bytes;
        let within = |from: u64, limit: u64| from.checked_add(bytes).is_some_and(|end| end <= limit);
        let (total, own) = (self.memory.layout.total(), self.memory.local.bytes() as u64);
        let from_local = matches!(command.op, WRITE | PUT_BOUNCED);
        let right = within(command.to, total)
            && match command.op {
                SIGNAL => bytes == 8,
                PUT | GET => within(command.from, total),
                _ => from_local && within(command.from, own),
            };
        let Command { peer, channel, from, to, .. } = *command;
        let end = |at: u64| at.saturating_add(bytes);
        let wrong = match peer as usize >= self.peers.len() {
            true => Some((kind::RANGE, self.peers.len() as u64, peer.into())),
            false if right => None,
            false if within(to, total) => {
                Some((kind::BEYOND, if from_local { own } else { total } + 1, end(from)))
            }
            false => Some((kind::BEYOND, total + 1, end(to))),
        };
        if let Some((kind, expected, seen)) = wrong {
            self.fail(Reason { kind, peer, channel, operation: about, expected, seen, age_ns: 0 });
            return true;
        }
        if command.peer == self.rank {
            self.carry_out_here(ticket, command);
            return true;
        }
        let peer = command.peer as usize;
        while posted < bytes {
            let piece = (bytes - posted).min(MESSAGE);
            let last = posted + piece == bytes;
            let Some(Peer { pair, region }) = &self.peers[peer] else { return true };
            let there = Remote { address: region.start + command.to + posted, rkey: region.rkey };
            let memory = if from_local { &self.local } else { &self.region };
            let here = local(&**memory, command.from + posted, piece as u32);
            let value = command.value.to_ne_bytes();
            let work = match command.op {
                SIGNAL => Work::WriteInline { bytes: &value, to: there },
                GET => Work::Read { to: here, from: there },
                _ => Work::Write { from: here, to: there, immediate: None },
            };
            // No fence: a kernel's read has ended before the kernel goes on, and writes keep their order.
            // SAFETY: kernels post what they keep to the protocol, within the region.
            match unsafe { pair.post(&Request { id: ticket, work, fence: false }) } {
                Ok(true) => {}
                Ok(false) => {
                    self.next = (ticket, posted);
                    return false;
                }
                Err(_) => {
                    let status = Status::LocalAccess;
                    self.fail(Reason::fabric(command.peer, command.channel, about, status));
                    return true;
                }
            }
            let ticket = (last && matches!(command.op, PUT_BOUNCED | GET)).then_some(ticket);
            let channel = command.channel;
            let request = UnderWay { ticket, operation: about, channel, since: Instant::now() };
            self.under_way[peer].push_back(request);
            self.unplaced[peer] = command.op != GET;
            posted += piece;
        }
        true
    }

    /// A command of this rank to itself.
    fn carry_out_here(&self, ticket: u64, command: &Command) {
        let (region, own) = (self.memory.region.host(), self.memory.local.host());
        if command.op == SIGNAL {
            self.memory.region.word(command.to).store(command.value, Ordering::Release);
            return;
        }
        let (from, to) = match command.op {
            GET => (command.to, command.from),
            _ => (command.from, command.to),
        };
        let source = if matches!(command.op, WRITE | PUT_BOUNCED) { own } else { region };
        // SAFETY: both ranges are in bounds (`carry_out` has checked); that nobody else is there is the contract of `put` and `get`.
        unsafe { source.add(from as usize).copy_to(region.add(to as usize), command.bytes as usize) };
        if command.op == GET {
            self.done(ticket);
        }
    }

    /// Tells the kernel that what it reads is there.
    fn done(&self, ticket: u64) {
        // SAFETY: a live slot; the word is accessed by atomics alone.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.slot(ticket)).done) }
            .store(ticket + 1, Ordering::Release);
    }

    fn look_for_completions(&mut self, peer: usize) -> Busy {
        let Some(oldest) = self.under_way[peer].front() else { return false };
        let age = oldest.since.elapsed();
        let Some(Peer { pair, .. }) = &self.peers[peer] else { return false };
        let mut ended = std::mem::take(&mut self.ended);
        let gone = pair.poll(&mut ended).is_err();
        for completion in &ended {
            let Some(request) = self.under_way[peer].pop_front() else { break };
            if completion.status != Status::Done {
                self.broken = true;
                let UnderWay { operation, channel, .. } = request;
                self.fail(Reason::fabric(peer as u32, channel, operation, completion.status));
            } else if let Some(ticket) = request.ticket {
                if request.operation == operation::GET {
                    self.done(ticket);
                }
                self.finish(ticket);
            }
        }
        let expired = ended.is_empty() && age > self.deadline;
        if let Some(UnderWay { operation, channel, .. }) = self.under_way[peer].front().copied()
            && (gone || expired)
        {
            self.broken = true;
            let reason = Reason::fabric(peer as u32, channel, operation, Status::Unreachable);
            let age_ns = age.as_nanos() as u64;
            let late = Reason { kind: kind::EXPIRED, expected: 1, seen: 0, age_ns, ..reason };
            self.fail(if gone { reason } else { late });
        }
        let busy = !ended.is_empty();
        ended.clear();
        self.ended = ended;
        busy
    }

    fn finish(&mut self, ticket: u64) {
        if let Some(finished) = self.finished.get_mut(ticket.wrapping_sub(self.retired) as usize) {
            *finished = true;
        }
    }

    fn retire(&mut self) {
        let before = self.retired;
        while self.finished.front() == Some(&true) {
            self.finished.pop_front();
            self.retired += 1;
        }
        if self.retired != before {
            self.memory.retired().store(self.retired, Ordering::Release);
        }
    }

    /// Stops, and aborts this rank's kernels if nothing has yet.
    fn fail(&mut self, reason: Reason) {
        if std::mem::replace(&mut self.poisoned, true) {
            return;
        }
        let lost = [Status::Unreachable, Status::Flushed].map(|s| u64::from(s.code()));
        if reason.kind == kind::FABRIC && lost.contains(&reason.seen) {
            // The world's own word about a dead rank goes first: it names who it is.
            self.suspicion = Some((reason, Instant::now()));
        } else {
            self.abort(reason);
        }
    }

    fn abort(&self, reason: Reason) {
        let Reason { kind, peer, channel, operation, expected, seen, age_ns } = reason;
        // If the context is lost, the kernels have ended without this.
        if !matches!(self.memory.words.claim(abort_code(self.rank, kind)), Ok(true)) {
            return;
        }
        let (rank, to) = (self.rank, self.memory.record());
        let record = AbortRecord {
            kind,
            rank,
            peer,
            channel,
            operation,
            expected,
            seen,
            age_ns,
            ..AbortRecord::EMPTY
        };
        // SAFETY: the claim makes this thread the only writer of the live record; readers look at the state first.
        unsafe {
            to.write_volatile(record);
            AtomicU32::from_ptr(&raw mut (*to).state).store(FILLED, Ordering::Release);
        }
    }

    /// Tells peers of a fault of this rank, and this rank's kernels of a peer's.
    fn look_for_faults(&mut self) {
        if let Some((reason, since)) = self.suspicion
            && since.elapsed() > SUSPENSE
        {
            self.suspicion = None;
            self.abort(reason);
        }
        let (layout, me) = (self.memory.layout, self.rank);
        if let Some(record) = self.memory.filled_record() {
            self.poisoned = true;
            let all = || (0..self.peers.len()).filter(|p| self.peers[*p].is_some()).collect();
            let mut to_tell = self.to_tell.take().unwrap_or_else(all);
            let (code, at) = (abort_code(record.rank, record.kind), Memory::inbox(&layout, me));
            to_tell.retain(|peer| !self.tell(*peer, at, code));
            self.to_tell = Some(to_tell);
        }
        for peer in (0..layout.world).filter(|p| *p != me) {
            let code = self.memory.region.word(Memory::inbox(&layout, peer)).load(Ordering::Acquire);
            if code != 0 && !self.answered[peer as usize] {
                self.poisoned = true;
                // If the context is lost, the kernels have ended without this.
                let _ = self.memory.words.claim(code);
                self.answered[peer as usize] = self.tell(peer as usize, Memory::answer(&layout, me), code);
            }
        }
    }

    /// Posts a word for a peer's memory; `false` if the queue is full. Best effort: a peer that is out of reach sees that for itself.
    fn tell(&mut self, peer: usize, at: u64, word: u64) -> bool {
        let Some(Some(Peer { pair, region })) = self.peers.get(peer) else { return true };
        let to = Remote { address: region.start + at, rkey: region.rkey };
        let work = Work::WriteInline { bytes: &word.to_ne_bytes(), to };
        // SAFETY: the abort word, changed by atomics alone.
        match unsafe { pair.post(&Request { id: u64::MAX, work, fence: false }) } {
            Ok(false) => return false,
            Ok(true) => {
                let (operation, since) = (operation::SIGNAL, Instant::now());
                self.under_way[peer].push_back(UnderWay { ticket: None, operation, channel: 0, since });
                self.unplaced[peer] = true;
            }
            Err(_) => {}
        }
        true
    }

    /// Whether every peer has stopped its kernels because of this rank's fault.
    fn all_know(&self) -> bool {
        let answer = |peer| self.memory.region.word(Memory::answer(&self.memory.layout, peer));
        let mut peers = self.peers.iter().zip(0u32..).filter(|(peer, _)| peer.is_some());
        peers.all(|(_, peer)| answer(peer).load(Ordering::Acquire) != 0)
    }

    /// Looks for faults, and sees to it that peers that can be told of an own one have been, and let no kernel begin.
    pub fn settle_faults(&mut self, limit: Duration) {
        let start = Instant::now();
        self.turn();
        while self.memory.filled_record().is_some()
            && (self.to_tell.as_ref().is_none_or(|left| !left.is_empty())
                || self.under_way.iter().any(|requests| !requests.is_empty())
                || !(self.broken || self.all_know()))
            && start.elapsed() < limit
        {
            self.turn();
            std::thread::yield_now();
        }
    }

    /// Carries out what is left, or drops it after a fault, until peers' memory holds all of it; `false` if a pair is of no more use.
    pub fn drain(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            let busy = self.turn() || self.under_way.iter().any(|requests| !requests.is_empty());
            if !busy && (self.broken || !self.flush()) {
                return !self.broken;
            }
            if start.elapsed() > limit {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Reads a word of every peer that was written to: the answer comes once all before it is in memory. Whether there was one.
    fn flush(&mut self) -> Busy {
        let peers: Vec<usize> =
            (0..self.peers.len()).filter(|p| std::mem::take(&mut self.unplaced[*p])).collect();
        for &peer in &peers {
            let Some(Peer { pair, region }) = &self.peers[peer] else { continue };
            // Nothing is under way, so bounce memory is free, and queues have room.
            let to = local(&*self.local, HostIbOps::bounce(&self.memory.layout), 8);
            let work = Work::Read { to, from: Remote { address: region.start, rkey: region.rkey } };
            // SAFETY: words that nobody else uses now, and one of the peer's that is read alone.
            match unsafe { pair.post(&Request { id: u64::MAX, work, fence: false }) } {
                Ok(true) => {
                    let (operation, since) = (operation::GET, Instant::now());
                    self.under_way[peer].push_back(UnderWay { ticket: None, operation, channel: 0, since });
                }
                Ok(false) | Err(_) => self.broken = true,
            }
        }
        !peers.is_empty()
    }

    /// Begins anew with an empty ring.
    pub fn reset(&mut self) -> Result<()> {
        self.memory.clear()?;
        self.next = (0, 0);
        self.retired = 0;
        self.finished.clear();
        self.under_way.iter_mut().for_each(VecDeque::clear);
        self.unplaced.fill(false);
        (self.to_tell, self.suspicion) = (None, None);
        self.answered.fill(false);
        (self.poisoned, self.broken) = (false, false);
        Ok(())
    }
}
