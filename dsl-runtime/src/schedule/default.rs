//! The analytic default: protocol, multiprocessors, channels, and what travels together, where neither the caller nor a table says.

mod limits;
mod lines;
mod pattern;
mod steps;

pub(super) use limits::*;
use lines::line_blocks;
pub(crate) use pattern::Pattern;

use super::Protocol;
use super::facts::Facts;
use super::plan::TILE_THREADS;
use fusewire_device::protocol::ll128 as line;
use fusewire_device::protocol::simple::MOST_GROUPS;

/// Multiprocessors at most, by the bytes of a rank's whole input. From measurements on 2 and 4 H200s.
///
/// Copies are bound by links: few blocks fill them, and only staging, whose blocks also drain, gets more. Hooks with work of their own
/// are bound by instructions, and transposes by what a block's warps have in flight. Where a rank has `several` peers, blocks beyond those
/// that fill its links make a call slower, not faster: one peer's bytes are in the way of another's.
fn multiprocessors(protocol: Protocol, total: usize, hooks: Hooks, several: bool) -> u32 {
    if total < 256 << 10 {
        return 16;
    }
    // Below 2, 8 and 64 MiB, and above.
    let by_size = match (protocol, hooks) {
        (Protocol::Simple, Hooks::Copy) if several => [32, 32, 30, 32],
        (Protocol::Direct, Hooks::Transpose) if several => [32, 32, 64, 32],
        (Protocol::Simple, Hooks::Copy) => [32; 4],
        (_, Hooks::Copy) => [16; 4],
        (Protocol::Ll128, Hooks::Transpose) => [line_blocks(hooks, several); 4],
        (Protocol::Ll128, _) => {
            let most = line_blocks(hooks, several);
            [32, most, most, most]
        }
        (Protocol::Direct, Hooks::Work | Hooks::Slow) => [32, 32, 56, 56],
        (_, Hooks::Work | Hooks::Slow) => [64, 64, 64, 96],
        (Protocol::Direct, Hooks::Transpose) => [32, 32, 64, 96],
        (_, Hooks::Transpose) => [96; 4],
    };
    by_size[match total >> 20 {
        0..2 => 0,
        2..8 => 1,
        8..64 => 2,
        _ => 3,
    }]
}

/// Blocks of a rank alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Alone {
    pub blocks: u32,
    /// By the kernel at full occupancy.
    pub full: bool,
}

/// What hooks do, as far as it matters for the cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hooks {
    /// Neither is the user's.
    Copy,
    /// Work of their own, on packs.
    Work,
    /// The same, with much to do for each byte: by element, or on many elements of a byte.
    Slow,
    /// `layout(transposed)`.
    Transpose,
}

impl Hooks {
    /// Those of a kernel, of which a thread has so many packs in flight.
    pub(super) const fn of(facts: &Facts, in_flight: u32) -> Self {
        if facts.transposed {
            Hooks::Transpose
        } else if facts.copies {
            Hooks::Copy
        } else if facts.slow(in_flight) {
            Hooks::Slow
        } else {
            Hooks::Work
        }
    }
}

/// Channels to each peer, and blocks for the rank's own chunk.
#[derive(Clone, Copy)]
pub(in crate::schedule) struct Cut {
    pub(in crate::schedule) channels: u32,
    pub(in crate::schedule) self_copy: u32,
    /// Blocks at each end of a channel, which share its peers: see [`Work::groups`].
    pub(in crate::schedule) groups: u32,
}

impl Cut {
    fn of(channels: u32, self_copy: u32) -> Self {
        Cut { channels, self_copy, groups: 1 }
    }
}

