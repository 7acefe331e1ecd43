//! The loops over packs on GPUs: of bundles, which are in flight together, and of what is left.

use super::{Kept, Sink, Source, Team, Unroll, WARP, any, bundled, nth, whole, whole_until};
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::hooks::Hooks;
use crate::pack::{Pack, unroll};
use crate::wait::Arrive;

/// Runs a loop with so many packs in flight.
macro_rules! in_flight {
    ($packs:expr, |$n:ident| $run:expr) => {
        if const { $packs >= 8 } {
            const $n: usize = 8;
            $run;
        } else if const { $packs >= 4 } {
            const $n: usize = 4;
            $run;
        } else if const { $packs >= 2 } {
            const $n: usize = 2;
            $run;
        }
    };
}

/// Whether pack `s` of a bundle is there.
#[inline(always)]
fn inside<const U: usize>(s: u32, end: u32) -> bool {
    U < 4 || s < end
}

/// A loop over the `count` packs from `first` of the chunk at `place` on.
#[derive(Clone, Copy)]
struct Run<'k> {
    place: &'k Ctx,
    first: usize,
    team: Team,
    count: u32,
    /// Before it, packs are whole.
    whole: u32,
}

impl Run<'_> {
    /// The context of pack `k` of the bundle that begins at `s`; it is whole.
    #[inline(always)]
    fn whole<W: Element>(&self, s: u32, k: usize) -> Ctx {
        // Widened before `k` is added, so that a thread's packs keep constant distances.
        whole(self.place, Pack::<W>::LANES, self.first + s as usize + k * WARP as usize)
    }

    /// Whether all packs of a bundle of four or more are there: hooks are then called for the last one first. If that one lies within a
    /// slice, so do the others, which the compiler sees; with no test between them, what they need is loaded at the same time.
    /// Callers also ask for more than eight, which no bundle has: with that branch `ptxas` takes up to eight registers fewer.
    #[inline(always)]
    fn full<const U: usize>(s: u32, end: u32) -> bool {
        U >= 4 && nth(s, U - 1) < end
    }

    /// The context of pack `s`.
    #[inline(always)]
    fn any<W: Element>(&self, s: u32) -> Ctx {
        any(self.place, Pack::<W>::LANES, self.first + s as usize, s < self.whole)
    }
}

/// [`super::produce`].
#[inline(always)]
pub(super) fn produce<U: Unroll, W: Element, S: Source<W>>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    source: &S,
    put: impl Fn(u32, &Ctx, Pack<W>),
) {
    let run = Run { place, first, team, count, whole: whole_until(place, Pack::<W>::LANES, first, count) };
    let mut s = team.lane;
    in_flight!(U::PACKS, |N| s += produce_unrolled::<N, _>(run, source, &put));
    while s < count {
        let ctx = Produce(run.any::<W>(s));
        put(s, &ctx, source.pack(&ctx));
        s += team.lanes;
    }
}

/// `U` packs in flight before the first store.
#[inline(always)]
fn produce_unrolled<const U: usize, W: Element>(
    run: Run<'_>,
    source: &impl Source<W>,
    put: &impl Fn(u32, &Ctx, Pack<W>),
) -> u32 {
    let end = bundled::<U>(run.team, run.count, run.whole);
    let mut s = run.team.bundle::<U>();
    while s < end {
        // Constant indices alone: an array that is indexed in a loop goes to local memory when the hook is long.
        let mut packs = [Pack::<W>::ZERO; U];
        if const { U > 8 } || Run::full::<U>(s, end) {
            let last = run.whole::<W>(s, U - 1).index();
            unroll!(U <= 8, |K| packs[U - 1 - K] =
                source.pack(&Produce(run.whole::<W>(s, U - 1 - K).before(last))));
            unroll!(U <= 8, |K| put(nth(s, K), &run.whole::<W>(s, K), packs[K]));
            s += run.team.stride::<U>();
            continue;
        }
        unroll!(U <= 8, |K| if inside::<U>(nth(s, K), end) {
            packs[K] = source.pack(&Produce(run.whole::<W>(s, K)));
        });
        unroll!(U <= 8, |K| if inside::<U>(nth(s, K), end) {
            put(nth(s, K), &run.whole::<W>(s, K), packs[K]);
        });
        s += run.team.stride::<U>();
    }
    end
}

