//! A transport without an adapter, to test algorithms with: two ends in one process, which keep a log and can be told to fail.

use super::{
    ChunkContext, ChunkRequest, CtrlMessage, CtrlRequest, Error, Exported, HostBuffer, Mode,
    P2pHostTransport, RecvChunk, RemoteBuffer, Result, SendChunk, in_range, kind,
};
use crate::rdma::Status;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an algorithm did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `progress`, by itself or within a test.
    Progress,
    /// `send_ctrl` of a kind.
    SendCtrl(u32),
    /// `recv_ctrl`.
    RecvCtrl,
    /// `send_chunk` by channel and slot.
    SendChunk(usize, usize),
    /// `recv_chunk` by channel and slot.
    RecvChunk(usize, usize),
}

/// Geometry of a mock, and what it does wrong.
#[derive(Clone, Debug)]
pub struct MockOptions {
    /// How chunks claim to travel.
    pub mode: Mode,
    /// Channels.
    pub channels: usize,
    /// Bytes of a slot.
    pub chunk_bytes: usize,
    /// Slots.
    pub pipeline_depth: usize,
    /// Calls of `progress` at the sender before something that was sent arrives.
    pub latency: usize,
    /// Chunks after which the sender's requests fail.
    pub fail_after: Option<usize>,
}

impl Default for MockOptions {
    /// Copy-based, 2 channels, 4 slots of 16 bytes, arrival after 3 calls, no failure.
    fn default() -> Self {
        MockOptions {
            mode: Mode::CopyBased,
            channels: 2,
            chunk_bytes: 16,
            pipeline_depth: 4,
            latency: 3,
            fail_after: None,
        }
    }
}

/// Channel and slot.
type Place = (usize, usize);

/// A chunk that has arrived: its offset, and its bytes.
type Arrived = (usize, Vec<u8>);

/// Where one that is to come goes: buffer, offset, bytes.
type Wanted = (Option<HostBuffer>, usize, usize);

#[derive(Debug)]
enum Item {
    Ctrl(CtrlMessage),
    Chunk(ChunkContext, usize, Vec<u8>),
}

/// What both ends share: what each has received.
#[derive(Debug, Default)]
struct End {
    ctrl: VecDeque<CtrlMessage>,
    /// By (channel, slot), in order.
    chunks: HashMap<Place, VecDeque<Arrived>>,
    /// Rounds of a slot that were taken here.
    taken: HashMap<usize, u64>,
    exported: Option<HostBuffer>,
}

/// One end.
#[derive(Debug)]
pub struct Mock {
    ends: Arc<Mutex<[End; 2]>>,
    me: usize,
    options: MockOptions,
    on_the_way: VecDeque<(usize, Item)>,
    /// By (channel, slot): begun and ended.
    sends: HashMap<Place, (u64, u64)>,
    receives: HashMap<Place, (u64, u64)>,
    places: HashMap<Place, VecDeque<Wanted>>,
    slots_sent: HashMap<usize, u64>,
    ctrl: (u64, u64, u64),
    inbox: HashMap<u64, CtrlMessage>,
    arrived: u64,
    chunks: usize,
    failed: bool,
    /// Everything that was called, in order.
    pub calls: Vec<Call>,
}

/// Two ends, of rank 0 and of rank 1.
pub fn pair(options: &MockOptions) -> (Mock, Mock) {
    let ends = Arc::new(Mutex::new([End::default(), End::default()]));
    let end = |me| Mock {
        ends: Arc::clone(&ends),
        me,
        options: options.clone(),
        on_the_way: VecDeque::new(),
        sends: HashMap::new(),
        receives: HashMap::new(),
        places: HashMap::new(),
        slots_sent: HashMap::new(),
        ctrl: (0, 0, 0),
        inbox: HashMap::new(),
        arrived: 0,
        chunks: 0,
        failed: false,
        calls: Vec::new(),
    };
    (end(0), end(1))
}

