//! What is folded as it is received: a warp waits for a row of every peer, and its lanes fold a pack each.

use super::line::Line;
use super::load::rows;
use super::row;
use crate::arch;
use crate::ctx::{Ctx, Produce};
use crate::element::Element;
use crate::fold::{AHEAD, Contributions};
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::protocol::simple::Here;
use crate::schedule::Member;
use crate::tile::{Kept, WARP};

impl<O: Direct> Line<'_, O> {
    /// Folds what all peers send with what this rank produces at this line's place, and takes the result; whether all of it came.
    ///
    /// # Safety
    /// This block alone receives on the channel; every other rank sends on it in this call.
    #[inline(always)]
    pub(super) unsafe fn fold<H: Hooks>(&self, kept: Kept, me: Member, args: &H::Args<'_>) -> bool {
        // One of the two is in a kernel's code.
        // SAFETY: the caller's contract.
        unsafe {
            match arch::of_two(me.world) {
                true => self.fold_of_two::<H>(kept, me, args),
                false => self.fold_of_any::<H>(kept, me, args),
            }
        }
    }

    /// As [`Line::fold`], of however many ranks.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn fold_of_any<H: Hooks>(&self, kept: Kept, me: Member, args: &H::Args<'_>) -> bool {
        let (warp, warps) = (self.team.lane / WARP, self.team.lanes / WARP);
        let pairs = self.pairs(me);
        let (mut row, mut whole) = (PAIR as u32 * warp, true);
        while whole && row < pairs {
            // SAFETY: the caller's contract; rows of the buffers.
            whole = unsafe {
                self.each_pair::<H>((row, pairs), me, args, |_, _, ctx, of, ranks| {
                    H::fold(&kept.at::<H>(ctx), args, ranks, of)
                })
            };
            row += PAIR as u32 * warps;
        }
        row = pairs + warp;
        while whole && row < rows(self.load.packs) {
            for slot in row::slots() {
                if !self.carries(row, slot) && WARP == 1 {
                    break;
                }
                let of = Rows { line: self, me, row, slot, own: self.own::<H>(row, slot, args) };
                whole = whole && H::fold(&kept.at::<H>(self.held::<H>(row, slot)), args, me.world, &of);
            }
            row += warps;
        }
        whole
    }

    /// Whether there is a pack in `slot` of row `row`.
    #[inline(always)]
    pub(super) fn carries(&self, row: u32, slot: u32) -> bool {
        slot < row::PACKS && row * row::PACKS + slot < self.load.packs
    }

    /// The context of the pack in `slot` of row `row`; where there is none, one of no elements: lanes without a pack wait and fold with the others, as
    /// these exchange what they hold, and take nothing.
    #[inline(always)]
    pub(super) fn held<H: Hooks>(&self, row: u32, slot: u32) -> Ctx {
        match self.carries(row, slot) {
            true => self.any::<H::Wire>(row * row::PACKS + slot),
            false => self.place.at(self.place.pos, 0, false),
        }
    }

    /// What this rank contributes to that pack.
    #[inline(always)]
    pub(super) fn own<H: Hooks>(&self, row: u32, slot: u32, args: &H::Args<'_>) -> Pack<H::Wire> {
        match self.carries(row, slot) {
            true => H::produce(&Produce(self.held::<H>(row, slot)), args),
            false => Pack::ZERO,
        }
    }

    /// Rows that are folded in pairs: all of three or four ranks', where warps have more than one.
    #[inline(always)]
    pub(super) fn pairs(&self, me: Member) -> u32 {
        let rows = rows(self.load.packs);
        if me.world > 2 && me.world <= AHEAD as u32 && rows > self.team.lanes / WARP { rows } else { 0 }
    }

    /// Waits for the rows `row` and `row + 1`, as far as they lie before `end`, of all of up to [`AHEAD`] ranks, and calls `fold` for each row and slot with its
    /// context, what the ranks contribute, and how many they are; whether all of it came.
    ///
    /// # Safety
    /// As for [`Line::fold`].
    #[inline(always)]
    pub(super) unsafe fn each_pair<H: Hooks>(
        &self,
        (row, end): (u32, u32),
        me: Member,
        args: &H::Args<'_>,
        mut fold: impl FnMut(u32, u32, Ctx, &Here<H::Wire>, u32) -> bool,
    ) -> bool {
        // Said again, so that no code is made for more.
        let ranks = me.world.min(AHEAD as u32);
        // Of this rank, which sends itself nothing, and of those that there are not, a peer's again.
        let spare = u32::from(me.rank == 0);
        let buffer = |k: usize| {
            let rank = (k % AHEAD) as u32;
            let peer = if rank >= ranks || rank == me.rank { spare } else { rank };
            (peer, self.input_of(peer))
        };
        let mut whole = true;
        for slot in row::slots() {
            let mut all = [Here([Pack::ZERO; AHEAD]); PAIR];
            unroll!(PAIR = 2, |K| all[K] = Here([self.own::<H>(row + K as u32, slot, args); AHEAD]));
            let at = |k: usize| {
                let row = (row + (k / AHEAD) as u32).min(end - 1) as usize;
                // SAFETY: a row of the buffer.
                unsafe { buffer(k).1.add(row * row::BYTES) }
            };
            // SAFETY: rows of those buffers, on which every other rank sends in this call.
            let found = unsafe { self.poll_at::<{ PAIR * AHEAD }>(at, buffer) };
            let Some(found) = found else { return false };
            unroll!(PAIR = 2, |K| {
                unroll!(AHEAD = 4, |R| {
                    let words = found[AHEAD * K + R].pack(slot);
                    if R as u32 != me.rank {
                        all[K].0[R] = Pack::from_words(words);
                    }
                });
                let row = row + K as u32;
                if row < end {
                    whole = whole && fold(row, slot, self.held::<H>(row, slot), &all[K], ranks);
                }
            });
        }
        whole
    }
}

/// Rows that are folded together of several peers'.
pub(super) const PAIR: usize = 2;

/// The packs in `slot` of row `row`; of this rank `own`. All lanes of a warp ask together.
pub(super) struct Rows<'k, 'l, O, W> {
    pub line: &'k Line<'l, O>,
    pub me: Member,
    pub row: u32,
    pub slot: u32,
    pub own: Pack<W>,
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
            (peer, line.input_of(peer))
        };
        // SAFETY: rows of those buffers, on which every other rank sends in this call.
        let found = unsafe { line.poll_at::<AHEAD>(|k| buffer(k).1.add(row as usize * row::BYTES), buffer)? };
        unroll!(AHEAD = 4, |K| {
            let words = found[K].pack(slot);
            if first + K as u32 != me.rank {
                packs[K] = Pack::from_words(words);
            }
        });
        Some(packs)
    }
}