/// The numbers that decide.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) pattern: Pattern,
    pub(super) world: u32,
    /// Payload bytes of one peer's chunk.
    pub(super) wire_bytes: usize,
    /// Whether those are the chunk's own, with none to fill the last 16.
    pub(super) whole: bool,
    /// Whether the output is symmetric memory of this transport.
    pub(super) symmetric: bool,
    pub(super) hooks: Hooks,
    /// Tiles of a chunk, if LL128 carries it tile by tile; else 0.
    pub(super) tiles: u32,
    /// Packs that a block takes at least where a rank is alone.
    pub(super) alone_packs: u32,
    /// Packs that a block takes where there are blocks for it, by LL.
    pub(super) ll_packs: u32,
    /// Whether hooks work by rows.
    pub(super) rows: bool,
    /// Whether there are LL128 channels: there are none between GPUs without NVLink.
    pub(super) lines: bool,
    /// Whether what arrives is stored where others still read what they send: not through staging in one step.
    pub(super) in_place: bool,
    /// Whether what crosses the wire are 8-bit floats: what hooks load and store is wider, as a rule.
    pub(super) narrow: bool,
    /// Whether the output gets what arrives as it is: such hooks do not load from it.
    pub(super) keeps: bool,
    /// Packs of what is folded for one of the wire, where it can be passed on; else 0.
    pub(super) relays: u32,
    /// Packs of accumulators for one of the wire, where domains can be folded by themselves; else 0.
    pub(super) partials: u32,
    /// Ranks of each domain, if those are aligned; else 0.
    pub(super) domain: u32,
    /// Most blocks: the caller's, or half of a part of a GPU.
    pub(super) limit: u32,
    pub(super) on_host: bool,
}

impl Work {
    /// Whether blocks of their own bring the self copy.
    fn own_blocks(&self, protocol: Protocol) -> bool {
        self.pattern.own && (!self.pattern.keeps_within() || protocol == Protocol::Bulk)
    }

    /// Bytes that a rank sends, and its own.
    fn total(&self) -> usize {
        self.wire_bytes * (self.pattern.peers + u32::from(self.pattern.own)) as usize
    }

    /// Whether a rank sends to several others.
    fn several(&self) -> bool {
        self.pattern.peers > 1
    }

    /// Whether a rank sends the same to so many others that more blocks than fill the links to a few are faster: measured on 8 GPUs.
    fn many(&self) -> bool {
        self.pattern.once && self.pattern.peers > 4
    }

    /// Those of a launch at most.
    fn multiprocessors(&self, protocol: Protocol) -> u32 {
        // A rank alone has links to nobody, and memory is faster than they are.
        if self.pattern.peers == 0 {
            return self.limit.clamp(1, ALONE_BLOCKS);
        }
        let most = match protocol {
            Protocol::Ll128 if self.pattern.folds => self.folding_blocks(),
            Protocol::Ll128 if self.copies_with_one() => self.copying_blocks(),
            Protocol::TwoShot | Protocol::Hierarchical => 96,
            Protocol::Ll128TwoShot => FOLDING_BLOCKS,
            Protocol::Ll => LL_BLOCKS,
            // Few rows are in flight in a block. (Two ranks were measured, over NVLink.)
            Protocol::Simple if self.many_rows() => 128,
            Protocol::Simple
                if (self.pattern.folds || self.pattern.rooted || self.many()) && !self.short() =>
            {
                96
            }
            _ => multiprocessors(protocol, self.total(), self.hooks, self.several()),
        };
        most.min(self.limit)
    }

    /// As many as have [`NEAR_PACKS`] each. In turn they keep to memory that is near, which is a twentieth faster than shares of a large chunk that
    /// are far from each other.
    pub(super) fn more_alone(&self) -> u32 {
        u32::try_from(self.wire_bytes / 16 / NEAR_PACKS).unwrap_or(u32::MAX).min(self.limit)
    }

    /// Threads of a block and packs of each, of a rank alone whose hooks work by rows or that has much to do: each part of it has a block of its own. Blocks
    /// that begin keep memory busy while others compute, so what computes has few packs a thread.
    pub(super) fn long_alone(&self) -> Option<(u32, usize)> {
        match (self.wire_bytes, self.hooks) {
            (_, Hooks::Transpose) => None,
            // A row, or some short ones.
            _ if self.rows => Some((LOCAL_THREADS, 2)),
            // A pack of these is two in memory, or four.
            (LOCAL_LONG_NARROW.., Hooks::Slow) if self.narrow => Some((LOCAL_SHORT_THREADS, 1)),
            (LOCAL_NARROW.., Hooks::Slow) if self.narrow => Some((LOCAL_THREADS, 8)),
            (LOCAL_LONG_PACKS.., Hooks::Work) => Some((LOCAL_SHORT_THREADS, 2)),
            (LOCAL_LONG_PACKS.., Hooks::Copy) | (LOCAL_LONG.., _) => Some((LOCAL_THREADS, 8)),
            (LOCAL_LONG_WORK.., Hooks::Work) if self.keeps => Some((LOCAL_THREADS, 4)),
            _ => None,
        }
    }

