//! How a launch is cut: the one place that decides protocol, channels, threads and chunk.

use super::prepared::Prepared;
use super::{LaunchOptions, Protocol};
use crate::kernel::HookSet;
use crate::{Error, Result, Transport};
use fusewire_device::line;
use fusewire_device::pack::Pack;
use std::fmt;

/// Most threads of a block: kernels are compiled for at most as many.
pub(crate) const THREADS: u32 = 512;

/// Blocks that lines are spread over at most: about one to each multiprocessor.
const LINE_BLOCKS: u32 = 128;

/// Packs of a line channel: few, since each waits for its own flags.
const PACKS_PER_LINE_CHANNEL: usize = 64;

/// How a launch is cut; `explain` of each launcher gives it, and it prints itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How bytes travel.
    pub protocol: Protocol,
    /// Elements of one peer's chunk.
    pub elements: usize,
    /// Payload bytes of one peer's chunk on the wire, in whole packs.
    pub wire_bytes: usize,
    /// Channels to each peer.
    pub channels: u32,
    /// Blocks in the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Staged: bytes that travel together on a channel.
    pub chunk: u64,
    /// Packs in flight per thread.
    pub unroll: u32,
    /// Blocks that the device holds at once, so that they can wait for each other.
    pub resident: u32,
    /// Who decided.
    pub decided: Decided,
}

/// Who decided how a launch is cut: the first of these that had something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The caller's options; what they left open is as by default.
    Caller,
    /// A row of the tuning table, for all that the caller left open.
    Table,
    /// The analytic default.
    Default,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} elements ({} wire bytes) to each peer over {} channels",
            self.elements, self.wire_bytes, self.channels
        )?;
        match self.protocol {
            Protocol::Staged => write!(f, " of staging in chunks of {} bytes", self.chunk)?,
            Protocol::Lines => write!(f, " of lines that carry their flags")?,
        }
        write!(
            f,
            "; {} blocks of {} threads (the device holds {}), {} packs in flight; {}",
            self.blocks,
            self.threads,
            self.resident,
            self.unroll,
            match self.decided {
                Decided::Caller => "as the caller's options say",
                Decided::Table => "as the tuning table says",
                Decided::Default => "by default",
            }
        )
    }
}

/// Channels to each peer that a GPU uses for so many wire bytes through staging, residency aside. From sweeps on 2 and 4 H200s
/// (docs/performance.md).
fn staged_channels(wire_bytes: usize) -> u32 {
    let most = if wire_bytes >= 64 << 20 { 24 } else { 32 };
    wire_bytes.div_ceil(8 << 10).clamp(1, most) as u32
}

impl<X: Transport> Prepared<X> {
    /// Cuts a chunk. `blocks(protocol, channels)` is the grid that so many channels need.
    ///
    /// What the caller's options say stands; what they leave open comes from the tuning table, if it has a row that fits, else from
    /// [`Prepared::cut`].
    pub(crate) fn plan<H: HookSet>(
        &self,
        elements: usize,
        options: &LaunchOptions,
        blocks: impl Fn(Protocol, u32) -> u32,
    ) -> Result<Plan> {
        let wire_bytes = elements.div_ceil(Pack::<H::Wire>::LANES).saturating_mul(16);
        if let Some(filled) = self.tuned.fill(wire_bytes, options)
            && let Ok(plan) = self.cut::<H>(elements, &filled, &blocks)
        {
            return Ok(Plan { decided: Decided::Table, ..plan });
        }
        self.cut::<H>(elements, options, &blocks)
    }

