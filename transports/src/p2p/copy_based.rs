//! Chunks through staging on both sides.

use super::wires::Wires;
use super::zero_copy::import;
use super::{
    ChunkContext, ChunkRequest, CtrlMessage, CtrlRequest, Error, HostBuffer, Mode, P2pHostTransport,
    RecvChunk, RecvHooks, Registered, RemoteBuffer, Result, SendChunk, SendHooks, in_range, kind,
};
use crate::rdma::{Adapter, Remote, Work, local};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most slots of staging in each direction.
pub const MOST_SLOTS: usize = 8;

/// Completions of credits; the others are of chunks, and their numbers are slots.
const CREDIT: u64 = 1 << 32;

/// Staging rings both ways, a state machine for each slot.
///
/// | sender | receiver |
/// |---|---|
/// | `prepare` fills the slot | |
/// | the slot's credit: taken as often as it was sent | |
/// | one write, whose notification names the slot | waits for it |
/// | | `process` takes the slot |
/// | | adds one to the sender's credit, by a remote atomic |
///
/// A notification names its slot, and a slot is not sent again before its credit has come, so an arrival is always that slot's oldest
/// round, whatever the channels' order.
#[derive(Debug)]
pub struct CopyBased {
    wires: Wires,
    memory: Registered,
    chunk: usize,
    depth: usize,
    remote: Remote,
    sends: Vec<Slot<Sending>>,
    receives: Vec<Slot<Receiving>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Idle,
    Prepare,
    Credit,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Idle,
    Arrival,
    Process,
    Signal,
}

struct Slot<S> {
    state: S,
    chunk: ChunkContext,
    work: Option<Task>,
    /// Rounds begun and ended.
    begun: u64,
    ended: u64,
    /// Receiving: bytes of rounds that have arrived and are not taken.
    arrived: Option<u32>,
}

enum Task {
    Copy(HostBuffer, usize),
    Send(Box<dyn SendHooks>),
    Receive(Box<dyn RecvHooks>),
}

impl<S: fmt::Debug> fmt::Debug for Slot<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in round {}", self.state, self.begun)
    }
}

impl CopyBased {
    /// The memory of one end: staging to send from, staging to receive in, credits, and what atomics return.
    pub(crate) fn memory(adapter: &dyn Adapter, depth: usize, chunk: usize) -> Result<Registered> {
        Registered::new(adapter, &HostBuffer::new(2 * depth * chunk + 2 * 8 * MOST_SLOTS)?)
    }

    pub(crate) fn new(wires: Wires, memory: Registered, depth: usize, chunk: usize, remote: Remote) -> Self {
        let context = ChunkContext { peer: wires.peer(), channel: 0, slot: 0, round: 0, bytes: 0 };
        fn slots<S: Copy>(depth: usize, state: S, context: ChunkContext) -> Vec<Slot<S>> {
            let slot = |slot| Slot {
                state,
                chunk: ChunkContext { slot, ..context },
                work: None,
                begun: 0,
                ended: 0,
                arrived: None,
            };
            (0..depth).map(slot).collect()
        }
        let (sends, receives) =
            (slots(depth, Sending::Idle, context), slots(depth, Receiving::Idle, context));
        CopyBased { wires, memory, chunk, depth, remote, sends, receives }
    }

    const fn incoming(&self, slot: usize) -> usize {
        (self.depth + slot) * self.chunk
    }

    const fn credit(&self, slot: usize) -> usize {
        2 * self.depth * self.chunk + 8 * slot
    }

    /// Rounds of a slot that the peer has taken.
    fn taken(&self, slot: usize) -> u64 {
        let at = self.memory.buffer().start() as usize + self.credit(slot);
        // SAFETY: within the buffer, aligned since chunks are multiples of 8; written by the peer's atomics.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }.load(Ordering::Acquire)
    }

    /// The bytes of a slot's staging.
    fn staging(memory: &Registered, at: usize, bytes: usize) -> *mut [u8] {
        // SAFETY: within the buffer: slots are laid out in it, and chunks are no longer than a slot.
        std::ptr::slice_from_raw_parts_mut(unsafe { memory.buffer().start().add(at) }, bytes)
    }

