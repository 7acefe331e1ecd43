//! An algorithm over the trait: both directions at once, over all channels and slots.

use super::{
    ChunkRequest, CtrlMessage, HostBuffer, P2pHostTransport, RecvChunk, RemoteBuffer, Result, SendChunk,
    expired,
};
use std::time::{Duration, Instant};

/// What goes one way.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// From or to its beginning.
    pub buffer: HostBuffer,
    /// How much.
    pub bytes: usize,
}

/// One direction: chunk `n` goes by channel `n mod channels` and slot `n mod depth`.
struct Lane {
    transfer: Transfer,
    to: Option<RemoteBuffer>,
    sends: bool,
    chunks: usize,
    begun: usize,
    under_way: Vec<ChunkRequest>,
}

impl Lane {
    fn new(
        transport: &dyn P2pHostTransport,
        transfer: &Transfer,
        to: Option<RemoteBuffer>,
        sends: bool,
    ) -> Self {
        let chunks = transport.total_chunks(transfer.bytes);
        Lane { transfer: transfer.clone(), to, sends, chunks, begun: 0, under_way: Vec::new() }
    }

    /// Begins at most one chunk for each channel and tests those under way once.
    fn pass(&mut self, transport: &mut dyn P2pHostTransport) -> Result<()> {
        let (channels, depth) = (transport.channels(), transport.pipeline_depth().max(1));
        for _ in 0..channels {
            if self.begun == self.chunks {
                break;
            }
            let (channel, slot) = (self.begun % channels, self.begun % depth);
            let range = transport.chunk_range(self.transfer.bytes, self.begun);
            let (buffer, offset, bytes) = (Some(self.transfer.buffer.clone()), range.start, range.len());
            let round = (self.begun / depth) as u64;
            let request = if self.sends {
                if !transport.ready_for_send(channel, slot)? {
                    break;
                }
                let to = self.to;
                transport.send_chunk(SendChunk {
                    buffer,
                    offset,
                    bytes,
                    channel,
                    to,
                    slot,
                    round,
                    hooks: None,
                })?
            } else {
                if !transport.ready_for_recv(channel, slot)? {
                    break;
                }
                transport.recv_chunk(RecvChunk {
                    buffer,
                    offset,
                    bytes,
                    channel,
                    slot,
                    round,
                    hooks: None,
                })?
            };
            self.under_way.push(request);
            self.begun += 1;
        }
        let mut left = Vec::with_capacity(self.under_way.len());
        for request in self.under_way.drain(..) {
            if !transport.test_chunk(&request)? {
                left.push(request);
            }
        }
        self.under_way = left;
        Ok(())
    }

    fn done(&self) -> bool {
        self.begun == self.chunks && self.under_way.is_empty()
    }
}

/// Sends `send` and receives `receive`, either of which may be absent; the peer does the mirror image. Both ends agree on where the
/// bytes go by one control message.
///
/// # Errors
/// [`Error::Timeout`](super::Error::Timeout) after `limit`, and those of the transport.
pub fn exchange(
    transport: &mut dyn P2pHostTransport,
    send: Option<&Transfer>,
    receive: Option<&Transfer>,
    limit: Duration,
) -> Result<()> {
    let start = Instant::now();
    let told = match receive {
        Some(receive) => {
            let CtrlMessage { kind, payload } = transport.export_recv_buf(&receive.buffer)?;
            Some(transport.send_ctrl(kind, &payload)?)
        }
        None => None,
    };
    let mut lanes = Vec::new();
    if let Some(send) = send {
        let request = transport.recv_ctrl()?;
        let message = transport.wait_ctrl(&request, limit)?;
        // SAFETY: the message that the peer sent, whose exchange is this one.
        let to = unsafe { transport.import_remote(&message)? };
        lanes.push(Lane::new(transport, send, Some(to), true));
    }
    if let Some(receive) = receive {
        lanes.push(Lane::new(transport, receive, None, false));
    }
    let mut turn = 0;
    while lanes.iter().any(|lane| !lane.done()) {
        for lane in &mut lanes {
            lane.pass(transport)?;
        }
        transport.progress()?;
        let receives = lanes.iter().any(|lane| !lane.sends && !lane.done());
        expired(transport.peer(), if receives { "a chunk" } else { "a chunk to be taken" }, start, limit)?;
        fusewire_device::arch::relax(turn);
        turn += 1;
    }
    if let Some(told) = told {
        transport.wait_ctrl(&told, limit)?;
    }
    Ok(())
}
