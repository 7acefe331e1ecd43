//! What both modes share: queue pairs, control messages, receives that are always posted, failures.

use super::{CTRL_BYTES, CtrlMessage, CtrlRequest, Error, HostBuffer, Registered, Result};
use crate::rdma::{Adapter, Completion, Local, Pair, PairOptions, Request, Status, Work, local};
use std::collections::{HashMap, VecDeque};

/// The channel of control messages.
const CTRL: usize = 0;
/// Bytes of a control message and its header.
const FRAME: usize = CTRL_BYTES + 8;
/// Control messages under way.
const FRAMES: usize = 32;
/// Receives that are posted on each channel: chunks and control messages that the peer may be ahead.
const RECEIVES: usize = 64;
/// Completions of control messages; the rest of the number is the frame.
const CTRL_ID: u64 = 1 << 63;

/// The connection to one peer.
#[derive(Debug)]
pub struct Wires {
    // Pairs go before the memory they use.
    pairs: Vec<Box<dyn Pair>>,
    frames: Registered,
    peer: usize,
    /// Notifications by channel, in order: the number, and how many bytes were written.
    pub arrivals: Vec<VecDeque<(u32, u32)>>,
    /// Ids of requests that have ended, in order for each channel.
    pub ended: Vec<u64>,
    waiting: VecDeque<Vec<u8>>,
    free: Vec<usize>,
    sent: u64,
    done: u64,
    asked: u64,
    arrived: u64,
    inbox: HashMap<u64, CtrlMessage>,
    failed: Option<(&'static str, Status)>,
    completions: Vec<Completion>,
}

impl Wires {
    pub fn new(adapter: &dyn Adapter, peer: usize, channels: usize, options: &PairOptions) -> Result<Self> {
        let options = PairOptions {
            send_depth: options.send_depth.max(2 * FRAMES as u32),
            receive_depth: RECEIVES as u32,
            ..*options
        };
        let frames = Registered::new(adapter, &HostBuffer::new((FRAMES + RECEIVES) * FRAME)?)?;
        let mut pairs = Vec::with_capacity(channels);
        for channel in 0..channels {
            let pair = adapter.pair(&options)?;
            for receive in 0..RECEIVES {
                post_receive(&*pair, &frames, channel, receive as u64)?;
            }
            pairs.push(pair);
        }
        Ok(Wires {
            pairs,
            frames,
            peer,
            arrivals: vec![VecDeque::new(); channels],
            ended: Vec::new(),
            waiting: VecDeque::new(),
            free: (0..FRAMES).collect(),
            sent: 0,
            done: 0,
            asked: 0,
            arrived: 0,
            inbox: HashMap::new(),
            failed: None,
            completions: Vec::new(),
        })
    }

    pub fn peer(&self) -> usize {
        self.peer
    }

    pub fn channels(&self) -> usize {
        self.pairs.len()
    }

    pub fn endpoints(&self) -> Vec<Vec<u8>> {
        self.pairs.iter().map(|pair| pair.endpoint()).collect()
    }

    pub fn connect(&mut self, peers: &[Vec<u8>]) -> Result<()> {
        for (pair, endpoint) in self.pairs.iter_mut().zip(peers) {
            pair.connect(endpoint)?;
        }
        Ok(())
    }

    /// Posts a request; `false` if the channel's queue is full.
    ///
    /// # Safety
    /// As for [`Pair::post`].
    pub unsafe fn post(&mut self, channel: usize, id: u64, work: Work<'_>) -> Result<bool> {
        self.sound()?;
        // SAFETY: the caller's contract.
        Ok(unsafe { self.pairs[channel].post(&Request { id, work, fence: false })? })
    }

    pub fn sound(&self) -> Result<()> {
        match self.failed {
            None => Ok(()),
            Some((what, status)) => Err(Error::Failed { peer: self.peer, what, status }),
        }
    }

    pub fn fail(&mut self, what: &'static str, status: Status) {
        self.failed.get_or_insert((what, status));
    }

    /// Sends control messages that wait, and takes what has ended and arrived.
    pub fn progress(&mut self) -> Result<()> {
        self.sound()?;
        self.send_waiting()?;
        for channel in 0..self.pairs.len() {
            let mut completions = std::mem::take(&mut self.completions);
            self.pairs[channel].poll(&mut completions)?;
            for completion in completions.drain(..) {
                self.take(channel, &completion)?;
            }
            self.completions = completions;
        }
        self.sound()
    }