    fn move_send(&mut self, index: usize) -> Result<()> {
        let at = index * self.chunk;
        if self.sends[index].state == Sending::Prepare {
            let slot = &mut self.sends[index];
            let ready = match &mut slot.work {
                Some(Task::Send(hooks)) => {
                    // SAFETY: the slot is this round's alone until its write is posted.
                    let staging = unsafe { &mut *Self::staging(&self.memory, at, slot.chunk.bytes) };
                    hooks.is_ready(&slot.chunk, staging)
                }
                _ => true,
            };
            if ready {
                slot.state = Sending::Credit;
            }
        }
        if self.sends[index].state == Sending::Credit && self.taken(index) >= self.sends[index].ended {
            let chunk = self.sends[index].chunk;
            let from = local(self.memory.registration(), at as u64, chunk.bytes as u32);
            let to = Remote { address: self.remote.address + self.incoming(index) as u64, ..self.remote };
            let work = Work::Write { from, to, immediate: Some(index as u32) };
            // SAFETY: the slot is this round's until it was sent, and its place at the peer is free by the credit.
            if unsafe { self.wires.post(chunk.channel, index as u64, work)? } {
                self.sends[index].state = Sending::Write;
            }
        }
        Ok(())
    }

    fn move_receive(&mut self, index: usize) -> Result<()> {
        let at = self.incoming(index);
        let (scratch, credit) = (self.credit(MOST_SLOTS + index) as u64, self.credit(index) as u64);
        let slot = &mut self.receives[index];
        if slot.state == Receiving::Arrival
            && let Some(bytes) = slot.arrived.take()
        {
            if bytes as usize != slot.chunk.bytes {
                let (peer, want) = (slot.chunk.peer, slot.chunk.bytes);
                return Err(Error::misuse(format!(
                    "rank {peer} sent {bytes} bytes through slot {index} where {want} were expected: both ends cut a transfer alike"
                )));
            }
            // SAFETY: the slot is the receiver's until it gives credit.
            let staging = unsafe { &*Self::staging(&self.memory, at, slot.chunk.bytes) };
            match &mut slot.work {
                Some(Task::Copy(buffer, offset)) => buffer.write(*offset, staging)?,
                Some(Task::Receive(hooks)) => hooks.process(&slot.chunk, staging),
                _ => {}
            }
            slot.state = Receiving::Process;
        }
        if slot.state == Receiving::Process {
            let done = match &mut slot.work {
                Some(Task::Receive(hooks)) => {
                    // SAFETY: as above.
                    let staging = unsafe { &*Self::staging(&self.memory, at, slot.chunk.bytes) };
                    hooks.is_done(&slot.chunk, staging)
                }
                _ => true,
            };
            if done {
                slot.state = Receiving::Signal;
            }
        }
        if slot.state == Receiving::Signal {
            let chunk = slot.chunk;
            let work = Work::FetchAdd {
                at: Remote { address: self.remote.address + credit, ..self.remote },
                add: 1,
                old: local(self.memory.registration(), scratch, 8),
            };
            // SAFETY: words that atomics alone change, and a scratch word of this slot.
            if unsafe { self.wires.post(chunk.channel, CREDIT | index as u64, work)? } {
                let slot = &mut self.receives[index];
                slot.state = Receiving::Idle;
                slot.ended += 1;
                if let Some(Task::Receive(mut hooks)) = slot.work.take() {
                    hooks.on_done(&chunk);
                }
            }
        }
        Ok(())
    }

    fn check(&self, channel: usize, slot: usize, bytes: usize) -> Result<()> {
        in_range("channel", channel, self.wires.channels())?;
        in_range("slot", slot, self.depth)?;
        match bytes {
            0 => Err(Error::misuse("a chunk of no bytes")),
            n if n > self.chunk => {
                Err(Error::misuse(format!("a chunk of {n} bytes; a slot holds {}", self.chunk)))
            }
            _ => self.wires.sound(),
        }
    }
}

impl P2pHostTransport for CopyBased {
    fn peer(&self) -> usize {
        self.wires.peer()
    }

    fn mode(&self) -> Mode {
        Mode::CopyBased
    }

    fn channels(&self) -> usize {
        self.wires.channels()
    }

    fn pipeline_depth(&self) -> usize {
        self.depth
    }

    fn chunk_bytes(&self) -> usize {
        self.chunk
    }

    fn progress(&mut self) -> Result<()> {
        self.wires.progress()?;
        for id in std::mem::take(&mut self.wires.ended) {
            if id & CREDIT == 0
                && let Some(slot) = self.sends.get_mut(id as usize)
            {
                slot.state = Sending::Idle;
                slot.ended += 1;
                if let Some(Task::Send(mut hooks)) = slot.work.take() {
                    hooks.on_done(&slot.chunk);
                }
            }
        }
        for channel in 0..self.wires.channels() {
            while let Some((slot, bytes)) = self.wires.arrivals[channel].pop_front() {
                let place = self.receives.get_mut(slot as usize).filter(|s| s.arrived.is_none());
                let Some(place) = place else {
                    // Not this transport's protocol: a slot that does not exist, or that has no credit.
                    self.wires.fail("a chunk", crate::rdma::Status::RemoteRefused);
                    return self.wires.sound();
                };
                place.arrived = Some(bytes);
            }
        }
        for slot in 0..self.depth {
            self.move_send(slot)?;
            self.move_receive(slot)?;
        }
        Ok(())
    }

