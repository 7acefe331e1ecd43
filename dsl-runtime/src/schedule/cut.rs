//! How a launch is cut: what the caller says, then the table, then [`default`](super::default); and what cannot be is refused.

use super::default::{ALONE_PACKS, Cut, Hooks, LL_PACKS, Pattern, TILES_LEAST, Work};
use super::parts::{line_tiles, pieces, tile_rows, together};
use super::plan::{Decided, MOST_PACKS, Plan};
use super::prepared::Agreed;
use super::{LaunchOptions, Protocol};
use crate::tune::Layout;
use crate::{Error, Result};
use fusewire_device::launch::share_packs;
use fusewire_device::protocol::direct::bulk;
use fusewire_device::protocol::simple::channel::CUT;
use fusewire_device::protocol::{ll, ll128 as line};
use fusewire_device::row;

impl Agreed {
    /// Cuts a chunk. `symmetric`: whether the output is symmetric memory of this transport that holds every chunk.
    ///
    /// What the caller's options say stands; what they leave open comes from the tuning table, if it has a row that fits, else from
    /// [`Agreed::cut`].
    pub(crate) fn plan(
        &self,
        elements: usize,
        options: &LaunchOptions,
        pattern: Pattern,
        symmetric: bool,
    ) -> Result<Plan> {
        let wire_bytes = self.facts.wire_bytes_of(elements);
        if let Some(filled) = self.tuned.fill(wire_bytes, Layout::of(options, symmetric), options)
            && let Ok(plan) = self.cut(elements, &filled, pattern, symmetric)
        {
            return Ok(Plan { decided: Decided::Table, ..plan });
        }
        self.cut(elements, options, pattern, symmetric)
    }

