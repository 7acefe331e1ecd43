//! What is folded as it is received: a warp waits for a row of every peer, and its lanes fold a pack each.

use super::line::Line;
use super::load::rows;
use super::row;
use crate::ctx::Produce;
use crate::element::Element;
use crate::fold::{AHEAD, Contributions};
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::protocol::Kept;
use crate::schedule::Member;
use crate::tile::{self, WARP};

impl<O: Direct> Line<'_, O> {
    /// Folds what all peers send with what this rank produces at this line's place, and takes the result; whether all of it came.
    ///
    /// # Safety
    /// This block alone receives on the channel; every other rank sends on it in this call.
    #[inline(always)]
    pub(super) unsafe fn fold<H: Hooks>(&self, kept: Kept, me: Member, args: &H::Args<'_>) -> bool {
        let (warp, warps) = (self.team.lane / WARP, self.team.lanes / WARP);
        let bundled = if BUNDLE > 1 && me.world == 2 { self.folded_by_two::<H>() } else { 0 };
        let (mut row, mut whole) = (warp * BUNDLE as u32, true);
        while whole && row < bundled {
            // SAFETY: the caller's contract; rows of the two ranks' buffer.
            whole = unsafe { self.fold_bundle::<H>((row, bundled), kept, me, args) };
            row += warps * BUNDLE as u32;
        }
        row = bundled + warp;
        while whole && row < rows(self.load.packs) {
            for slot in row::slots() {
                let s = row * row::PACKS + slot;
                let carries = slot < row::PACKS && s < self.load.packs;
                if !carries && WARP == 1 {
                    break;
                }
                // Lanes without a pack wait and fold with the others, as these exchange what they hold, and take nothing.
                let ctx =
                    || if carries { self.any::<H::Wire>(s) } else { self.place.at(self.place.pos, 0, false) };
                let own = if carries { H::produce(&Produce(ctx()), args) } else { Pack::ZERO };
                let of = Rows { line: self, me, row, slot, own };
                whole = whole && H::fold(&kept.at::<H>(ctx()), args, me.world, &of);
            }
            row += warps;
        }
        whole
    }

    /// Rows of whole packs that are folded in bundles where there is one peer: if there are so many that all warps have some.
    #[inline(always)]
    fn folded_by_two<H: Hooks>(&self) -> u32 {
        let whole = tile::whole_until(&self.place, Pack::<H::Wire>::LANES, self.load.first, self.load.packs);
        if rows(self.load.packs) <= 2 * (self.team.lanes / WARP) { 0 } else { whole / row::PACKS }
    }

    /// Folds the rows of whole packs from `row` on that lie before `end`, up to [`BUNDLE`], with those of the one peer; whether they came.
    ///
    /// # Safety
    /// As for [`Line::fold`], in a world of two.
    #[inline(always)]
    unsafe fn fold_bundle<H: Hooks>(
        &self,
        (row, end): (u32, u32),
        kept: Kept,
        me: Member,
        args: &H::Args<'_>,
    ) -> bool {
        let peer = 1 - me.rank;
        // SAFETY: the two buffers of the channel.
        let input = unsafe { self.ops.lines_in(peer, self.channel).add(Self::buffer(self.calls + 1)) };
        let mut came = false;
        // One, on a GPU. (A closure so long would become a function, and what it is given would go to local memory.)
        for slot in row::slots() {
            let mut own = [Pack::<H::Wire>::ZERO; BUNDLE];
            unroll!(BUNDLE, |K| if slot < row::PACKS && row + (K as u32) < end {
                own[K] = H::produce(&Produce(self.whole::<H::Wire>(row, K, slot)), args);
            });
            // SAFETY: rows of the buffer, on which the peer sends in this call.
            let found = unsafe { self.poll_from::<BUNDLE>((peer, input), row, end) };
            came = found.is_some();
            let Some(found) = found else { break };
            unroll!(BUNDLE, |K| {
                let theirs = Pack::from_words(found[K].pack(slot));
                if slot < row::PACKS && row + (K as u32) < end {
                    let all = if me.rank == 0 { [own[K], theirs] } else { [theirs, own[K]] };
                    H::fold(&kept.at::<H>(self.whole::<H::Wire>(row, K, slot)), args, 2, &Both(all));
                }
            });
        }
        came
    }
}

/// What the ranks of a world of two contribute to a pack.
struct Both<W>([Pack<W>; 2]);

impl<W: Element> Contributions<W> for Both<W> {
    #[inline(always)]
    fn of(&self, _first: u32, _some: u32) -> Option<[Pack<W>; AHEAD]> {
        let [first, second] = self.0;
        Some([first, second, Pack::ZERO, Pack::ZERO])
    }
}

/// Rows of a bundle.
const BUNDLE: usize = if WARP == 1 { 1 } else { 4 };

/// The packs in `slot` of row `row`; of this rank `own`. All lanes of a warp ask together.
struct Rows<'k, 'l, O, W> {
    line: &'k Line<'l, O>,
    me: Member,
    row: u32,
    slot: u32,
    own: Pack<W>,
}

impl<O: Direct, W: Element> Contributions<W> for Rows<'_, '_, O, W> {
    #[inline(always)]
    fn of(&self, first: u32, some: u32) -> Option<[Pack<W>; AHEAD]> {
        let Rows { line, me, row, slot, own } = *self;
        let mut packs = [own; AHEAD];
        // Of what nobody sends, a peer's again, if there is one.
        let spare = if first != me.rank { first } else { first + 1 };
        if spare >= first + some {
            return Some(packs);
        }
        let buffer = |k: usize| {
            let rank = first + k as u32;
            let peer = if k as u32 >= some || rank == me.rank { spare } else { rank };
            // SAFETY: the two buffers of the channel.
            let input =
                unsafe { line.ops.lines_in(peer, line.channel).add(Line::<O>::buffer(line.calls + 1)) };
            (peer, input)
        };
        // SAFETY: rows of those buffers, on which every other rank sends in this call.
        let found = unsafe { line.poll_at::<AHEAD>(|k| buffer(k).1.add(row as usize * row::BYTES), buffer)? };
        unroll!(AHEAD, |K| {
            let words = found[K].pack(slot);
            if first + K as u32 != me.rank {
                packs[K] = Pack::from_words(words);
            }
        });
        Some(packs)
    }
}
