//! What plans and checks know of a kernel.

use super::Protocol;
use super::plan::{THREADS, TILE_THREADS};
use crate::kernel::HookSet;
use fusewire_device::element::Element;
use fusewire_device::pack::Pack;
use fusewire_device::row;
use fusewire_device::tile::transpose;

/// What [`HookSet`] says of hooks, as values: code that takes these is compiled once, and not again for each kernel of a program.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    /// Where the hooks are written.
    pub(crate) file: &'static str,
    pub(super) element: &'static str,
    pub(super) fingerprint: u64,
    /// What crosses the wire, and its bytes.
    pub(super) wire: &'static str,
    pub(super) wire_bytes: usize,
    /// Elements of a pack.
    pub(super) lanes: usize,
    pub(super) transposed: bool,
    pub(super) asks_shape: bool,
    /// The schedules whose blocks have the channels of their indices.
    pub(super) by_index: &'static [&'static str],
    /// As the attribute has it, or empty.
    pub(super) fold: &'static str,
    /// What it comes to, or empty.
    pub(super) result: &'static str,
    /// Packs that are passed on in two steps for one of the wire; 0 where that cannot be.
    pub(super) relays: usize,
    /// Packs of accumulators for one of the wire, where what a domain contributes can be folded ahead of the rest; else 0.
    pub(super) partials: usize,
    pub(super) in_place: bool,
    pub(super) cols: usize,
    pub(super) row_packs: usize,
    pub(super) sends_as_is: bool,
    pub(super) keeps_as_is: bool,
    pub(super) copies: bool,
    /// Tiles of a chunk of so many rows and columns.
    pub(super) tiles: fn(u64, u64) -> u32,
}

impl Facts {
    /// Whether what crosses the wire are 8-bit floats: what hooks load and store is wider, as a rule.
    pub(super) fn narrow(&self) -> bool {
        self.wire.starts_with("F8")
    }

    pub(crate) const fn of<H: HookSet>() -> &'static Self {
        const {
            &Facts {
                name: H::NAME,
                file: H::FILE,
                element: H::ELEMENT,
                fingerprint: H::FINGERPRINT,
                wire: H::Wire::NAME,
                wire_bytes: H::Wire::SIZE,
                lanes: Pack::<H::Wire>::LANES,
                transposed: H::TRANSPOSED,
                asks_shape: H::ASKS_SHAPE,
                by_index: H::BY_INDEX,
                fold: H::FOLD,
                result: H::RESULT,
                relays: match (H::FOLD.is_empty(), H::COLS) {
                    (false, _) => H::RELAYS,
                    (true, 0) => 1,
                    (true, _) => 0,
                },
                partials: if H::COLS == 0 { H::PARTIALS } else { 0 },
                in_place: H::IN_PLACE,
                cols: H::COLS,
                row_packs: H::ROW_PACKS,
                sends_as_is: H::SENDS_AS_IS,
                keeps_as_is: H::KEEPS_AS_IS,
                copies: H::COPIES,
                tiles: transpose::of_chunk::<H::Wire>,
            }
        }
    }

    pub(super) const fn folds(&self) -> bool {
        !self.fold.is_empty()
    }

    /// Whether hooks of which a thread has so many packs in flight have much to do for each byte: by element, or on many elements of a byte.
    pub(super) const fn slow(&self, in_flight: u32) -> bool {
        in_flight < 4 || self.wire_bytes == 1
    }

    /// Whether they compute pack by pack, and are not slow.
    pub(super) const fn computes_packs(&self, in_flight: u32) -> bool {
        let others = self.cols > 0 || self.transposed || self.copies || self.folds();
        !others && !self.slow(in_flight)
    }

    /// Most threads of a block.
    pub(super) const fn most_threads(&self) -> u32 {
        if self.transposed || self.folds() || self.cols > 0 { TILE_THREADS } else { THREADS }
    }

    /// Packs of the rows that a block of so many threads takes at a time; of other hooks 1.
    pub(super) fn alone_rows(&self, threads: u32) -> usize {
        match self.cols {
            0 => 1,
            cols => (threads / row::lanes(cols)).max(1) as usize * self.row_packs,
        }
    }

    /// How much room what is passed on takes, beside what is sent at first.
    pub(super) fn times(&self, protocol: Protocol) -> u64 {
        let times = match protocol {
            Protocol::TwoShot => self.relays,
            Protocol::Hierarchical => self.relays.max(self.partials),
            _ => 1,
        };
        times.max(1) as u64
    }

    /// Bytes of a chunk on the wire.
    pub(super) fn wire_bytes_of(&self, elements: usize) -> usize {
        self.packs_of(elements).saturating_mul(16)
    }

    /// Packs of a chunk on the wire.
    pub(super) fn packs_of(&self, elements: usize) -> usize {
        match self.cols {
            0 => elements.div_ceil(self.lanes),
            cols => (elements / cols).saturating_mul(self.row_packs),
        }
    }
}
