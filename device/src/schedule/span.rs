//! Loops over the packs of a chunk. All threads of the group take part; the order of packs among threads is strided, so that
//! neighbouring threads touch neighbouring 16 bytes.

use crate::arch;
use crate::channel::HEADER;
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::group::Group;
use crate::hooks::{self, Hooks};
use crate::pack::{Pack, unroll};
use core::marker::PhantomData;

/// Gives packs. A trait and not a closure, since only a method can be made to be inlined however long it is.
pub trait Source<W> {
    /// The pack at `ctx`.
    fn pack(&self, ctx: &Produce) -> Pack<W>;
}

/// Takes packs; see [`Source`].
pub trait Sink<W> {
    /// Takes the pack that belongs to `ctx`.
    fn take(&self, ctx: &Consume, pack: Pack<W>);
}

/// The hooks of a module, with their arguments.
pub struct Module<'k, 'a, H: Hooks>(pub &'k H::Args<'a>);

impl<H: Hooks> Source<H::Wire> for Module<'_, '_, H> {
    #[inline(always)]
    fn pack(&self, ctx: &Produce) -> Pack<H::Wire> {
        H::produce(ctx, self.0)
    }
}

impl<H: Hooks> Sink<H::Wire> for Module<'_, '_, H> {
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<H::Wire>) {
        H::consume(ctx, self.0, pack);
    }
}

/// A closure that gives or takes one element a call.
pub struct Each<F>(pub F);

impl<W: Element, F: Fn(&Produce) -> W> Source<W> for Each<F> {
    #[inline(always)]
    fn pack(&self, ctx: &Produce) -> Pack<W> {
        hooks::produce_each(ctx, &self.0)
    }
}

impl<W: Element, F: Fn(&Consume, W)> Sink<W> for Each<F> {
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<W>) {
        hooks::consume_each(ctx, pack, &self.0);
    }
}

/// How many packs a thread has in flight.
pub trait Unroll {
    /// 1, 2, 4 or 8.
    const PACKS: usize;
}

/// As the hooks ask.
pub struct By<H>(PhantomData<H>);

impl<H: Hooks> Unroll for By<H> {
    const PACKS: usize = H::UNROLL;
}

/// For element-wise closures.
pub struct Two;

impl Unroll for Two {
    const PACKS: usize = 2;
}

/// The payload packs, counted from the stream's first, that lie in stream bytes `from..to`.
#[inline(always)]
pub fn packs(from: u64, to: u64, packs: usize) -> (usize, usize) {
    let s0 = (from.max(HEADER) - HEADER) / 16;
    let s1 = (to.max(HEADER) - HEADER) / 16;
    (s0 as usize, (s1 as usize).min(packs))
}

/// The first stream pack in `s0..s1` that is not whole or whose index is not aligned.
#[inline(always)]
fn whole_until(place: &Ctx, lanes: usize, first: usize, s0: usize, s1: usize) -> usize {
    if place.chunk_start.is_multiple_of(lanes) {
        s1.min((place.chunk_len / lanes).saturating_sub(first)).max(s0)
    } else {
        s0
    }
}

/// The context of chunk pack `pack`, whole or not.
#[inline(always)]
fn any(place: &Ctx, lanes: usize, pack: usize, whole: bool) -> Ctx {
    let pos = pack * lanes;
    place.at(pos, lanes.min(place.chunk_len - pos), whole)
}

/// The context of chunk pack `pack`, which is whole.
#[inline(always)]
fn whole(place: &Ctx, lanes: usize, pack: usize) -> Ctx {
    place.at(pack * lanes, lanes, true)
}

/// A loop over stream packs: lane and step applied.
#[derive(Clone, Copy)]
struct Run<'k> {
    place: &'k Ctx,
    first: usize,
    step: usize,
    /// Before it, packs are whole.
    whole: usize,
}

/// Produces stream packs `s0..s1` (chunk packs from `first + s0` on) and stores each at `to(s)`.
///
/// There are few copies of the hook, since one may be long: `U::PACKS` for whole packs, one for the rest.
#[inline(always)]
pub fn produce<U: Unroll, W: Element, G: Group>(
    group: &G,
    place: &Ctx,
    first: usize,
    s0: usize,
    s1: usize,
    source: &impl Source<W>,
    to: impl Fn(usize) -> *mut u8,
) {
    let lanes = Pack::<W>::LANES;
    let run =
        Run { place, first, step: group.lanes() as usize, whole: whole_until(place, lanes, first, s0, s1) };
    let mut s = s0 + group.lane() as usize;
    if U::PACKS >= 8 {
        s = produce_unrolled::<8, _>(s, run, source, &to);
    } else if U::PACKS >= 4 {
        s = produce_unrolled::<4, _>(s, run, source, &to);
    } else if U::PACKS >= 2 {
        s = produce_unrolled::<2, _>(s, run, source, &to);
    }
    while s < s1 {
        let pack = source.pack(&Produce(any(place, lanes, first + s, s < run.whole)));
        // SAFETY: the ring's place of pack `s`, reserved for this group; each pack is one thread's.
        unsafe { arch::store_16(to(s), pack.words()) };
        s += run.step;
    }
}