    fn send_ctrl(&mut self, kind: u32, payload: &[u8]) -> Result<CtrlRequest> {
        self.wires.send_ctrl(kind, payload)
    }

    fn recv_ctrl(&mut self) -> Result<CtrlRequest> {
        self.wires.recv_ctrl()
    }

    fn test_ctrl(&mut self, request: &CtrlRequest) -> Result<Option<CtrlMessage>> {
        self.progress()?;
        Ok(self.wires.test_ctrl(request))
    }

    fn ready_for_send(&self, channel: usize, slot: usize) -> Result<bool> {
        self.check(channel, slot, 1)?;
        Ok(self.sends[slot].state == Sending::Idle)
    }

    fn ready_for_recv(&self, channel: usize, slot: usize) -> Result<bool> {
        self.check(channel, slot, 1)?;
        Ok(self.receives[slot].state == Receiving::Idle)
    }

    fn send_chunk(&mut self, chunk: SendChunk) -> Result<ChunkRequest> {
        let SendChunk { buffer, offset, bytes, channel, slot: index, round, hooks, .. } = chunk;
        self.check(channel, index, bytes)?;
        let at = index * self.chunk;
        let peer = self.peer();
        let slot = &mut self.sends[index];
        if slot.state != Sending::Idle {
            return Err(Error::misuse(format!("slot {index} is being sent: ask `ready_for_send` first")));
        }
        let context = ChunkContext { peer, channel, slot: index, round, bytes };
        // SAFETY: the slot is idle, so no adapter reads it.
        let staging = unsafe { &mut *Self::staging(&self.memory, at, bytes) };
        slot.work = match (hooks, buffer) {
            (Some(mut hooks), _) => {
                hooks.prepare(&context, staging);
                Some(Task::Send(hooks))
            }
            (None, Some(buffer)) => {
                buffer.read(offset, staging)?;
                None
            }
            (None, None) => return Err(Error::misuse("a chunk with neither a buffer nor hooks")),
        };
        (slot.state, slot.chunk) = (Sending::Prepare, context);
        slot.begun += 1;
        let request = ChunkRequest { sends: true, channel, slot: index, number: slot.begun };
        self.move_send(index)?;
        Ok(request)
    }

    fn recv_chunk(&mut self, chunk: RecvChunk) -> Result<ChunkRequest> {
        let RecvChunk { buffer, offset, bytes, channel, slot: index, round, hooks } = chunk;
        self.check(channel, index, bytes)?;
        let peer = self.peer();
        let slot = &mut self.receives[index];
        if slot.state != Receiving::Idle {
            return Err(Error::misuse(format!("slot {index} is being received: ask `ready_for_recv` first")));
        }
        slot.work = Some(match (hooks, buffer) {
            (Some(hooks), _) => Task::Receive(hooks),
            (None, Some(buffer)) => {
                buffer.check(offset, bytes)?;
                Task::Copy(buffer, offset)
            }
            (None, None) => return Err(Error::misuse("a chunk with neither a buffer nor hooks")),
        });
        slot.chunk = ChunkContext { peer, channel, slot: index, round, bytes };
        slot.state = Receiving::Arrival;
        slot.begun += 1;
        Ok(ChunkRequest { sends: false, channel, slot: index, number: slot.begun })
    }

    fn test_chunk(&mut self, request: &ChunkRequest) -> Result<bool> {
        in_range("slot", request.slot, self.depth)?;
        self.progress()?;
        let (send, receive) = (&self.sends[request.slot], &self.receives[request.slot]);
        Ok(if request.sends { send.ended } else { receive.ended } >= request.number)
    }

    /// The buffer stays this rank's own: the peer is told that there is staging.
    fn export_recv_buf(&mut self, _buffer: &HostBuffer) -> Result<CtrlMessage> {
        Ok(CtrlMessage { kind: kind::SYNC, payload: Vec::new() })
    }

    unsafe fn import_remote(&self, message: &CtrlMessage) -> Result<RemoteBuffer> {
        import(self.peer(), message)
    }
}
