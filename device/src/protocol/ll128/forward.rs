//! What arrives from one peer goes on to another, row by row.

use super::line::{Line, Outlet};
use super::load::rows;
use super::row;
use crate::ctx::Consume;
use crate::element::Element;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::tile::WARP;

/// Rows that are waited for together.
const TOGETHER: usize = 2;

impl<O: Direct> Line<'_, O> {
    /// Receives, and sends what `pass` makes of each pack by the line `onward`, which carries as much, `to` its peer; whether all of it came.
    ///
    /// # Safety
    /// This block alone receives on the channel, and sends on that of `onward`, whose buffer is free.
    #[inline(always)]
    pub unsafe fn forward_rows<W: Element>(
        &self,
        onward: &Self,
        to: &impl Outlet<W>,
        pass: impl Fn(&Consume, Pack<W>) -> Pack<W>,
    ) -> bool {
        let (input, end) = (self.input(), rows(self.load.packs));
        let mut row = self.team.lane / WARP * TOGETHER as u32;
        while row < end {
            // SAFETY: rows of the buffer.
            let Some(found) = (unsafe { self.poll::<TOGETHER>(input, row, end) }) else { return false };
            row::each_lane(|slot| {
                let mut packs = [[0; 4]; TOGETHER];
                unroll!(TOGETHER = 2, |K| {
                    let s = (row + K as u32) * row::PACKS + slot;
                    let pack = Pack::from_words(found[K].pack(slot));
                    if slot < row::PACKS && row + (K as u32) < end && s < self.load.packs {
                        packs[K] = pass(&Consume(self.any::<W>(s)), pack).words();
                    }
                });
                // SAFETY: the caller's contract; these rows are one warp's.
                unsafe { onward.put::<TOGETHER, _, _>(to, row, end, slot, packs) };
            });
            // SAFETY: as above.
            unsafe { onward.seal::<TOGETHER, _, _>(to, row, end) };
            row += self.team.lanes / WARP * TOGETHER as u32;
        }
        true
    }
}