/// `U` packs in flight before the first store.
#[inline(always)]
fn produce_unrolled<const U: usize, W: Element>(
    mut s: usize,
    run: Run<'_>,
    source: &impl Source<W>,
    to: &impl Fn(usize) -> *mut u8,
) -> usize {
    while s + (U - 1) * run.step < run.whole {
        // Constant indices alone: an array that is indexed in a loop goes to local memory when the hook is long.
        let mut packs = [Pack::<W>::ZERO; U];
        unroll!(U, |K| {
            let ctx = whole(run.place, Pack::<W>::LANES, run.first + s + K * run.step);
            packs[K] = source.pack(&Produce(ctx));
        });
        // SAFETY: the ring's place of pack `s + K * step`, reserved for this group; each pack is one thread's.
        unroll!(U, |K| unsafe { arch::store_16(to(s + K * run.step), packs[K].words()) });
        s += U * run.step;
    }
    s
}

/// Loads stream packs `s0..s1` from `at(s)` and consumes each.
#[inline(always)]
pub fn consume<U: Unroll, W: Element, G: Group>(
    group: &G,
    place: &Ctx,
    first: usize,
    s0: usize,
    s1: usize,
    sink: &impl Sink<W>,
    at: impl Fn(usize) -> *const u8,
) {
    let lanes = Pack::<W>::LANES;
    let run =
        Run { place, first, step: group.lanes() as usize, whole: whole_until(place, lanes, first, s0, s1) };
    let mut s = s0 + group.lane() as usize;
    if U::PACKS >= 8 {
        s = consume_unrolled::<8, _>(s, run, sink, &at);
    } else if U::PACKS >= 4 {
        s = consume_unrolled::<4, _>(s, run, sink, &at);
    } else if U::PACKS >= 2 {
        s = consume_unrolled::<2, _>(s, run, sink, &at);
    }
    while s < s1 {
        // SAFETY: pack `s` has arrived and is not overwritten before it is freed.
        let pack = Pack::from_words(unsafe { arch::load_16_once(at(s)) });
        sink.take(&Consume(any(place, lanes, first + s, s < run.whole)), pack);
        s += run.step;
    }
}

#[inline(always)]
fn consume_unrolled<const U: usize, W: Element>(
    mut s: usize,
    run: Run<'_>,
    sink: &impl Sink<W>,
    at: &impl Fn(usize) -> *const u8,
) -> usize {
    while s + (U - 1) * run.step < run.whole {
        let mut packs = [Pack::<W>::ZERO; U];
        // SAFETY: those packs have arrived and are not overwritten before they are freed.
        unroll!(U, |K| packs[K] = Pack::from_words(unsafe { arch::load_16_once(at(s + K * run.step)) }));
        unroll!(U, |K| {
            let ctx = whole(run.place, Pack::<W>::LANES, run.first + s + K * run.step);
            sink.take(&Consume(ctx), packs[K]);
        });
        s += U * run.step;
    }
    s
}

/// This rank's own part: from `produce` to `consume` without a wire. Packs `first .. first + packs` of the chunk.
#[inline(always)]
pub fn diagonal<H: Hooks, G: Group>(group: &G, place: &Ctx, first: usize, packs: usize, args: &H::Args<'_>) {
    let lanes = Pack::<H::Wire>::LANES;
    let until = whole_until(place, lanes, first, 0, packs);
    let run = Run { place, first, step: group.lanes() as usize, whole: until };
    let mut s = group.lane() as usize;
    if H::UNROLL >= 8 {
        s = diagonal_unrolled::<8, H>(s, run, args);
    } else if H::UNROLL >= 4 {
        s = diagonal_unrolled::<4, H>(s, run, args);
    } else if H::UNROLL >= 2 {
        s = diagonal_unrolled::<2, H>(s, run, args);
    }
    while s < packs {
        let pack = H::produce(&Produce(any(place, lanes, first + s, s < until)), args);
        H::consume(&Consume(any(place, lanes, first + s, s < until)), args, pack);
        s += run.step;
    }
}

#[inline(always)]
fn diagonal_unrolled<const U: usize, H: Hooks>(mut s: usize, run: Run<'_>, args: &H::Args<'_>) -> usize {
    let lanes = Pack::<H::Wire>::LANES;
    while s + (U - 1) * run.step < run.whole {
        let mut packs = [Pack::<H::Wire>::ZERO; U];
        unroll!(U, |K| {
            packs[K] = H::produce(&Produce(whole(run.place, lanes, run.first + s + K * run.step)), args);
        });
        unroll!(U, |K| {
            H::consume(&Consume(whole(run.place, lanes, run.first + s + K * run.step)), args, packs[K]);
        });
        s += U * run.step;
    }
    s
}
