//! Loops over the packs of a chunk. All threads of a team take part; neighbouring threads touch neighbouring 16 bytes.
//!
//! A warp that has `U` packs in flight per thread takes `U * 32` neighbouring packs at once, so that a thread's packs lie at constant
//! distances: one address serves all of them. Packs that are not whole go one by one.

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

/// Four where the hooks ask for as many, else one: hooks that work by element leave few registers for more beside lines.
pub struct FourOrOne<H>(PhantomData<H>);

impl<H: Hooks> Unroll for FourOrOne<H> {
    const PACKS: usize = if H::UNROLL >= 4 { 4 } else { 1 };
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
pub fn whole_until(place: &Ctx, lanes: usize, first: usize, s0: usize, s1: usize) -> usize {
    if place.chunk_start.is_multiple_of(lanes) {
        s1.min((place.chunk_len / lanes).saturating_sub(first)).max(s0)
    } else {
        s0
    }
}

/// The context of chunk pack `pack`, whole or not.
#[inline(always)]
pub fn any(place: &Ctx, lanes: usize, pack: usize, whole: bool) -> Ctx {
    let pos = pack * lanes;
    place.at(pos, lanes.min(place.chunk_len - pos), whole)
}

/// The context of chunk pack `pack`, which is whole.
#[inline(always)]
pub fn whole(place: &Ctx, lanes: usize, pack: usize) -> Ctx {
    place.at(pack * lanes, lanes, true)
}

/// Threads of a warp; a team's width is a multiple of it.
pub const WARP: usize = if cfg!(target_arch = "nvptx64") { 32 } else { 1 };

/// Threads that share a loop.
#[derive(Clone, Copy)]
pub struct Team {
    /// This thread.
    pub lane: usize,
    /// Threads.
    pub lanes: usize,
}

impl Team {
    /// All threads of a group.
    #[inline(always)]
    pub fn all<G: Group>(group: &G) -> Self {
        Team { lane: group.lane() as usize, lanes: group.lanes() as usize }
    }

    /// The first of this thread's `U` packs, `WARP` apart, in the team's first bundles from `s0` on.
    #[inline(always)]
    #[allow(clippy::modulo_one)] // on the host
    pub fn bundle<const U: usize>(&self, s0: usize) -> usize {
        s0 + self.lane / WARP * (U * WARP) + self.lane % WARP
    }

    /// From one bundle of this thread to its next.
    #[inline(always)]
    pub fn stride<const U: usize>(&self) -> usize {
        self.lanes / WARP * (U * WARP)
    }

    /// Calls `f` with the first pack of each of this thread's bundles that begin in `s0..end`.
    #[inline(always)]
    pub fn bundles<const U: usize>(&self, s0: usize, end: usize, mut f: impl FnMut(usize)) {
        let mut s = self.bundle::<U>(s0);
        while s < end {
            f(s);
            s += self.stride::<U>();
        }
    }
}

/// Where bundles of `U` packs from `s0` on end, of those before `whole`. Hooks by pack (four or more) fill the last bundle as far as
/// packs go; those by element have no registers to spare for that.
#[inline(always)]
fn bundled<const U: usize>(s0: usize, whole: usize) -> usize {
    let whole = whole.max(s0);
    if U >= 4 { whole } else { s0 + (whole - s0) / (U * WARP) * (U * WARP) }
}

/// Whether pack `s` of a bundle is there.
#[inline(always)]
fn inside<const U: usize>(s: usize, end: usize) -> bool {
    U < 4 || s < end
}

/// A loop over stream packs.
#[derive(Clone, Copy)]
struct Run<'k> {
    place: &'k Ctx,
    first: usize,
    team: Team,
    /// Before it, packs are whole.
    whole: usize,
}

/// Produces stream packs `s0..s1` (chunk packs from `first + s0` on) and hands each to `put` with its number and context.
///
/// There are few copies of the hook, since one may be long: `U::PACKS` for whole packs, one for the rest.
#[inline(always)]
pub fn produce<U: Unroll, W: Element>(
    team: Team,
    place: &Ctx,
    first: usize,
    s0: usize,
    s1: usize,
    source: &impl Source<W>,
    put: impl Fn(usize, &Ctx, Pack<W>),
) {
    let lanes = Pack::<W>::LANES;
    let run = Run { place, first, team, whole: whole_until(place, lanes, first, s0, s1) };
    let mut s = s0;
    if U::PACKS >= 8 {
        s = produce_unrolled::<8, _>(s, run, source, &put);
    } else if U::PACKS >= 4 {
        s = produce_unrolled::<4, _>(s, run, source, &put);
    } else if U::PACKS >= 2 {
        s = produce_unrolled::<2, _>(s, run, source, &put);
    }
    s += team.lane;
    while s < s1 {
        let ctx = Produce(any(place, lanes, first + s, s < run.whole));
        put(s, &ctx, source.pack(&ctx));
        s += team.lanes;
    }
}

