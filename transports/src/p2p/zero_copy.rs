//! Chunks straight into the peer's buffer.

use super::wires::Wires;
use super::{
    ChunkRequest, CtrlMessage, CtrlRequest, Error, Exported, HostBuffer, Mode, P2pHostTransport, RecvChunk,
    Registered, Registrations, RemoteBuffer, Result, SendChunk, in_range, kind,
};
use crate::rdma::{Remote, Work, local};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most bytes of one request; a longer chunk is several, of which the last notifies.
const MESSAGE: usize = 4 << 20;

/// One write with notification a chunk, into the buffer that the peer exported.
#[derive(Debug)]
pub struct ZeroCopy {
    wires: Wires,
    registrations: Arc<Registrations>,
    channels: Vec<Channel>,
    /// What peers were told of stays registered.
    exported: Vec<Arc<Registered>>,
}

#[derive(Debug, Default)]
struct Channel {
    /// Chunks that are not posted whole, with the bytes that are.
    waiting: VecDeque<(Posted, usize)>,
    /// Chunks that are, whose buffers the adapter reads.
    under_way: VecDeque<Posted>,
    send_issued: u64,
    send_done: u64,
    recv_issued: u64,
    recv_done: u64,
}

#[derive(Debug)]
struct Posted {
    from: Arc<Registered>,
    offset: usize,
    bytes: usize,
    to: Remote,
}

/// A request that is not the last of its chunk.
const PART: u64 = 1 << 32;

impl ZeroCopy {
    pub(crate) fn new(wires: Wires, registrations: Arc<Registrations>) -> Self {
        let channels = (0..wires.channels()).map(|_| Channel::default()).collect();
        ZeroCopy { wires, registrations, channels, exported: Vec::new() }
    }

    /// Posts what waits, oldest first, as far as the queues have room.
    fn post_waiting(&mut self) -> Result<()> {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            while let Some((chunk, posted)) = channel.waiting.front_mut() {
                let piece = (chunk.bytes - *posted).min(MESSAGE);
                let last = *posted + piece == chunk.bytes;
                let from = local(chunk.from.registration(), (chunk.offset + *posted) as u64, piece as u32);
                let to = Remote { address: chunk.to.address + *posted as u64, ..chunk.to };
                let work = Work::Write { from, to, immediate: last.then_some(0) };
                let id = index as u64 | if last { 0 } else { PART };
                // SAFETY: both ends are bytes of `HostBuffer`s, which programs access by atomics: the peer exported the one.
                if !unsafe { self.wires.post(index, id, work)? } {
                    break;
                }
                *posted += piece;
                if last && let Some((chunk, _)) = channel.waiting.pop_front() {
                    channel.under_way.push_back(chunk);
                }
            }
        }
        Ok(())
    }
}

impl P2pHostTransport for ZeroCopy {
    fn peer(&self) -> usize {
        self.wires.peer()
    }

    fn mode(&self) -> Mode {
        Mode::ZeroCopy
    }

    fn channels(&self) -> usize {
        self.channels.len()
    }

    fn pipeline_depth(&self) -> usize {
        0
    }

    fn chunk_bytes(&self) -> usize {
        0
    }

    fn progress(&mut self) -> Result<()> {
        self.wires.progress()?;
        for id in self.wires.ended.drain(..).filter(|id| id & PART == 0) {
            let channel = &mut self.channels[id as usize];
            channel.under_way.pop_front();
            channel.send_done += 1;
        }
        for (channel, arrivals) in self.channels.iter_mut().zip(&mut self.wires.arrivals) {
            channel.recv_done += arrivals.drain(..).count() as u64;
        }
        self.post_waiting()
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

    /// Always: the send queue is as long as need be.
    fn ready_for_send(&self, channel: usize, _slot: usize) -> Result<bool> {
        in_range("channel", channel, self.channels.len())?;
        Ok(true)
    }

    fn ready_for_recv(&self, channel: usize, slot: usize) -> Result<bool> {
        self.ready_for_send(channel, slot)
    }

    fn send_chunk(&mut self, chunk: SendChunk) -> Result<ChunkRequest> {
        in_range("channel", chunk.channel, self.channels.len())?;
        let (Some(buffer), Some(RemoteBuffer::ZeroCopy(Exported { address, rkey, bytes }))) =
            (&chunk.buffer, chunk.to)
        else {
            return Err(Error::misuse(
                "a zero-copy chunk needs a buffer here, and one of the peer's that `import_remote` gave",
            ));
        };
        buffer.check(chunk.offset, chunk.bytes)?;
        if chunk.bytes == 0 || (chunk.offset + chunk.bytes) as u64 > bytes {
            return Err(Error::misuse(format!(
                "{} bytes at {} into a buffer of {bytes} bytes of rank {}",
                chunk.bytes,
                chunk.offset,
                self.wires.peer()
            )));
        }
        self.wires.sound()?;
        let from = self.registrations.of(buffer)?;
        let to = Remote { address: address + chunk.offset as u64, rkey };
        let channel = &mut self.channels[chunk.channel];
        channel.waiting.push_back((Posted { from, offset: chunk.offset, bytes: chunk.bytes, to }, 0));
        channel.send_issued += 1;
        let request =
            ChunkRequest { sends: true, channel: chunk.channel, slot: 0, number: channel.send_issued };
        self.post_waiting()?;
        Ok(request)
    }

    /// Counts one more notification: whoever ignores the request still has to call this for each chunk, since notifications come in
    /// order.
    fn recv_chunk(&mut self, chunk: RecvChunk) -> Result<ChunkRequest> {
        in_range("channel", chunk.channel, self.channels.len())?;
        self.wires.sound()?;
        let channel = &mut self.channels[chunk.channel];
        channel.recv_issued += 1;
        Ok(ChunkRequest { sends: false, channel: chunk.channel, slot: 0, number: channel.recv_issued })
    }

    fn test_chunk(&mut self, request: &ChunkRequest) -> Result<bool> {
        in_range("channel", request.channel, self.channels.len())?;
        self.progress()?;
        let channel = &self.channels[request.channel];
        Ok(if request.sends { channel.send_done } else { channel.recv_done } >= request.number)
    }

    fn export_recv_buf(&mut self, buffer: &HostBuffer) -> Result<CtrlMessage> {
        let registered = self.registrations.of(buffer)?;
        let registration = registered.registration();
        let mut payload = registration.start().to_le_bytes().to_vec();
        payload.extend((registration.bytes() as u64).to_le_bytes());
        payload.extend(registration.rkey().to_le_bytes());
        if !self.exported.iter().any(|e| Arc::ptr_eq(e, &registered)) {
            self.exported.push(registered);
        }
        Ok(CtrlMessage { kind: kind::EXPORT, payload })
    }

    unsafe fn import_remote(&self, message: &CtrlMessage) -> Result<RemoteBuffer> {
        import(self.peer(), message)
    }
}

/// Reads what `export_recv_buf` of either mode wrote.
pub fn import(peer: usize, message: &CtrlMessage) -> Result<RemoteBuffer> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b));
    match (message.kind, message.payload.as_slice()) {
        (kind::EXPORT, p) if p.len() == 20 => {
            let (address, bytes, rkey) = (number(&p[..8]), number(&p[8..16]), number(&p[16..]) as u32);
            Ok(RemoteBuffer::ZeroCopy(Exported { address, rkey, bytes }))
        }
        (kind::SYNC, []) => Ok(RemoteBuffer::CopyBased),
        (kind, payload) => {
            Err(Error::Unexpected { peer, kind, bytes: payload.len(), expected: "export of a buffer" })
        }
    }
}