    fn send_waiting(&mut self) -> Result<()> {
        while let (Some(frame), Some(bytes)) = (self.free.last().copied(), self.waiting.front()) {
            self.frames.buffer().write(frame * FRAME, bytes)?;
            let from = local(self.frames.registration(), (frame * FRAME) as u64, bytes.len() as u32);
            // SAFETY: a frame that is free; it is taken below until it was sent.
            if !unsafe { self.post(CTRL, CTRL_ID | frame as u64, Work::Send { from })? } {
                break;
            }
            self.free.pop();
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn take(&mut self, channel: usize, completion: &Completion) -> Result<()> {
        let Completion { id, status, receive, bytes, immediate } = *completion;
        if status != Status::Done {
            let what = match (receive, id & CTRL_ID != 0) {
                (true, _) => "a receive",
                (false, true) => "a control message",
                (false, false) => "a chunk",
            };
            self.fail(what, status);
            return Ok(());
        }
        if !receive {
            if id & CTRL_ID != 0 {
                self.free.push((id & !CTRL_ID) as usize);
                self.done += 1;
            } else {
                self.ended.push(id);
            }
            return Ok(());
        }
        match immediate {
            Some(number) => self.arrivals[channel].push_back((number, bytes)),
            None => self.take_message(id as usize, bytes as usize)?,
        }
        if !post_receive(&*self.pairs[channel], &self.frames, channel, id)? {
            self.fail("a receive", Status::NotReceived);
        }
        Ok(())
    }

    fn take_message(&mut self, receive: usize, bytes: usize) -> Result<()> {
        let mut frame = [0; FRAME];
        self.frames.buffer().read((FRAMES + receive) * FRAME, &mut frame)?;
        let word = |at: usize| frame[at..at + 4].iter().rev().fold(0u32, |w, b| w << 8 | u32::from(*b));
        let (kind, len) = (word(0), word(4) as usize);
        if len > CTRL_BYTES || bytes != len + 8 {
            self.fail("a control message", Status::RemoteRefused);
            return Ok(());
        }
        let message = CtrlMessage { kind, payload: frame[8..8 + len].to_vec() };
        self.inbox.insert(self.arrived, message);
        self.arrived += 1;
        Ok(())
    }

    pub fn send_ctrl(&mut self, kind: u32, payload: &[u8]) -> Result<CtrlRequest> {
        if payload.len() > CTRL_BYTES {
            let have = payload.len();
            return Err(Error::misuse(format!(
                "a control message of {have} bytes; one has up to {CTRL_BYTES}"
            )));
        }
        self.sound()?;
        let mut bytes = Vec::with_capacity(8 + payload.len());
        bytes.extend(kind.to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        self.waiting.push_back(bytes);
        self.sent += 1;
        self.send_waiting()?;
        Ok(CtrlRequest::Send(self.sent))
    }

    pub fn recv_ctrl(&mut self) -> Result<CtrlRequest> {
        self.sound()?;
        self.asked += 1;
        Ok(CtrlRequest::Receive(self.asked - 1))
    }

    pub fn test_ctrl(&mut self, request: &CtrlRequest) -> Option<CtrlMessage> {
        match request {
            CtrlRequest::Send(number) => {
                (self.done >= *number).then(|| CtrlMessage { kind: 0, payload: Vec::new() })
            }
            CtrlRequest::Receive(number) => self.inbox.remove(number),
        }
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.pairs.iter().for_each(|pair| pair.break_off());
    }
}

/// Posts receive number `receive` of a channel; only that of control messages has room for one.
fn post_receive(pair: &dyn Pair, frames: &Registered, channel: usize, receive: u64) -> Result<bool> {
    let place = match channel {
        CTRL => local(frames.registration(), (FRAMES as u64 + receive) * FRAME as u64, FRAME as u32),
        _ => Local { address: 0, bytes: 0, lkey: 0 },
    };
    // SAFETY: a frame that is read behind its completion alone.
    Ok(unsafe { pair.post_receive(receive, place)? })
}