/// `U` packs in flight before the first store.
#[inline(always)]
fn produce_unrolled<const U: usize, W: Element>(
    s0: usize,
    run: Run<'_>,
    source: &impl Source<W>,
    put: &impl Fn(usize, &Ctx, Pack<W>),
) -> usize {
    let ctx = |s: usize| whole(run.place, Pack::<W>::LANES, run.first + s);
    let end = bundled::<U>(s0, run.whole);
    run.team.bundles::<U>(s0, end, |s| {
        // Constant indices alone: an array that is indexed in a loop goes to local memory when the hook is long.
        let mut packs = [Pack::<W>::ZERO; U];
        unroll!(U, |K| if inside::<U>(s + K * WARP, end) {
            packs[K] = source.pack(&Produce(ctx(s + K * WARP)));
        });
        unroll!(U, |K| if inside::<U>(s + K * WARP, end) {
            put(s + K * WARP, &ctx(s + K * WARP), packs[K]);
        });
    });
    end
}

/// Loads stream packs `s0..s1` from `at(s)` and consumes each.
#[inline(always)]
pub fn consume<U: Unroll, W: Element>(
    team: Team,
    place: &Ctx,
    first: usize,
    s0: usize,
    s1: usize,
    sink: &impl Sink<W>,
    at: impl Fn(usize) -> *const u8,
) {
    let lanes = Pack::<W>::LANES;
    let run = Run { place, first, team, whole: whole_until(place, lanes, first, s0, s1) };
    let mut s = s0;
    if U::PACKS >= 8 {
        s = consume_unrolled::<8, _>(s, run, sink, &at);
    } else if U::PACKS >= 4 {
        s = consume_unrolled::<4, _>(s, run, sink, &at);
    } else if U::PACKS >= 2 {
        s = consume_unrolled::<2, _>(s, run, sink, &at);
    }
    s += team.lane;
    while s < s1 {
        // SAFETY: pack `s` has arrived and is not overwritten before it is freed.
        let pack = Pack::from_words(unsafe { arch::load_16_once(at(s)) });
        sink.take(&Consume(any(place, lanes, first + s, s < run.whole)), pack);
        s += team.lanes;
    }
}

#[inline(always)]
fn consume_unrolled<const U: usize, W: Element>(
    s0: usize,
    run: Run<'_>,
    sink: &impl Sink<W>,
    at: &impl Fn(usize) -> *const u8,
) -> usize {
    let end = bundled::<U>(s0, run.whole);
    run.team.bundles::<U>(s0, end, |s| {
        let mut packs = [Pack::<W>::ZERO; U];
        unroll!(U, |K| if inside::<U>(s + K * WARP, end) {
            // SAFETY: the pack has arrived and is not overwritten before it is freed.
            packs[K] = Pack::from_words(unsafe { arch::load_16_once(at(s + K * WARP)) });
        });
        unroll!(U, |K| if inside::<U>(s + K * WARP, end) {
            let ctx = whole(run.place, Pack::<W>::LANES, run.first + s + K * WARP);
            sink.take(&Consume(ctx), packs[K]);
        });
    });
    end
}

/// This rank's own part: from `produce` to `consume` without a wire. Packs `first .. first + packs` of the chunk.
#[inline(always)]
pub fn diagonal<H: Hooks, G: Group>(group: &G, place: &Ctx, first: usize, packs: usize, args: &H::Args<'_>) {
    let lanes = Pack::<H::Wire>::LANES;
    let team = Team::all(group);
    let until = whole_until(place, lanes, first, 0, packs);
    let run = Run { place, first, team, whole: until };
    let mut s = 0;
    if H::UNROLL >= 8 {
        s = diagonal_unrolled::<8, H>(run, args);
    } else if H::UNROLL >= 4 {
        s = diagonal_unrolled::<4, H>(run, args);
    } else if H::UNROLL >= 2 {
        s = diagonal_unrolled::<2, H>(run, args);
    }
    s += team.lane;
    while s < packs {
        let pack = H::produce(&Produce(any(place, lanes, first + s, s < until)), args);
        H::consume(&Consume(any(place, lanes, first + s, s < until)), args, pack);
        s += team.lanes;
    }
}

#[inline(always)]
fn diagonal_unrolled<const U: usize, H: Hooks>(run: Run<'_>, args: &H::Args<'_>) -> usize {
    let ctx = |s: usize| whole(run.place, Pack::<H::Wire>::LANES, run.first + s);
    let end = bundled::<U>(0, run.whole);
    run.team.bundles::<U>(0, end, |s| {
        let mut packs = [Pack::<H::Wire>::ZERO; U];
        unroll!(U, |K| if inside::<U>(s + K * WARP, end) {
            packs[K] = H::produce(&Produce(ctx(s + K * WARP)), args);
        });
        unroll!(U, |K| if inside::<U>(s + K * WARP, end) {
            H::consume(&Consume(ctx(s + K * WARP)), args, packs[K]);
        });
    });
    end
}