/// [`super::consume_by`].
#[inline(always)]
pub(super) fn consume<U: Unroll, W: Element, S: Sink<W>>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    sink: &S,
    get: impl Fn(u32) -> Pack<W>,
) {
    let run = Run { place, first, team, count, whole: whole_until(place, Pack::<W>::LANES, first, count) };
    let mut s = team.lane;
    in_flight!(U::PACKS, |N| s += consume_unrolled::<N, _>(run, sink, &get));
    while s < count {
        let pack = get(s);
        sink.take(&Consume(run.any::<W>(s)), pack);
        s += team.lanes;
    }
}

#[inline(always)]
fn consume_unrolled<const U: usize, W: Element>(
    run: Run<'_>,
    sink: &impl Sink<W>,
    get: &impl Fn(u32) -> Pack<W>,
) -> u32 {
    let end = bundled::<U>(run.team, run.count, run.whole);
    let mut s = run.team.bundle::<U>();
    while s < end {
        let mut packs = [Pack::<W>::ZERO; U];
        if const { U > 8 } || Run::full::<U>(s, end) {
            let last = run.whole::<W>(s, U - 1).index();
            unroll!(U <= 8, |K| packs[K] = get(nth(s, K)));
            unroll!(U <= 8, |K| sink
                .take(&Consume(run.whole::<W>(s, U - 1 - K).before(last)), packs[U - 1 - K]));
            s += run.team.stride::<U>();
            continue;
        }
        unroll!(U <= 8, |K| if inside::<U>(nth(s, K), end) {
            packs[K] = get(nth(s, K));
        });
        unroll!(U <= 8, |K| if inside::<U>(nth(s, K), end) {
            sink.take(&Consume(run.whole::<W>(s, K)), packs[K]);
        });
        s += run.team.stride::<U>();
    }
    end
}

/// [`super::self_copy`].
#[inline(always)]
pub(super) fn self_copy<'a, H: Hooks>(
    team: Team,
    (place, kept): (&Ctx, Kept),
    first: usize,
    count: u32,
    args: impl Arrive<H::Args<'a>>,
) {
    let run =
        Run { place, first, team, count, whole: whole_until(place, Pack::<H::Wire>::LANES, first, count) };
    let mut s = team.lane;
    in_flight!(H::UNROLL, |N| s += self_copy_unrolled::<N, H>(run, kept, args));
    while s < count {
        let args = args.arrive::<1>();
        let pack = H::produce(&Produce(run.any::<H::Wire>(s)), args);
        H::consume(&kept.at::<H>(run.any::<H::Wire>(s)), args, pack);
        s += team.lanes;
    }
}

#[inline(always)]
fn self_copy_unrolled<'a, const U: usize, H: Hooks>(
    run: Run<'_>,
    kept: Kept,
    args: impl Arrive<H::Args<'a>>,
) -> u32 {
    let end = bundled::<U>(run.team, run.count, run.whole);
    let mut s = run.team.bundle::<U>();
    while s < end {
        let mut packs = [Pack::<H::Wire>::ZERO; U];
        if const { U > 8 } || Run::full::<U>(s, end) {
            let last = run.whole::<H::Wire>(s, U - 1).index();
            let args = args.arrive::<2>();
            unroll!(U <= 8, |K| {
                packs[U - 1 - K] =
                    H::produce(&Produce(run.whole::<H::Wire>(s, U - 1 - K).before(last)), args);
            });
            unroll!(U <= 8, |K| {
                let ctx = kept.at::<H>(run.whole::<H::Wire>(s, U - 1 - K).before(last));
                H::consume(&ctx, args, packs[U - 1 - K]);
            });
            s += run.team.stride::<U>();
            continue;
        }
        let args = args.arrive::<3>();
        unroll!(U <= 8, |K| if inside::<U>(nth(s, K), end) {
            packs[K] = H::produce(&Produce(run.whole::<H::Wire>(s, K)), args);
        });
        unroll!(U <= 8, |K| if inside::<U>(nth(s, K), end) {
            H::consume(&kept.at::<H>(run.whole::<H::Wire>(s, K)), args, packs[K]);
        });
        s += run.team.stride::<U>();
    }
    end
}