    /// Blocks of a rank alone, of which the device holds `resident`, or `at_full` at full occupancy, if each takes whole turns of so many packs: a thread whose
    /// last packs are not all there asks for them one by one.
    ///
    /// Copies, and hooks that compute in two turns at most, have a quarter of what the device holds: so the next launch's blocks are there, on all
    /// multiprocessors alike, before these end. At full occupancy they compute what else takes more than two turns.
    pub(super) fn in_turns(&self, blocks: u32, resident: u32, at_full: Option<u32>, turn: u32) -> Alone {
        let turns = u32::try_from(self.wire_bytes / 16).unwrap_or(u32::MAX).div_ceil(turn);
        let quarter = |resident: u32| blocks.min(resident.div_ceil(4));
        let few = quarter(resident);
        let at_full = at_full.map(quarter).filter(|most| turns > few && turns <= 2 * most);
        let (most, full) = match (self.hooks, at_full) {
            (Hooks::Copy, _) => (few, false),
            (Hooks::Work, Some(most)) => (most, true),
            (Hooks::Work, None) if turns <= 2 * few && !self.pattern.folds => (few, false),
            _ => (blocks, false),
        };
        let blocks = match turns > most && self.local_by_packs() {
            true => turns.div_ceil(turns.div_ceil(most)),
            false => blocks,
        };
        Alone { blocks, full }
    }

    /// Whether blocks of a rank alone take packs, not rows or tiles.
    fn local_by_packs(&self) -> bool {
        !self.rows && self.hooks != Hooks::Transpose
    }

    /// Packs of a block of a rank alone: one for each thread while there are multiprocessors without a block.
    fn local_packs(&self, packs: u32) -> u32 {
        match self.local_by_packs() {
            true => packs
                .div_ceil(LOCAL_BLOCKS)
                .max(1)
                .next_multiple_of(LOCAL_SHORT_THREADS)
                .min(self.alone_packs),
            false => self.alone_packs,
        }
    }

    /// Whether hooks work by rows, of which there are enough for more blocks: over NVLink, or of long folds.
    fn many_rows(&self) -> bool {
        let long_folds = self.pattern.folds && !self.short();
        self.rows && (self.lines && self.total() >= MANY_ROWS || long_folds)
    }

    /// Whether waits at both ends take about as long as the bytes between.
    fn short(&self) -> bool {
        self.total() < 8 << 20
    }

