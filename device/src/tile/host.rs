//! The loops over packs on CPU threads. What is whole goes in a loop of its own, which compilers vectorise: no branch in it depends on what is not whole.
//! What is left goes by the same hooks once more.

// The signatures are those for GPUs, which have `U` packs in flight.
#![allow(clippy::extra_unused_type_parameters)]

use super::{Kept, Sink, Source, Team, Unroll};
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::hooks::Hooks;
use crate::pack::Pack;
use crate::wait::Arrive;

/// `$body` for the number and the context of packs `$first .. $first + $count` of the chunk at `$place`, of which some are whole if it is `$aligned`.
/// A macro, since a closure that is called in two loops is not inlined.
macro_rules! each {
    ($W:ty, $team:expr, $place:expr, $first:expr, $count:expr, $aligned:expr, |$s:ident, $ctx:ident| $body:expr) => {{
        let (place, first, count, lanes): (&Ctx, usize, u32, usize) = ($place, $first, $count, Pack::<$W>::LANES);
        assert!($team.lanes == 1, "on CPU threads a block is one");
        let until = if $aligned { $crate::tile::whole_until(place, lanes, first, count) } else { 0 };
        // Where the last one is inside of a slice, all are: a test that does not change in the loop.
        let last = $crate::tile::whole(place, lanes, first + until.saturating_sub(1) as usize).index();
        // One, which the compiler is not to know: it would gather the first elements of several packs in one register, then the second ones, and so on.
        // Within a pack it vectorises as it is.
        let (one, mut s) = (core::hint::black_box(1), 0);
        while s < until as usize {
            let ($s, $ctx) = (s as u32, $crate::tile::whole(place, lanes, first + s).before(last));
            $body;
            s += one;
        }
        for $s in until..count {
            let $ctx = $crate::tile::any(place, lanes, first + $s as usize, false);
            $body;
        }
    }};
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
    each!(W, team, place, first, count, true, |s, ctx| {
        let ctx = Produce(ctx);
        put(s, &ctx, source.pack(&ctx));
    });
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
    each!(W, team, place, first, count, true, |s, ctx| sink.take(&Consume(ctx), get(s)));
}

/// [`super::self_copy`].
#[inline(always)]
pub(super) fn self_copy<'a, H: Hooks>(
    team: Team,
    kept: (&Ctx, Kept),
    first: usize,
    count: u32,
    args: impl Arrive<H::Args<'a>>,
) {
    keep::<H, false>(team, kept, first, count, args.arrive::<0>(), &|_, _| {});
}

/// The same of hooks that are called by packs in order, each of which goes to `put` with its number, if it `SENDS`.
#[inline(always)]
pub(crate) fn keep<H: Hooks, const SENDS: bool>(
    team: Team,
    (place, kept): (&Ctx, Kept),
    first: usize,
    count: u32,
    args: &H::Args<'_>,
    put: &impl Fn(u32, Pack<H::Wire>),
) {
    let start = kept.start(place);
    if start == place.chunk_start {
        H::keep::<false, SENDS>(team, place, start, (first, count), args, put);
    } else {
        H::keep::<true, SENDS>(team, place, start, (first, count), args, put);
    }
}

/// A function of its own, and of the hooks: within a kernel compilers give up inlining what it calls, and rustc compiles it with the hooks' module, once for
/// all protocols. `place` and `args` are references by themselves: so the compiler knows that no store changes what is behind them.
trait Keep: Hooks + Sized {
    /// Produces packs and consumes them in the chunk at `start`, which is another one if it `MOVES`.
    #[inline(never)]
    fn keep<const MOVES: bool, const SENDS: bool>(
        team: Team,
        place: &Ctx,
        start: usize,
        (first, count): (usize, u32),
        args: &Self::Args<'_>,
        put: &impl Fn(u32, Pack<Self::Wire>),
    ) {
        let lanes = Pack::<Self::Wire>::LANES;
        let moved = |Produce(ctx): Produce, whole| {
            Consume(if MOVES {
                ctx.moved(start, whole).before(start + (ctx.most - place.chunk_start))
            } else {
                ctx
            })
        };
        if const { Self::EACH && !SENDS } {
            let [from, end] = [first, first + count as usize]
                .map(|pack| place.chunk_start + (pack * lanes).min(place.chunk_len));
            macro_rules! keep_each {
                () => {
                    for index in from..end {
                        let ctx = Produce(place.at(index - place.chunk_start, 1, false).before(end - 1));
                        let one = Self::produce(&ctx, args);
                        Self::consume(&moved(ctx, false), args, one);
                    }
                };
            }
            // The same twice: where the compiler sees that slices go on to the end, it tests nothing in the loop, and vectorises it.
            #[allow(clippy::if_same_then_else)]
            if Self::reach(args, end) {
                keep_each!();
            } else {
                keep_each!();
            }
            return;
        }
        let aligned = !MOVES || start.is_multiple_of(lanes);
        each!(Self::Wire, team, place, first, count, aligned, |s, ctx| {
            let (whole, ctx) = (ctx.whole, Produce(ctx));
            let pack = Self::produce(&ctx, args);
            if SENDS {
                put(s, pack);
            }
            Self::consume(&moved(ctx, whole), args, pack);
        });
    }
}

impl<H: Hooks> Keep for H {}
