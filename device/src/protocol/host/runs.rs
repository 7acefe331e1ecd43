//! Folds whose hooks leave what they have as it is: run by run, from where it lies to where it goes, and pack by pack nowhere.

use super::Part;
use super::turn::Passed;
use crate::args::Out;
use crate::ctx::Ctx;
use crate::element::Element;
use crate::hooks::Hooks;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::protocol::simple::channel::{HEADER, Receiving};
use crate::schedule::Member;
use crate::tile::Kept;
use core::marker::PhantomData;
use core::slice;
use std::{vec, vec::Vec};

/// Elements of a run at most: what they come to is passed on and taken while it is in a core's nearest cache.
const RUN: usize = 1024;

/// What a rank sends as it is: an input, or a buffer that is the output as well. So it is no slice, but for as long as a run of it is read.
#[derive(Clone, Copy)]
pub(super) struct Sent<'a, W> {
    start: *const W,
    len: usize,
    life: PhantomData<&'a W>,
}

impl<'a, W: Element> Sent<'a, W> {
    #[inline(always)]
    pub(super) fn of<H: Hooks<Wire = W>>(args: &H::Args<'a>) -> Option<Self> {
        let input = H::sends_as_is(args).map(|input| (input.as_ptr(), input.len()));
        let (start, len) = input.or_else(|| {
            H::sends_in_place(args).map(|both| (both.run(0, both.len()).cast_const(), both.len()))
        })?;
        Some(Sent { start, len, life: PhantomData })
    }

    /// Where `len` elements from `first` on lie.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub(super) fn run(&self, first: usize, len: usize) -> *const W {
        assert!(len <= self.len && first <= self.len - len, "input ends before these elements");
        // SAFETY: in bounds by the assertion.
        unsafe { self.start.add(first) }
    }
}

/// Where a rank's own contribution is, and where what it comes to goes.
pub(super) type Ends<'a, H> = (Sent<'a, <H as Hooks>::Wire>, Out<'a, <H as Hooks>::Folded>);

/// The ends of a fold whose hooks do nothing else.
#[inline(always)]
pub(super) fn ends<'a, H: Hooks>(args: &H::Args<'a>) -> Option<Ends<'a, H>> {
    if const { H::FOLDS && H::COLS == 0 && Pack::<H::Wire>::LANES > 0 } {
        Sent::of::<H>(args).zip(H::keeps_folded(args))
    } else {
        None
    }
}

/// Folds a part of this rank's own with what the rank `k` down sent by `inputs[k - 1]`.
pub(super) fn fold<O: Ops, H: Hooks>(
    part: &Part,
    (place, kept): (&Ctx, Kept),
    me: Member,
    (input, output): &Ends<'_, H>,
    inputs: &[Receiving<'_, O>],
    passed: &Passed<'_, O>,
) {
    let (start, len) = part.elements::<H::Wire>(place);
    let (own, to) = (input.run(start, len), start - place.chunk_start + kept.start(place));
    let mut folded = vec![H::Folded::default(); RUN.min(len)];
    let mut from = Vec::with_capacity(me.world as usize);
    let mut done = 0;
    while done < len {
        let offset = part.offset() + (done * H::Wire::SIZE) as u64;
        let most = RUN.min(len - done) * H::Wire::SIZE;
        let bytes = inputs.iter().fold(most, |bytes, input| input.ring(offset).piece(0, bytes).1);
        let run = bytes / H::Wire::SIZE;
        from.extend((0..me.world).map(|rank| match me.down(rank) {
            // SAFETY: within the part; what is folded is written there when these slices are gone.
            0 => unsafe { slice::from_raw_parts(own.add(done), run) },
            // SAFETY: the bytes have arrived, lie in one piece, and are not overwritten before they are freed.
            leg => unsafe { slice::from_raw_parts(inputs[leg as usize - 1].at(offset).cast(), run) },
        }));
        let folded = &mut folded[..run];
        H::fold_run(&from, folded);
        from.clear();
        passed.store((done * H::Folded::SIZE) as u64, folded);
        if passed.takes {
            // SAFETY: the output's elements are these packs' own, whose `take` this replaces.
            unsafe { output.run(to + done, run).copy_from_nonoverlapping(folded.as_ptr(), run) };
        }
        done += run;
    }
}

/// Takes what was folded for a part.
pub(super) fn take<O: Ops, H: Hooks>(
    part: &Part,
    place: &Ctx,
    output: &Out<'_, H::Folded>,
    from: &Receiving<'_, O>,
) {
    let (start, len) = part.elements::<H::Wire>(place);
    let payload = HEADER + (16 * part.packs.start * H::RELAYS) as u64;
    let to = output.run(start, len).cast::<u8>();
    for (done, from, bytes) in from.ring(payload).pieces(len * H::Folded::SIZE) {
        // SAFETY: the bytes have arrived and lie in one piece; the output's elements are these packs' own, whose `take` this replaces.
        unsafe { to.add(done).copy_from_nonoverlapping(from, bytes) };
    }
}
