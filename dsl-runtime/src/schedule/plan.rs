//! How a launch is cut, as a value that prints itself.

use super::Protocol;
use fusewire_device::launch::share_packs;
use fusewire_device::protocol::direct::bulk;
use fusewire_device::protocol::{ll, ll128 as line};
use fusewire_device::tile::transpose as tiles;
use std::fmt;

/// Most threads of a block: kernels are compiled for this limit.
pub(crate) const THREADS: u32 = 512;

/// The same of kernels of `layout(transposed)`, whose warps have shared memory, and of those that fold or work by rows, whose threads have many
/// registers.
pub(crate) const TILE_THREADS: u32 = 32 * tiles::WARPS;

/// Most blocks of a launch on CPU threads.
pub(crate) const HOST_BLOCKS: u32 = 1024;

/// Most packs of a block's share: device code counts them in 32 bits.
pub(super) const MOST_PACKS: u64 = u32::MAX as u64 & !7;

/// The configuration of a launch. `explain` of each launcher returns it, and it can be printed.
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
    /// Blocks at each end of a channel, which share its peers: more than one for short all-to-alls by the simple protocol among several ranks.
    pub groups: u32,
    /// Blocks that copy the rank's own chunk.
    pub self_copy: u32,
    /// Blocks in the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Simple, and the first step of two: bytes that travel together on a channel. Bulk: bytes of a copy.
    pub chunk: u64,
    /// Packs in flight per thread.
    pub unroll: u32,
    /// Blocks that every rank's device holds at once, so that they can wait for each other. If ranks share a device, each has a part of it.
    /// 1024 on the host, where each block has a CPU thread.
    pub resident: u32,
    /// A rank alone: by the kernel at full occupancy, which has fewer registers for a thread.
    pub(crate) full: bool,
    /// Bulk: the first packs of each chunk, which go by LL128 while the rank waits for the peers' *ready*.
    pub(crate) first: u64,
    /// `layout(transposed)`: packs of a tile's rows, if those are whole packs. `grain = row(N)`: packs of the fewest rows that are whole lines. Else 0.
    pub(crate) rows: u64,
    /// Whether shares have to be of so many, and the self copy's blocks take rows in turn.
    pub(crate) by_rows: bool,
    /// `layout(transposed)` by LL128: tiles of a chunk, if they travel tile by tile; else 0.
    pub(crate) tiles: u32,
    /// Elements of a chunk's last pack, if that is not whole; else 0.
    pub(crate) rest: u32,
    /// Two ranks whose GPUs have no link that carries LL128 lines whole, if that rules out LL128.
    pub parted: Option<(usize, usize)>,
    /// What decided the configuration.
    pub decided: Decided,
}

/// What decided a launch's configuration: the first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The caller's options; the default fills in the rest.
    Caller,
    /// A row of the tuning table, for everything that the caller left open.
    Table,
    /// The analytic default.
    Default,
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Decided::Caller => "as the caller's options say",
            Decided::Table => "as the tuning table says",
            Decided::Default => "by default",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { elements, wire_bytes, .. } = self;
        let channels = counted(self.channels, "channel");
        write!(f, "{elements} elements ({wire_bytes} wire bytes) to each peer")?;
        match self.protocol {
            Protocol::Simple => {
                write!(f, " over {channels} of staging in chunks of {} bytes", self.chunk)?;
                if self.groups > 1 {
                    write!(f, ", with {} blocks for the peers of each end", self.groups)?;
                }
            }
            Protocol::TwoShot => write!(
                f,
                " in two steps, each over {channels} of staging, in chunks of {} bytes at first",
                self.chunk
            )?,
            Protocol::Hierarchical => write!(
                f,
                " by domains, each step over {channels} of staging, in chunks of {} bytes at first",
                self.chunk
            )?,
            Protocol::Ll => write!(f, " over {channels} of LL")?,
            Protocol::Ll128 => {
                write!(f, " over {channels} of LL128")?;
                if self.tiles > 0 {
                    write!(f, ", {}", counted(self.tiles, "tile"))?;
                }
            }
            Protocol::Ll128TwoShot => write!(f, " in two steps, both over {channels} of LL128")?,
            Protocol::Local => write!(f, ", which is this rank alone")?,
            Protocol::Direct => write!(f, " straight into its output over {channels}")?,
            Protocol::Bulk => {
                write!(
                    f,
                    " straight into its output over {channels}, by bulk copies of {} bytes",
                    self.chunk
                )?;
                if self.first > 0 {
                    write!(f, " behind {} by LL128", 16 * self.first)?;
                }
            }
            Protocol::Copy => {
                return write!(f, " by the copy engine, between two kernels of one block; {}", self.decided);
            }
        }
        let (blocks, threads) = (counted(self.blocks, "block"), counted(self.threads, "thread"));
        write!(f, "; {blocks} of {threads} (the device holds {})", self.resident)?;
        write!(f, ", {} in flight; {}", counted(self.unroll, "pack"), self.decided)?;
        match self.parted {
            None => Ok(()),
            Some((a, b)) => write!(
                f,
                "; without LL128, since the path between the GPUs of ranks {a} and {b} has no native atomics"
            ),
        }
    }
}

/// "1 block", "2 blocks".
fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Plan {
    /// Bytes of shared memory that the launch gives to each block.
    pub(crate) fn shared(&self) -> u32 {
        if self.protocol == Protocol::Bulk { bulk::shared_bytes(self.chunk) } else { 0 }
    }

    /// Packs of a channel's share, and of a block's of the self copy. A share of whole tiles, where one fits: rows of a tile that belong to
    /// two shares are walked twice.
    pub(crate) fn shares(&self) -> (u64, u64) {
        let packs = (self.wire_bytes / 16) as u64;
        let each = share_packs(packs, self.channels);
        // A share of whole rows of lines, where there are more than a few.
        let (part, most) = match self.protocol {
            Protocol::Ll128 if each > 16 * u64::from(line::ROW_PACKS) => {
                (4 * u64::from(line::ROW_PACKS), line::PACKS)
            }
            Protocol::Ll => (self.rows.max(1), ll::PACKS),
            Protocol::Ll128 => (1, line::PACKS),
            Protocol::Ll128TwoShot => (1, MOST_PACKS),
            _ => (self.rows.max(1), MOST_PACKS),
        };
        let parts = each.next_multiple_of(part);
        let share = if self.by_rows || parts <= most && parts.is_multiple_of(8) { parts } else { each };
        let own = if self.protocol == Protocol::Bulk { self.first } else { packs };
        let own = share_packs(own, self.self_copy);
        match self.protocol {
            Protocol::Local if self.rows == 0 => {
                (share, whole_turns(own, u64::from(self.threads * self.unroll)))
            }
            _ => (share, own),
        }
    }
}

/// A share in whole turns of so many packs, where it has more than one and a block may have as many.
fn whole_turns(share: u64, turn: u64) -> u64 {
    let whole = share.next_multiple_of(turn);
    if share > turn && whole <= MOST_PACKS { whole } else { share }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_in_turns_is_more_than_a_block_takes() {
        assert_eq!([8, 1024, 1032, 2048].map(|share| whole_turns(share, 1024)), [8, 1024, 2048, 2048]);
        // 32 bits count a block's packs.
        assert_eq!(whole_turns(MOST_PACKS, 1024), MOST_PACKS);
    }
}
