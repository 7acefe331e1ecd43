//! Loops over the packs of a chunk. All threads of the group take part; the order of packs among threads is strided, so that
//! neighbouring threads touch neighbouring 16 bytes.

use crate::arch;
use crate::channel::HEADER;
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::group::Group;
use crate::hooks::Hooks;
use crate::pack::Pack;
use core::array::from_fn;
use core::marker::PhantomData;

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

#[inline(always)]
fn partial(place: &Ctx, lanes: usize, pack: usize) -> Ctx {
    let pos = pack * lanes;
    place.at(pos, lanes.min(place.chunk_len - pos), false)
}

/// Produces stream packs `s0..s1` (chunk packs from `first + s0` on) and stores each at `to(s)`.
#[inline(always)]
pub fn produce<U: Unroll, W: Element, G: Group>(
    group: &G,
    place: &Ctx,
    first: usize,
    s0: usize,
    s1: usize,
    hook: impl Fn(&Produce) -> Pack<W>,
    to: impl Fn(usize) -> *mut u8,
) {
    let lanes = Pack::<W>::LANES;
    let whole = whole_until(place, lanes, first, s0, s1);
    let (mut s, step) = (s0 + group.lane() as usize, group.lanes() as usize);
    let one = |s: usize| hook(&Produce(place.at((first + s) * lanes, lanes, true)));
    if U::PACKS >= 8 {
        s = produce_unrolled::<8, _>(s, step, whole, &one, &to);
    } else if U::PACKS >= 4 {
        s = produce_unrolled::<4, _>(s, step, whole, &one, &to);
    } else if U::PACKS >= 2 {
        s = produce_unrolled::<2, _>(s, step, whole, &one, &to);
    }
    while s < whole {
        // SAFETY: the ring's place of pack `s`, reserved for this group; each pack is one thread's.
        unsafe { arch::store_16(to(s), one(s).words()) };
        s += step;
    }
    let mut s = whole + group.lane() as usize;
    while s < s1 {
        let pack = hook(&Produce(partial(place, lanes, first + s)));
        // SAFETY: as above.
        unsafe { arch::store_16(to(s), pack.words()) };
        s += step;
    }
}

/// `U` packs in flight before the first store.
#[inline(always)]
fn produce_unrolled<const U: usize, W: Element>(
    mut s: usize,
    step: usize,
    end: usize,
    one: &impl Fn(usize) -> Pack<W>,
    to: &impl Fn(usize) -> *mut u8,
) -> usize {
    while s + (U - 1) * step < end {
        let packs: [Pack<W>; U] = from_fn(|k| one(s + k * step));
        for (k, pack) in packs.into_iter().enumerate() {
            // SAFETY: the ring's place of pack `s + k * step`, reserved for this group; each pack is one thread's.
            unsafe { arch::store_16(to(s + k * step), pack.words()) };
        }
        s += U * step;
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
    hook: impl Fn(&Consume, Pack<W>),
    at: impl Fn(usize) -> *const u8,
) {
    let lanes = Pack::<W>::LANES;
    let whole = whole_until(place, lanes, first, s0, s1);
    let (mut s, step) = (s0 + group.lane() as usize, group.lanes() as usize);
    let one = |s: usize, pack| hook(&Consume(place.at((first + s) * lanes, lanes, true)), pack);
    if U::PACKS >= 8 {
        s = consume_unrolled::<8, _>(s, step, whole, &one, &at);
    } else if U::PACKS >= 4 {
        s = consume_unrolled::<4, _>(s, step, whole, &one, &at);
    } else if U::PACKS >= 2 {
        s = consume_unrolled::<2, _>(s, step, whole, &one, &at);
    }
    while s < whole {
        // SAFETY: pack `s` has arrived and is not overwritten before it is freed.
        one(s, Pack::from_words(unsafe { arch::load_16_once(at(s)) }));
        s += step;
    }
    let mut s = whole + group.lane() as usize;
    while s < s1 {
        // SAFETY: as above.
        let pack = Pack::from_words(unsafe { arch::load_16_once(at(s)) });
        hook(&Consume(partial(place, lanes, first + s)), pack);
        s += step;
    }
}

#[inline(always)]
fn consume_unrolled<const U: usize, W: Element>(
    mut s: usize,
    step: usize,
    end: usize,
    one: &impl Fn(usize, Pack<W>),
    at: &impl Fn(usize) -> *const u8,
) -> usize {
    while s + (U - 1) * step < end {
        // SAFETY: those packs have arrived and are not overwritten before they are freed.
        let packs: [Pack<W>; U] =
            from_fn(|k| Pack::from_words(unsafe { arch::load_16_once(at(s + k * step)) }));
        for (k, pack) in packs.into_iter().enumerate() {
            one(s + k * step, pack);
        }
        s += U * step;
    }
    s
}

/// This rank's own part: from `produce` to `consume` without a wire. Packs `first .. first + packs` of the chunk.
#[inline(always)]
pub fn diagonal<H: Hooks, G: Group>(group: &G, place: &Ctx, first: usize, packs: usize, args: &H::Args<'_>) {
    let lanes = Pack::<H::Wire>::LANES;
    let whole = whole_until(place, lanes, first, 0, packs);
    let (mut s, step) = (group.lane() as usize, group.lanes() as usize);
    if H::UNROLL >= 8 {
        s = diagonal_unrolled::<8, H>(place, first, s, step, whole, args);
    } else if H::UNROLL >= 4 {
        s = diagonal_unrolled::<4, H>(place, first, s, step, whole, args);
    } else if H::UNROLL >= 2 {
        s = diagonal_unrolled::<2, H>(place, first, s, step, whole, args);
    }
    diagonal_unrolled::<1, H>(place, first, s, step, whole, args);
    let mut s = whole + group.lane() as usize;
    while s < packs {
        let pack = H::produce(&Produce(partial(place, lanes, first + s)), args);
        H::consume(&Consume(partial(place, lanes, first + s)), args, pack);
        s += step;
    }
}

#[inline(always)]
fn diagonal_unrolled<const U: usize, H: Hooks>(
    place: &Ctx,
    first: usize,
    mut s: usize,
    step: usize,
    end: usize,
    args: &H::Args<'_>,
) -> usize {
    let lanes = Pack::<H::Wire>::LANES;
    while s + (U - 1) * step < end {
        let at = |k: usize| place.at((first + s + k * step) * lanes, lanes, true);
        let packs: [Pack<H::Wire>; U] = from_fn(|k| H::produce(&Produce(at(k)), args));
        for (k, pack) in packs.into_iter().enumerate() {
            H::consume(&Consume(at(k)), args, pack);
        }
        s += U * step;
    }
    s
}
