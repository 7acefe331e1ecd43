//! What is folded as it is received: a warp waits for a row of every peer, and its lanes fold a pack each.

use super::line::{Line, rows};
use super::row;
use crate::ctx::Produce;
use crate::element::Element;
use crate::fold::{AHEAD, Contributions};
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::protocol::Kept;
use crate::schedule::Member;
use crate::tile::WARP;

impl<O: Direct> Line<'_, O> {
    /// Folds what all peers send with what this rank produces at this line's place, and takes the result; whether all of it came.
    ///
    /// # Safety
    /// This block alone receives on the channel; every other rank sends on it in this call.
    #[inline(always)]
    pub(super) unsafe fn fold<H: Hooks>(&self, kept: Kept, me: Member, args: &H::Args<'_>) -> bool {
        let (warp, warps) = (self.team.lane / WARP, self.team.lanes / WARP);
        let (mut row, mut whole) = (warp, true);
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
}

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