    /// How bytes travel where the caller does not say. From measurements on 2 and 4 H200s (docs/performance.md).
    ///
    /// `fits`: whether few blocks' line buffers hold the call.
    pub(super) fn protocol(
        &self,
        has: impl Fn(Protocol) -> bool,
        fits: impl Fn(Protocol) -> bool,
    ) -> Protocol {
        let peers = self.pattern.peers;
        if peers == 0 {
            return if has(Protocol::Local) { Protocol::Local } else { Protocol::Simple };
        }
        if has(Protocol::Hierarchical) && self.by_domains() {
            return Protocol::Hierarchical;
        }
        let twice = Protocol::Ll128TwoShot;
        if has(twice) && fits(twice) && self.in_two_steps_by_ll128() {
            return twice;
        }
        let sent = self.wire_bytes * peers as usize;
        let has_lines = has(Protocol::Ll128) && fits(Protocol::Ll128);
        let in_turn = has_lines && self.folds_in_turn() && sent <= LL128_MOST_FOLDED_OF_TWO;
        if has(Protocol::TwoShot) && self.in_two_steps() && !in_turn {
            return Protocol::TwoShot;
        }
        // CPU threads stage in caches: stores into another rank's memory are slower there. A block has a lane for each peer.
        let lanes = peers <= TILE_THREADS;
        let direct = self.symmetric && has(Protocol::Direct) && !self.on_host && lanes;
        let bulk = direct && self.whole && has(Protocol::Bulk);
        let most = match (self.hooks, direct) {
            (Hooks::Transpose, _) if self.tiles == 0 => LL128_MOST_GATHERED,
            (Hooks::Transpose, true) | (Hooks::Copy, true) => LL128_MOST,
            (Hooks::Transpose, false) => LL128_MOST_TILED,
            (_, true) => LL128_MOST_WORK,
            (_, false) if self.folds_in_turn() => LL128_MOST_FOLDED_OF_TWO,
            (_, false) if self.pattern.folds => LL128_MOST_FOLDED,
            (_, false) => LL128_MOST_STAGED,
        };
        if !self.on_host && has_lines && sent <= most {
            Protocol::Ll128
        } else if !self.on_host
            && !has_lines
            && (self.rows || !self.lines || has(Protocol::Ll128))
            && has(Protocol::Ll)
            && fits(Protocol::Ll)
            && sent <= self.most_by_ll().min(most)
        {
            Protocol::Ll
        } else if self.symmetric && has(Protocol::Copy) && sent >= COPY_LEAST && lanes {
            Protocol::Copy
        } else if bulk {
            Protocol::Bulk
        } else if direct {
            Protocol::Direct
        } else {
            Protocol::Simple
        }
    }

    /// Bytes that a rank sends in all up to which LL is faster than staging.
    const fn most_by_ll(&self) -> usize {
        if self.rows && self.lines && !self.in_place { LL_MOST_ROWS } else { LL_MOST }
    }

    /// Threads of a block that may have `all` where the caller does not say.
    pub(super) fn threads(&self, protocol: Protocol, all: u32) -> u32 {
        // Fewer wait for each other at the ends.
        match protocol {
            Protocol::Direct if self.short() => all.min(256),
            Protocol::Local if self.local_by_packs() && self.hooks == Hooks::Copy => all.min(LOCAL_THREADS),
            Protocol::Local if self.local_by_packs() => all.min(LOCAL_SHORT_THREADS),
            _ => all,
        }
    }

    /// Packs of each chunk that go by LL128 while *go* is awaited, where bulk copies carry the rest: as many as keep links busy meanwhile, of
    /// longer chunks than four times that, and no more than so many LL128 channels hold.
    pub(super) fn first(&self, ll128_channels: u32) -> u64 {
        let Pattern { peers, own, mutual, .. } = self.pattern;
        let most = if own && mutual && peers > 0 { FIRST / u64::from(peers) } else { 0 };
        let room = u64::from(ll128_channels) * line::PACKS;
        // Whole 128-byte lines.
        (self.wire_bytes as u64 / 16 / 4).min(most).min(room) / 8 * 8
    }

    /// Threads of a block of bulk copies where the caller does not say, if `first` packs could go by LL128: one warp has none to send them.
    pub(super) fn bulk_threads(&self, first: u64) -> u32 {
        // A thread for each peer; one of them copies.
        let lanes = self.world.next_multiple_of(32);
        if first > 0 && !self.several() { lanes.max(FIRST_THREADS) } else { lanes }
    }