    /// Cuts a chunk without a table.
    pub(crate) fn cut(
        &self,
        elements: usize,
        options: &LaunchOptions,
        pattern: Pattern,
        symmetric: bool,
    ) -> Result<Plan> {
        let (facts, layout) = (self.facts, self.link.layout());
        if options.deadline.is_some_and(|d| d.is_zero()) {
            return Err(Error::misuse("a deadline of 0 s; a wait needs some time"));
        }
        // All ranks' chunks, in elements and in wire bytes, are numbers that fit.
        if facts.cols > 0 && !elements.is_multiple_of(facts.cols) {
            return Err(Error::misuse(format!(
                "`{}`: a chunk of {elements} elements is no whole number of rows of {}, which `grain = row({1})` says",
                facts.name, facts.cols
            )));
        }
        let packs = facts.packs_of(elements);
        let fits = |n: usize| n.checked_mul(16 * self.world()).is_some_and(|n| n < 1 << 62);
        if !fits(elements) || !fits(packs) || 16 * packs as u64 >= CUT {
            return Err(Error::misuse(format!(
                "{elements} elements to each of {} ranks are too many: a chunk has fewer than {CUT} bytes",
                self.world()
            )));
        }
        let (wire_bytes, world, on_host) = (packs * 16, layout.world, self.on_host());
        let limit = options.blocks.unwrap_or(u32::MAX);
        // Half of a part (see below), unless the caller says how bytes travel.
        let half =
            self.part.filter(|_| options.protocol.is_none()).map(|multiprocessors| multiprocessors / 2);
        let default_limit = half.map_or(limit, |half| limit.min(half.max(1)));
        let hooks = Hooks::of(facts, self.unroll(Protocol::Simple, None).unwrap_or(4));
        // Rows are whole packs, whatever their elements.
        let rest = if facts.cols > 0 { 0 } else { elements % facts.lanes };
        let whole = rest == 0;
        let tiles = match wire_bytes.saturating_mul(pattern.peers as usize) {
            ..TILES_LEAST => 0,
            _ => line_tiles(facts, options.shape, layout.ll128_channels),
        };
        // What LL128 carries for it.
        let line_packs = if tiles > 0 { (tiles * line::TILE_ROWS * line::ROW_PACKS) as usize } else { packs };
        // Of rows one for each team of a block.
        let alone_packs = match facts.cols {
            0 => ALONE_PACKS,
            _ => facts.alone_rows(facts.most_threads()) as u32,
        };
        let rows = if facts.cols > 0 { row::whole(facts.row_packs) } else { tile_rows(facts, options.shape) };
        // In one step, one block may store what has arrived where another has not yet read what is to be sent.
        let in_place = facts.in_place && !pattern.apart && pattern.peers > 0;
        let work = Work {
            pattern,
            world,
            wire_bytes,
            whole,
            symmetric,
            hooks,
            tiles,
            alone_packs,
            ll_packs: if facts.cols > 0 { rows as u32 } else { LL_PACKS },
            rows: facts.cols > 0,
            lines: layout.ll128_channels > 0,
            in_place,
            narrow: facts.narrow(),
            keeps: facts.keeps_as_is,
            relays: facts.relays as u32,
            partials: facts.partials as u32,
            domain: self.link.domains().aligned().unwrap_or(0),
            limit: default_limit,
            on_host,
        };
        // Packs of a channel whose bytes travel beside flags: of rows as many as are whole.
        let line_most = |protocol| match protocol {
            Protocol::Ll if facts.cols > 0 => ll::PACKS / rows * rows,
            Protocol::Ll => ll::PACKS,
            Protocol::Ll128TwoShot if facts.relays > 0 => line::most_packs(world, facts.relays as u64),
            _ => line::PACKS,
        };
        let line_room = |protocol, channels: u32| channels as usize * line_most(protocol) as usize * 16;
        let flagged_channels = |protocol| match protocol {
            Protocol::Ll => layout.ll_channels,
            _ => layout.ll128_channels,
        };
        // With as many channels as the caller wants, or the devices have blocks for beside one of the self copy.
        let default_room = |protocol| match (options.channels, flagged_channels(protocol)) {
            (Some(channels), most) if channels > most => 0,
            (Some(channels), _) => line_room(protocol, channels),
            (None, most) => {
                let held = self.resident(protocol, None, facts.most_threads()).unwrap_or(0);
                let most = most.min(work.most_flagged_channels(protocol));
                line_room(protocol, most.min(held.saturating_sub(1)))
            }
        };
        // What the caller says of channels and blocks may be too much, or too little, for several steps.
        let has = |protocol: Protocol| {
            let cut = Cut { channels: options.channels.unwrap_or(1), self_copy: 0, groups: 1 };
            let fits = !protocol.restages()
                || cut.channels <= pattern.channels_of_a_step(protocol, layout.channels)
                    && pattern.widest().blocks(protocol, cut, on_host) <= limit;
            self.has(protocol) && fits
        };
        let protocol = match options.protocol {
            // To nobody in one step or two.
            Some(twice) if twice.passes_on() && pattern.passes_nothing_on() && self.has(twice) => {
                Protocol::Simple
            }
            Some(Protocol::Simple) if in_place => {
                return Err(Error::misuse(format!(
                    "`{}` is in place (`InOut`), which `Protocol::Simple` cannot be: leave the choice open, or name one of {}",
                    facts.name,
                    self.protocols()
                        .into_iter()
                        .filter(|p| *p != Protocol::Simple)
                        .map(|p| format!("`{p:?}`"))
                        .collect::<Vec<_>>()
                        .join(", ")
                )));
            }
            Some(Protocol::Hierarchical) if !self.has(Protocol::Hierarchical) => {
                return Err(self.no_domains());
            }
            Some(protocol) => protocol,
            // Chunks and variants are of staging unless something else is asked for.
            None if options.chunk.is_some() || options.unroll.is_some() => Protocol::Simple,
            None => work.protocol(has, |p| {
                let (most, packs) = (flagged_channels(p), if p == Protocol::Ll { packs } else { line_packs });
                most > 0 && options.channels.is_none_or(|n| n <= most) && 16 * packs <= default_room(p)
            }),
        };
        // What any chunk goes by.
        let staged = if in_place { Protocol::TwoShot } else { Protocol::Simple };
        let protocol = if protocol == Protocol::Simple { staged } else { protocol };
        let (flagged, twice) = (protocol.flagged(), protocol.restages());
        let (tiles, line_packs) = match protocol {
            Protocol::Ll => (0, packs),
            _ => (tiles, line_packs),
        };
        let channels = flagged_channels(protocol);
        let (line_most, room) = (line_most(protocol), line_room(protocol, channels));
        let unroll = self.unroll(protocol, options.unroll)?;
        if protocol.stores() && !symmetric {
            return Err(Error::misuse(format!(
                "`Protocol::{protocol:?}` stores into the peers' outputs: give it an output from `Buffer::symmetric` of this transport that holds every rank's chunk"
            )));
        }
        if protocol == Protocol::Bulk && !whole {
            return Err(Error::misuse(format!(
                "{elements} elements to each peer are no whole multiple of 16 bytes, which bulk copies need: use `Protocol::Direct`"
            )));
        }
        let (carrier, option) = match protocol {
            Protocol::Ll => ("LL", "ll_channels"),
            _ => ("LL128", "ll128_channels"),
        };
        if flagged && facts.cols > 0 && line_most == 0 {
            return Err(Error::misuse(format!(
                "rows of {} elements travel {} bytes at a time, but an LL channel takes {}: use `Protocol::{staged:?}`",
                facts.cols,
                16 * rows,
                16 * ll::PACKS
            )));
        }
        if flagged && (16 * line_packs > room || channels == 0) {
            return Err(Error::misuse(format!(
                "{wire_bytes} wire bytes to each peer, but {carrier} carries at most {room} here: use `Protocol::{staged:?}`, or more `Options::{option}`"
            )));
        }
        // The fewest channels that hold the chunk.
        let least = match tiles {
            _ if !flagged => 1,
            0 => packs.div_ceil(line_most.max(1) as usize).max(1) as u32,
            tiles => tiles.div_ceil(line::TILES),
        };
        let alone = pattern.peers == 0 && !on_host;
        let most = match flagged {
            true => channels,
            // Their shares are those of blocks alone.
            false if alone && matches!(protocol, Protocol::Simple | Protocol::Local) => u32::MAX,
            false if twice => pattern.channels_of_a_step(protocol, layout.channels),
            false => layout.channels,
        };
        let mut cut = work.cut(protocol);
        if facts.cols > 0 {
            // Shares are of whole rows, of which each has one at least, and so has each part of one.
            let parts = if twice { u64::from(work.parts(protocol)) } else { 1 };
            let rows = packs as u64 / row::whole(facts.row_packs) / parts;
            cut.channels = cut.channels.min(rows.clamp(1, u32::MAX.into()) as u32);
        }
        cut.channels = cut.channels.min(most).max(least);
        if let Some(channels) = options.channels {
            cut.channels = channels;
            if !on_host && cut.self_copy > 0 {
                cut.self_copy = (2 * channels / world).max(1);
            }
        }
        if let (Some(self_copy), true) = (options.self_copy, cut.self_copy > 0) {
            cut.self_copy = self_copy.max(1);
        }
        if cut.channels == 0 {
            return Err(Error::misuse("0 channels to each peer; a launch uses at least one"));
        }
        if flagged && (cut.channels < least || cut.channels > most) {
            return Err(Error::misuse(format!(
                "{} {carrier} channels for {wire_bytes} wire bytes; a launch uses {least} to {most}",
                cut.channels
            )));
        }
        // On LL128 channels with the numbers of the self copy's blocks.
        let first = match protocol {
            Protocol::Bulk if cut.self_copy <= layout.ll128_channels => work.first(cut.self_copy),
            _ => 0,
        };
        let all = facts.most_threads();
        let long = work.long_alone().filter(|_| protocol == Protocol::Local);
        let threads = match options.threads {
            // What a plan for CPU threads says.
            Some(1) if on_host => 1,
            Some(threads) if threads == 0 || threads > all || !threads.is_multiple_of(32) => {
                return Err(Error::misuse(format!(
                    "{threads} threads in a block; a block has a multiple of 32 up to {all}"
                )));
            }
            Some(threads)
                if facts.cols > 0 && !threads.is_multiple_of(row::lanes(facts.cols)) && !on_host =>
            {
                return Err(Error::misuse(format!(
                    "{threads} threads in a block; {} share a row of {}, and a block has a multiple of that up to {all}",
                    row::lanes(facts.cols),
                    facts.cols
                )));
            }
            _ if on_host => 1,
            Some(threads) => threads,
            None if matches!(protocol, Protocol::Bulk | Protocol::Copy) => work.bulk_threads(first).min(all),
            // A team for each row, as far as there are threads.
            None if facts.cols > 0 && protocol == Protocol::Ll => {
                let rows = share_packs(packs as u64, cut.channels).div_ceil(facts.row_packs as u64);
                let lanes = row::lanes(facts.cols);
                (rows.min(8) as u32 * lanes).clamp(lanes, all)
            }
            None if protocol == Protocol::Ll => {
                let packs = share_packs(packs as u64, cut.channels) as u32;
                packs.next_multiple_of(32).clamp(64, all)
            }
            None if flagged => {
                // A warp for every row of every peer, or for every four. Tiles want all there are, the own chunk's as well.
                let share = share_packs(packs as u64, cut.channels) as u32;
                let share = if protocol.passes_on() { share.div_ceil(world) } else { share };
                let peers = pattern.peers.max(1);
                let (few, all) = if work.leaves_room(protocol) { (192, all.min(256)) } else { (64, all) };
                let warps =
                    |rows| share.div_ceil(rows * line::ROW_PACKS).saturating_mul(peers).saturating_mul(32);
                match warps(1) {
                    _ if tiles > 0 => all,
                    each if each <= all => each.max(64),
                    _ if facts.folds() => all,
                    _ => warps(4).clamp(few, all),
                }
            }
            None => match long {
                Some((threads, _)) => row::lanes(facts.cols).max(threads),
                None => work.threads(protocol, all),
            },
        };
        // By other warps than those of the bulk copies.
        let first = if on_host || threads > world.next_multiple_of(32) { first } else { 0 };
        // A lane of each block for each peer.
        if protocol.stores() && !on_host && pattern.peers > threads {
            return Err(Error::misuse(format!(
                "{threads} threads in a block for {} peers; `Protocol::{protocol:?}` takes one for each",
                pattern.peers
            )));
        }
        cut.groups = work.groups(protocol, cut.channels, cut.self_copy);
        let mut resident = self.resident(protocol, options.unroll, threads)?;
        let mut full = false;
        // A part of a GPU is small: another transport's kernel is to find a place beside this one, of whatever size the blocks of either are.
        // A multiprocessor holds at least one.
        let room = match self.part {
            Some(multiprocessors) => resident.min(multiprocessors) / 2,
            // As many of another stream's are to find places beside them.
            None if facts.cols > 0 && protocol == Protocol::Simple => resident / 2,
            None => resident,
        };
        while options.channels.is_none()
            && cut.channels > least
            && pattern.widest().blocks(protocol, cut, on_host) > room
        {
            cut.channels -= 1;
        }
        while cut.groups > 1 && pattern.widest().blocks(protocol, cut, on_host) > room {
            cut.groups -= 1;
        }
        // The chunk may need as many channels as fill a part. (What goes before bulk copies is cut by these blocks already.)
        while options.self_copy.is_none()
            && protocol != Protocol::Bulk
            && cut.self_copy > 1
            && pattern.widest().blocks(protocol, cut, on_host) > resident
        {
            cut.self_copy -= 1;
        }
        // Blocks of a rank alone wait for nobody: there may be more than the device holds.
        if alone && cut.self_copy > 0 && options.self_copy.is_none() && !facts.transposed {
            cut.self_copy = match (protocol, long) {
                (_, Some((_, each))) => {
                    let each = (each * threads as usize).next_multiple_of(facts.alone_rows(threads));
                    packs.div_ceil(each).min(limit as usize) as u32
                }
                (Protocol::Local, _) => {
                    let at_full = self.resident_at_full(options.unroll, threads)?;
                    let cut = work.in_turns(cut.self_copy, resident, at_full, threads * unroll);
                    if let Some(at_full) = at_full.filter(|_| cut.full) {
                        (resident, full) = (at_full, true);
                    }
                    cut.blocks
                }
                _ if facts.cols == 0 => cut.self_copy.max(work.more_alone()),
                _ => cut.self_copy,
            };
        }
        let times = facts.times(protocol);
        let most = layout.window / 4 / times;
        if facts.cols > 0 && 16 * rows > most {
            return Err(Error::misuse(format!(
                "rows of {} elements travel {} bytes at a time, but a channel's staging takes {most} in one piece: make `Options::per_peer_bytes` {} or more",
                facts.cols,
                16 * rows,
                (4 * 16 * rows).next_power_of_two() * u64::from(layout.channels)
            )));
        }
        let chunk = match options.chunk {
            Some(chunk) if facts.cols > 0 && !(chunk as u64).is_multiple_of(16 * rows) => {
                return Err(Error::misuse(format!(
                    "chunks of {chunk} bytes; rows of {} elements travel in multiples of {} bytes",
                    facts.cols,
                    16 * rows
                )));
            }
            Some(chunk) => chunk as u64,
            None if facts.cols > 0 && on_host => most / (16 * rows) * 16 * rows,
            None if protocol == Protocol::Bulk => pieces(wire_bytes as u64 - 16 * first, cut.channels),
            None if on_host => most,
            None => {
                let share = 16 * share_packs(packs as u64, cut.channels);
                let share = if twice { share.div_ceil(work.parts(protocol).into()) } else { share };
                // Folds of two ranks have as many packs in flight; of more, half.
                let in_flight = if facts.folds() { 8 } else { unroll };
                // Alone a block hands nothing over.
                let (most, enough) = if alone {
                    (u64::MAX, 2 * share)
                } else {
                    (most, pattern.enough(share, work.rows && work.lines))
                };
                together(most, enough, threads, in_flight, 16 * rows)
            }
        };
        if protocol == Protocol::Bulk {
            if chunk == 0 || !chunk.is_multiple_of(128) || chunk > bulk::MOST {
                return Err(Error::misuse(format!(
                    "bulk copies of {chunk} bytes; a copy is a multiple of 128 up to {}",
                    bulk::MOST
                )));
            }
            // Not a part of staging.
            self.link.check_transfer(cut.channels, 128)?;
        } else if !flagged {
            // Alone a rank uses no staging; what the caller says has to fit all the same.
            let (channels, bytes) = match alone {
                true => (options.channels.unwrap_or(1), options.chunk.map_or(128, |chunk| chunk as u64)),
                false => (cut.channels, chunk),
            };
            self.link.check_transfer(channels, bytes)?;
            let each = pattern.channels_of_a_step(protocol, layout.channels);
            if twice && (channels > each || bytes > most) {
                return Err(Error::misuse(format!(
                    "{} over {channels} channels, in chunks of {bytes} bytes; this transport has {each} for each step, and the folded ones of {most} bytes fit: use fewer, or give the rendezvous more `Options::channels` or `Options::per_peer_bytes`",
                    if protocol == Protocol::TwoShot { "two steps" } else { "steps by domains" }
                )));
            }
        }
        let blocks = pattern.blocks(protocol, cut, on_host);
        if blocks > resident && on_host {
            return Err(Error::misuse(format!(
                "{blocks} blocks wait for each other, each on a CPU thread of its own, of which a launch takes at most {resident}: use fewer channels or blocks"
            )));
        }
        if blocks > resident && !alone {
            return Err(Error::misuse(format!(
                "{blocks} blocks of {threads} threads wait for each other, but the device holds only {resident} at once: use fewer channels or threads"
            )));
        }
        // The same on ranks that only send or only receive.
        let widest = pattern.widest().blocks(protocol, cut, on_host);
        if widest > limit {
            return Err(Error::misuse(format!(
                "{widest} blocks, but the launch's options allow {limit}: allow more, use fewer channels, or leave the channels and the protocol open"
            )));
        }
        let Cut { channels, self_copy, groups } = cut;
        let fewest = if facts.transposed || facts.cols > 0 || protocol == Protocol::Bulk {
            1
        } else if self_copy > 0 {
            channels.min(self_copy)
        } else {
            channels
        };
        // As they are when they are folded, and of as many chunks as a stream has.
        let share = share_packs(packs as u64, fewest);
        let each = match u64::from(work.streamed(protocol)) {
            0 | 1 => share.saturating_mul(times),
            // Each ends in a whole piece.
            chunks => share.next_multiple_of((chunk / 16).max(1)).saturating_mul(times.max(chunks)),
        };
        if each > MOST_PACKS {
            return Err(Error::misuse(format!(
                "{wire_bytes} wire bytes to each peer over {fewest} blocks; a block takes at most {} of them: use more channels",
                16 * MOST_PACKS
            )));
        }
        Ok(Plan {
            protocol,
            elements,
            wire_bytes,
            channels,
            groups,
            self_copy,
            blocks,
            threads,
            chunk,
            unroll,
            resident,
            full,
            first,
            rows,
            tiles: if flagged { tiles } else { 0 },
            by_rows: facts.cols > 0,
            rest: rest as u32,
            parted: self.link.parted(),
            decided: if options.open() == *options { Decided::Default } else { Decided::Caller },
        })
    }
}
