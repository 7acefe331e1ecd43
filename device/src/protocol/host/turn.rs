//! Where a turn's packs come from and go to beside the peers: sums of other domains, and what is folded for those who take it.

use super::super::simple::channel::{HEADER, Receiving, Sending};
use super::super::simple::{Onward, Others, take};
use super::store_for_each;
use crate::arch;
use crate::ctx::Consume;
use crate::element::Element;
use crate::fold::Contributions;
use crate::hooks::Hooks;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::row::RowAt;
use crate::schedule::Member;
use crate::tile::Then;

/// Where the turn that is at byte `at` of a stream is in one with `times` as much behind the header.
pub(super) fn same_turn(at: u64, times: usize) -> u64 {
    if at == 0 { 0 } else { HEADER + (at - HEADER) * times as u64 }
}

/// What other domains have of a turn's packs.
pub(super) struct Arrived<'k, O> {
    /// This rank's.
    pub domain: Member,
    /// From the domain `k` down at `k - 1`.
    pub others: &'k [Receiving<'k, O>],
    /// Where the turn's packs begin in each stream.
    pub payload: u64,
}

impl<O: Ops> Others for Arrived<'_, O> {
    #[inline(always)]
    fn of(&self, domain: u32, at: u32) -> [u32; 4] {
        let from = &self.others[self.domain.down(domain) as usize - 1];
        // SAFETY: the pack has arrived, and is not overwritten before it is freed.
        unsafe { arch::load_16(from.at(self.payload + 16 * u64::from(at))) }
    }
}

/// What was folded in a turn is stored for the ranks of the same place in other domains.
pub(super) struct Partial<'k, O> {
    pub outs: &'k [Sending<'k, O>],
    /// Where the turn's packs begin in each stream.
    pub payload: u64,
}

impl<O: Ops, H: Hooks> Then<H> for Partial<'_, O> {
    #[inline(always)]
    fn fold(
        &self,
        s: u32,
        _ctx: &Consume,
        _args: &H::Args<'_>,
        ranks: u32,
        of: &impl Contributions<H::Wire>,
    ) {
        H::partial(ranks, of, &|number: usize, words: [u32; 4]| {
            let at = self.payload + 16 * (u64::from(s) * H::PARTIALS as u64 + number as u64);
            // SAFETY: the pack's place, which is reserved.
            unsafe { store_for_each(self.outs, at, words) };
        });
    }
}

/// What was folded in a turn is stored for every peer that takes it. Where all ranks do, so does this one.
pub(super) struct Passed<'k, O> {
    pub outs: &'k [Sending<'k, O>],
    /// Where the turn's packs begin in each stream.
    pub payload: u64,
    pub takes: bool,
}

impl<O: Ops> Passed<'_, O> {
    /// This rank alone takes it.
    pub const NOWHERE: Self = Passed { outs: &[], payload: 0, takes: true };

    /// Stores a run of what was folded, which begins at byte `at` of the turn's.
    pub fn store<L: Element>(&self, at: u64, run: &[L]) {
        let from = run.as_ptr().cast::<u8>();
        for (done, to, bytes) in
            self.outs.iter().flat_map(|out| out.ring(self.payload + at).pieces(size_of_val(run)))
        {
            // SAFETY: within the run; its places in the ring are reserved, and lie in one piece.
            unsafe { to.copy_from_nonoverlapping(from.add(done), bytes) };
        }
    }

    /// Stores pack `number` of what was folded for pack `s` of the turn, which is the one at `ctx`.
    #[inline(always)]
    pub fn put<H: Hooks>(
        &self,
        s: u32,
        number: usize,
        pack: Pack<H::Folded>,
        (ctx, args): (&Consume, &H::Args<'_>),
    ) {
        let at = self.payload + 16 * (u64::from(s) * H::RELAYS as u64 + number as u64);
        // SAFETY: the pack's place, which is reserved.
        unsafe { store_for_each(self.outs, at, pack.words()) };
        if self.takes {
            take::<H>(ctx, args, number, pack);
        }
    }
}

impl<O: Ops, H: Hooks> Onward<H> for &Passed<'_, O> {
    #[inline(always)]
    fn put(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, number: usize, pack: Pack<H::Folded>) {
        Passed::put::<H>(self, s, number, pack, (ctx, args));
    }
}

impl<O: Ops, H: Hooks> Then<H> for Passed<'_, O> {
    #[inline(always)]
    fn fold(&self, s: u32, ctx: &Consume, args: &H::Args<'_>, ranks: u32, of: &impl Contributions<H::Wire>) {
        H::relay(ranks, of, &|number: usize, pack: Pack<H::Folded>| {
            self.put::<H>(s, number, pack, (ctx, args));
        });
    }

    #[inline(always)]
    fn fold_row<const RANKS: usize>(
        &self,
        s: u32,
        at: RowAt,
        args: &H::Args<'_>,
        ranks: u32,
        own: Option<(u32, RowAt)>,
        of: &impl Fn(u32, u32) -> Pack<H::Wire>,
    ) {
        H::relay_row::<RANKS>(at, args, (ranks, self.takes), own, of, &|number, pack: Pack<H::Folded>| {
            let at = self.payload + 16 * (u64::from(s) * H::RELAYS as u64 + u64::from(number));
            // SAFETY: the pack's place, which is reserved.
            unsafe { store_for_each(self.outs, at, pack.words()) };
        });
    }
}