impl Mock {
    fn ends(&self) -> MutexGuard<'_, [End; 2]> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sound(&self) -> Result<()> {
        match self.failed {
            false => Ok(()),
            true => Err(Error::Failed { peer: 1 - self.me, what: "a chunk", status: Status::Unreachable }),
        }
    }

    fn slot(&self, slot: usize) -> usize {
        if self.options.mode == Mode::ZeroCopy { 0 } else { slot }
    }

    fn deliver(&mut self, item: Item) -> Result<()> {
        let (mode, peer) = (self.options.mode, 1 - self.me);
        match item {
            Item::Ctrl(message) => {
                self.ctrl.1 += 1;
                self.ends()[peer].ctrl.push_back(message);
            }
            Item::Chunk(chunk, offset, bytes) => {
                let place = (chunk.channel, chunk.slot);
                self.sends.entry(place).or_default().1 += 1;
                let mut ends = self.ends();
                if mode == Mode::ZeroCopy
                    && let Some(buffer) = &ends[peer].exported
                {
                    buffer.write(offset, &bytes)?;
                }
                ends[peer].chunks.entry(place).or_default().push_back((offset, bytes));
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let own = &mut ends[self.me];
        for message in own.ctrl.drain(..) {
            self.inbox.insert(self.arrived, message);
            self.arrived += 1;
        }
        for (place, waiting) in &mut self.places {
            let arrived = own.chunks.entry(*place).or_default();
            while !waiting.is_empty() && !arrived.is_empty() {
                let (Some((buffer, offset, bytes)), Some((_, data))) =
                    (waiting.pop_front(), arrived.pop_front())
                else {
                    break;
                };
                if self.options.mode == Mode::CopyBased {
                    if data.len() != bytes {
                        return Err(Error::misuse(format!(
                            "{} bytes arrived where {bytes} were expected",
                            data.len()
                        )));
                    }
                    if let Some(buffer) = buffer {
                        buffer.write(offset, &data)?;
                    }
                    *own.taken.entry(place.1).or_default() += 1;
                }
                self.receives.entry(*place).or_default().1 += 1;
            }
        }
        Ok(())
    }
}

impl P2pHostTransport for Mock {
    fn peer(&self) -> usize {
        1 - self.me
    }

    fn mode(&self) -> Mode {
        self.options.mode
    }

    fn channels(&self) -> usize {
        self.options.channels
    }

    fn pipeline_depth(&self) -> usize {
        if self.options.mode == Mode::ZeroCopy { 0 } else { self.options.pipeline_depth }
    }

    fn chunk_bytes(&self) -> usize {
        if self.options.mode == Mode::ZeroCopy { 0 } else { self.options.chunk_bytes }
    }

    fn progress(&mut self) -> Result<()> {
        self.calls.push(Call::Progress);
        self.sound()?;
        self.on_the_way.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
        while self.on_the_way.front().is_some_and(|(left, _)| *left == 0) {
            if let Some((_, item)) = self.on_the_way.pop_front() {
                self.deliver(item)?;
            }
        }
        self.take()
    }

    fn send_ctrl(&mut self, kind: u32, payload: &[u8]) -> Result<CtrlRequest> {
        self.calls.push(Call::SendCtrl(kind));
        self.sound()?;
        let message = CtrlMessage { kind, payload: payload.to_vec() };
        self.on_the_way.push_back((self.options.latency, Item::Ctrl(message)));
        self.ctrl.0 += 1;
        Ok(CtrlRequest::Send(self.ctrl.0))
    }

    fn recv_ctrl(&mut self) -> Result<CtrlRequest> {
        self.calls.push(Call::RecvCtrl);
        self.ctrl.2 += 1;
        Ok(CtrlRequest::Receive(self.ctrl.2 - 1))
    }

    fn test_ctrl(&mut self, request: &CtrlRequest) -> Result<Option<CtrlMessage>> {
        self.progress()?;
        Ok(match request {
            CtrlRequest::Send(n) => (self.ctrl.1 >= *n).then(|| CtrlMessage { kind: 0, payload: Vec::new() }),
            CtrlRequest::Receive(n) => self.inbox.remove(n),
        })
    }

    fn ready_for_send(&self, channel: usize, slot: usize) -> Result<bool> {
        in_range("channel", channel, self.options.channels)?;
        if self.options.mode == Mode::ZeroCopy {
            return Ok(true);
        }
        in_range("slot", slot, self.options.pipeline_depth)?;
        // One round of a slot at a time, and no more of them than the peer has taken, but one.
        let sent = self.slots_sent.get(&slot).copied().unwrap_or(0);
        Ok(self.ends()[1 - self.me].taken.get(&slot).copied().unwrap_or(0) >= sent)
    }

    fn ready_for_recv(&self, channel: usize, slot: usize) -> Result<bool> {
        in_range("channel", channel, self.options.channels)?;
        let under_way = |place: &(usize, usize)| self.receives.get(place).is_some_and(|(b, e)| b > e);
        Ok(self.options.mode == Mode::ZeroCopy || !(0..self.options.channels).any(|c| under_way(&(c, slot))))
    }

    fn send_chunk(&mut self, chunk: SendChunk) -> Result<ChunkRequest> {
        let (channel, slot) = (chunk.channel, self.slot(chunk.slot));
        self.calls.push(Call::SendChunk(channel, slot));
        self.sound()?;
        if !self.ready_for_send(channel, slot)? {
            return Err(Error::misuse(format!("slot {slot} is being sent")));
        }
        self.failed = self.options.fail_after == Some(self.chunks);
        self.chunks += 1;
        *self.slots_sent.entry(slot).or_default() += 1;
        let context =
            ChunkContext { peer: 1 - self.me, channel, slot, round: chunk.round, bytes: chunk.bytes };
        let mut bytes = vec![0; chunk.bytes];
        match (chunk.hooks, &chunk.buffer) {
            (Some(mut hooks), _) => hooks.prepare(&context, &mut bytes),
            (None, Some(buffer)) => buffer.read(chunk.offset, &mut bytes)?,
            (None, None) => return Err(Error::misuse("a chunk with neither a buffer nor hooks")),
        }
        self.on_the_way.push_back((self.options.latency, Item::Chunk(context, chunk.offset, bytes)));
        let begun = &mut self.sends.entry((channel, slot)).or_default().0;
        *begun += 1;
        Ok(ChunkRequest { sends: true, channel, slot, number: *begun })
    }

    fn recv_chunk(&mut self, chunk: RecvChunk) -> Result<ChunkRequest> {
        let (channel, slot) = (chunk.channel, self.slot(chunk.slot));
        self.calls.push(Call::RecvChunk(channel, slot));
        self.sound()?;
        if !self.ready_for_recv(channel, slot)? {
            return Err(Error::misuse(format!("slot {slot} is being received")));
        }
        self.places.entry((channel, slot)).or_default().push_back((chunk.buffer, chunk.offset, chunk.bytes));
        let begun = &mut self.receives.entry((channel, slot)).or_default().0;
        *begun += 1;
        Ok(ChunkRequest { sends: false, channel, slot, number: *begun })
    }

    fn test_chunk(&mut self, request: &ChunkRequest) -> Result<bool> {
        self.progress()?;
        let counts = if request.sends { &self.sends } else { &self.receives };
        Ok(counts.get(&(request.channel, request.slot)).is_some_and(|(_, ended)| *ended >= request.number))
    }

    fn export_recv_buf(&mut self, buffer: &HostBuffer) -> Result<CtrlMessage> {
        let me = self.me;
        self.ends()[me].exported = Some(buffer.clone());
        let kind = if self.options.mode == Mode::ZeroCopy { kind::EXPORT } else { kind::SYNC };
        Ok(CtrlMessage { kind, payload: Vec::new() })
    }

    unsafe fn import_remote(&self, message: &CtrlMessage) -> Result<RemoteBuffer> {
        match message.kind {
            kind::EXPORT => {
                // SAFETY: the mock follows no address.
                Ok(RemoteBuffer::ZeroCopy(unsafe { Exported::new(0, 0, u64::MAX) }))
            }
            kind::SYNC => Ok(RemoteBuffer::CopyBased),
            kind => {
                let bytes = message.payload.len();
                Err(Error::Unexpected { peer: self.peer(), kind, bytes, expected: "export of a buffer" })
            }
        }
    }
}