    /// Channels, and blocks of the self copy, where the caller does not say.
    pub(super) fn cut(&self, protocol: Protocol) -> Cut {
        let multiprocessors = self.multiprocessors(protocol);
        let packs = u32::try_from(self.wire_bytes / 16).unwrap_or(u32::MAX);
        let own_chunk = self.own_blocks(protocol);
        let peers = self.pattern.peers.max(1);
        match protocol {
            _ if self.on_host => Cut::of(1, u32::from(own_chunk)),
            Protocol::Copy => Cut::of(1, 0),
            Protocol::Local => Cut::of(1, packs.div_ceil(self.local_packs(packs)).clamp(1, multiprocessors)),
            // For each rank's part as many packs as fill the channel of a copy.
            Protocol::TwoShot | Protocol::Hierarchical => {
                let blocks = packs.div_ceil(128 * self.parts(protocol));
                let kinds = self.pattern.widest().kinds(protocol);
                Cut::of(blocks.clamp(1, (multiprocessors / kinds).max(1)), 0)
            }
            Protocol::Ll => self.ll_cut(),
            Protocol::Ll128TwoShot => Cut::of(packs.div_ceil(LINES_TWICE_PACKS).clamp(1, multiprocessors), 0),
            Protocol::Ll128 => {
                let self_copy = self.ll128_self_copy(multiprocessors);
                let most = self.ll128_channels(multiprocessors).max(1);
                let channels = match self.tiles {
                    0 => packs.saturating_mul(peers).div_ceil(64),
                    tiles => tiles,
                };
                Cut::of(channels.clamp(1, most), self_copy)
            }
            Protocol::Direct | Protocol::Bulk => {
                let bulk = protocol == Protocol::Bulk || (peers > 1 && self.hooks == Hooks::Copy);
                // Every block copies as many bytes; a rank's own chunk waits for nobody, which counts where the others' are short.
                let own = match multiprocessors / self.world {
                    _ if bulk => BULK_BLOCKS.div_ceil(peers).max(4).min(multiprocessors / 2),
                    own if self.short() && self.hooks != Hooks::Transpose => own * 3 / 4,
                    own => own,
                };
                let self_copy = if own_chunk { own.max(1) } else { 0 };
                // A world of one rank has its own chunk alone.
                let left = multiprocessors.saturating_sub(self_copy).max(1);
                let most = match (bulk, own_chunk || !self.short()) {
                    (false, _) => left,
                    // More than fill the links are no faster.
                    (true, true) => left.min(BULK_BLOCKS),
                    (true, false) => left.min(BULK_BLOCKS + 4),
                };
                Cut::of(packs.div_ceil(128).clamp(1, most), self_copy)
            }
            // With nobody to send to, staging is not used: each block takes its share of the chunk.
            Protocol::Simple if self.pattern.peers == 0 => {
                let blocks = packs.div_ceil(self.alone_packs).clamp(1, multiprocessors);
                if own_chunk { Cut::of(1, blocks) } else { Cut::of(blocks, 0) }
            }
            Protocol::Simple => {
                // As for `Direct`; what is sent is received as well.
                let self_copy = match self.pattern.peers {
                    _ if !own_chunk => 0,
                    _ => (multiprocessors / (2 * self.world - 1)).max(1),
                };
                let each = if self.short() { 2 } else { self.pattern.widest().ends };
                let ends = (multiprocessors.saturating_sub(self_copy) / each).clamp(1, self.most_channels());
                let groups = self.most_groups().min(ends);
                Cut::of(packs.div_ceil(128).clamp(1, ends / groups), self_copy)
            }
        }
    }

    /// Channels of the simple protocol at most. Of a rooted schedule's two ends only one is on each GPU; what folds does more for each byte than copies do, but
    /// blocks at both ends are in each other's way.
    fn most_channels(&self) -> u32 {
        match self.pattern {
            Pattern { rooted: true, .. } => 64,
            _ if self.many_rows() => 64,
            Pattern { folds: true, .. } => 48,
            _ if self.many() => 48,
            _ => 32,
        }
    }

    /// Blocks that share the peers of a channel of the simple protocol at most: where calls are short, what a block does for one peer after another (a wait,
    /// a fence) takes longer than the bytes do.
    fn most_groups(&self) -> u32 {
        // One block then sends to all, or takes from all.
        let groups = self.short() && !self.on_host && !self.pattern.keeps_within();
        if groups { self.pattern.peers.clamp(1, MOST_GROUPS) } else { 1 }
    }

    /// The same of a launch of so many channels: as many as there are multiprocessors for.
    pub(super) fn groups(&self, protocol: Protocol, channels: u32, self_copy: u32) -> u32 {
        let multiprocessors = self.multiprocessors(protocol);
        match protocol {
            Protocol::Simple => {
                let most = multiprocessors.saturating_sub(self_copy) / channels.saturating_mul(2).max(1);
                self.most_groups().min(most).max(1)
            }
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests;
