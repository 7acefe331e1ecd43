//! What is folded in a world of two: see `docs/decisions/0052-kernels-for-two-ranks.md`.

use super::line::{BUNDLE, Line, Single};
use super::load::{Load, rows};
use super::row;
use crate::ctx::{Ctx, Produce};
use crate::element::Element;
use crate::group::{Group, Warp};
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::protocol::simple::Here;
use crate::schedule::Member;
use crate::tile::{self, Kept, WARP};

/// Rows that a warp takes at once if it has exactly so many.
const LONGEST: u32 = 5;

impl Load {
    /// Whether warps of so many `lanes` send and fold their rows in turn: if they have more than they fold at once, and all `places` are of whole packs.
    #[inline(always)]
    pub(super) fn in_turn<W: Element>(&self, lanes: u32, places: [&Ctx; 2]) -> bool {
        let whole = places.iter().all(|place| place.in_packs(Pack::<W>::LANES));
        whole && rows(self.packs) > LONGEST * (lanes / WARP)
    }
}

impl<O: Direct> Line<'_, O> {
    /// Rows of whole packs.
    #[inline(always)]
    fn whole_rows<W: Element>(&self) -> u32 {
        tile::whole_until(&self.place, Pack::<W>::LANES, self.load.first, self.load.packs) / row::PACKS
    }

    /// Sends bundle by bundle what this rank produces at `out`'s place, and folds what the peer sends with what this rank produces at this line's place behind
    /// each: what has come is folded while the rest is under way. Whether all of it came.
    ///
    /// In place no barrier is needed: the thread that sends an element is the one that folds it, and stores to it behind that.
    ///
    /// # Safety
    /// As for [`Line::fold`] and [`Line::send`], in a world of two. Both places are of whole packs.
    #[inline(always)]
    pub(super) unsafe fn send_and_fold<H: Hooks>(
        &self,
        (out, to): (&Self, &Single),
        kept: Kept,
        me: Member,
        args: &H::Args<'_>,
    ) -> bool {
        let (warp, warps, all) = (self.team.lane / WARP, self.team.lanes / WARP, rows(self.load.packs));
        let bundled = self.whole_rows::<H::Wire>();
        let hooks = tile::Module::<H>(args);
        let (mut row, mut came) = (warp * BUNDLE as u32, true);
        while came && row < bundled {
            // SAFETY: the caller's contract.
            came = unsafe {
                out.send_bundle::<H::Wire>(to, row, bundled, &hooks);
                // Not before, as in `mutual`; each lane has looked for itself.
                !Warp.any(self.watch.poisoned())
                    && self.fold_by_two::<BUNDLE, H>((row, bundled), kept, me, args)
            };
            row += warps * BUNDLE as u32;
        }
        // The last warps have the fewest bundles.
        row = bundled + (warps - 1 - warp);
        while came && row < all {
            // SAFETY: as above.
            came = unsafe {
                out.send_row::<H::Wire, _, _>(to, row, &hooks);
                !Warp.any(self.watch.poisoned()) && self.fold_by_two::<1, H>((row, row + 1), kept, me, args)
            };
            row += warps;
        }
        came
    }

    /// As [`Line::fold`], in a world of two.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn fold_of_two<H: Hooks>(&self, kept: Kept, me: Member, args: &H::Args<'_>) -> bool {
        let (warp, warps, all) = (self.team.lane / WARP, self.team.lanes / WARP, rows(self.load.packs));
        let each = all.div_ceil(warps);
        let bundled = if each > 1 { self.whole_rows::<H::Wire>() } else { 0 };
        // SAFETY: the caller's contract; rows of the two ranks' buffer.
        let mut came = unsafe {
            match each == LONGEST {
                // The fifth by itself would take as long as four.
                true => self.fold_bundles::<{ LONGEST as usize }, H>((each, bundled), kept, me, args),
                false => self.fold_bundles::<BUNDLE, H>((each.min(BUNDLE as u32), bundled), kept, me, args),
            }
        };
        // The last warps have the fewest bundles.
        let mut row = bundled + (warps - 1 - warp);
        while came && row < all {
            // SAFETY: as above.
            came = unsafe { self.fold_by_two::<1, H>((row, row + 1), kept, me, args) };
            row += warps;
        }
        came
    }

    /// Folds the rows before `bundled`, all of whole packs, `each` at a time and warp, up to `U`; whether they came.
    ///
    /// # Safety
    /// As for [`Line::fold`], in a world of two.
    #[inline(always)]
    unsafe fn fold_bundles<const U: usize, H: Hooks>(
        &self,
        (each, bundled): (u32, u32),
        kept: Kept,
        me: Member,
        args: &H::Args<'_>,
    ) -> bool {
        let (mut row, mut came) = (self.team.lane / WARP * each, true);
        while came && row < bundled {
            // SAFETY: the caller's contract; rows of the two ranks' buffer.
            came = unsafe { self.fold_by_two::<U, H>((row, bundled.min(row + each)), kept, me, args) };
            row += self.team.lanes / WARP * each;
        }
        came
    }

    /// Folds the `U` rows from `row` on, as far as they lie before `end`, with those of the one peer; whether they came. More than one are of whole packs.
    ///
    /// # Safety
    /// As for [`Line::fold`], in a world of two.
    #[inline(always)]
    unsafe fn fold_by_two<const U: usize, H: Hooks>(
        &self,
        (row, end): (u32, u32),
        kept: Kept,
        me: Member,
        args: &H::Args<'_>,
    ) -> bool {
        let peer = 1 - me.rank;
        let input = self.input_of(peer);
        let mut came = false;
        // One, on a GPU. (A closure so long would become a function, and what it is given would go to local memory.)
        for slot in row::slots() {
            let there =
                |row: u32| if U == 1 { self.carries(row, slot) } else { slot < row::PACKS && row < end };
            let ctx = |k: usize| match U {
                1 => self.any::<H::Wire>(row * row::PACKS + slot),
                _ => self.whole::<H::Wire>(row, k, slot),
            };
            let mut own = [Pack::<H::Wire>::ZERO; U];
            unroll!(U <= 8, |K| if there(row + K as u32) {
                own[K] = H::produce(&Produce(ctx(K)), args);
            });
            // SAFETY: rows of the buffer, on which the peer sends in this call.
            let found = unsafe { self.poll_from::<U>((peer, input), row, end) };
            came = found.is_some();
            let Some(found) = found else { break };
            unroll!(U <= 8, |K| {
                let theirs = Pack::from_words(found[K].pack(slot));
                if there(row + K as u32) {
                    let [first, second] = if me.rank == 0 { [own[K], theirs] } else { [theirs, own[K]] };
                    let all = Here([first, second, Pack::ZERO, Pack::ZERO]);
                    H::fold(&kept.at::<H>(ctx(K)), args, 2, &all);
                }
            });
        }
        came
    }
}