    /// Cuts a chunk without a table.
    pub(crate) fn cut<H: HookSet>(
        &self,
        elements: usize,
        options: &LaunchOptions,
        blocks: impl Fn(Protocol, u32) -> u32,
    ) -> Result<Plan> {
        let layout = self.link.layout();
        if options.deadline.is_some_and(|d| d.is_zero()) {
            return Err(Error::misuse("a deadline of 0 s; a wait needs some time"));
        }
        // All ranks' chunks, in elements and in wire bytes, are numbers that fit.
        let packs = elements.div_ceil(Pack::<H::Wire>::LANES);
        let fits = |n: usize| n.checked_mul(16 * self.world()).is_some_and(|n| n < 1 << 62);
        if !fits(elements) || !fits(packs) {
            return Err(Error::misuse(format!(
                "{elements} elements to each of {} ranks are too many",
                self.world()
            )));
        }
        let wire_bytes = packs * 16;
        // What lines carry in one call: by default as far as they are faster than staging, which is one block to a multiprocessor.
        let spread =
            (LINE_BLOCKS / layout.world).clamp(1, layout.line_channels.max(1)).min(layout.line_channels);
        let most_lines = if options.protocol.is_some() { layout.line_channels } else { spread };
        let room = most_lines as usize * line::PACKS as usize * 16;
        let protocol = match options.protocol {
            Some(protocol) => protocol,
            // Channels, chunks and variants are of staging unless lines are asked for.
            None if options.channels.is_some() || options.chunk.is_some() || options.unroll.is_some() => {
                Protocol::Staged
            }
            None if self.has(Protocol::Lines) && !self.on_host() && wire_bytes <= room => Protocol::Lines,
            None => Protocol::Staged,
        };
        let lines = protocol == Protocol::Lines;
        let unroll = self.unroll(protocol, options.unroll)?;
        let packs = wire_bytes / 16;
        if lines && wire_bytes > room {
            return Err(Error::misuse(format!(
                "{wire_bytes} wire bytes to each peer, but lines carry at most {room} here: use `Protocol::Staged`, or more `Options::line_channels`"
            )));
        }
        // The fewest channels that hold the chunk.
        let least = if lines { packs.div_ceil(line::PACKS as usize).max(1) as u32 } else { 1 };
        let most = if lines { most_lines } else { layout.channels };
        let wanted = match options.channels {
            Some(channels) => channels,
            None if self.on_host() => least,
            None if lines => (packs.div_ceil(PACKS_PER_LINE_CHANNEL) as u32).min(spread).max(least),
            None => staged_channels(wire_bytes).min(most),
        };
        if wanted == 0 {
            return Err(Error::misuse("0 channels to each peer; a launch uses at least one"));
        }
        if lines && (wanted < least || wanted > most) {
            return Err(Error::misuse(format!(
                "{wanted} line channels for {wire_bytes} wire bytes; a launch uses {least} to {most}"
            )));
        }
        let threads = match options.threads {
            _ if self.on_host() => 1,
            Some(threads) if threads == 0 || threads > THREADS || !threads.is_multiple_of(32) => {
                return Err(Error::misuse(format!(
                    "{threads} threads in a block; a block has a multiple of 32 up to {THREADS}"
                )));
            }
            Some(threads) => threads,
            None if lines => {
                (packs.div_ceil(wanted.max(1) as usize).next_multiple_of(32) as u32).clamp(64, THREADS)
            }
            None => THREADS,
        };
        let resident = self.resident(protocol, options.unroll, threads)?;
        let mut channels = wanted;
        while options.channels.is_none() && channels > least && blocks(protocol, channels) > resident {
            channels -= 1;
        }
        let chunk = options.chunk.map_or(layout.window / 4, |c| c as u64);
        if !lines {
            self.link.check_transfer(channels, chunk)?;
        }
        let grid = blocks(protocol, channels);
        if grid > resident {
            return Err(Error::misuse(format!(
                "{grid} blocks of {threads} threads wait for each other, but the device holds only {resident} at once: use fewer channels or threads"
            )));
        }
        let LaunchOptions { protocol: p, channels: c, threads: t, chunk: k, unroll: u, .. } = options;
        let open = p.is_none() && c.is_none() && t.is_none() && k.is_none() && u.is_none();
        let decided = if open { Decided::Default } else { Decided::Caller };
        Ok(Plan {
            protocol,
            elements,
            wire_bytes,
            channels,
            blocks: grid,
            threads,
            chunk,
            unroll,
            resident,
            decided,
        })
    }
}
