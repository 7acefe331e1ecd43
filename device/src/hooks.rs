//! The trait behind a hook module. `#[comm_kernel]` implements it; users write `produce` and `consume`.

use crate::args::Out;
use crate::ctx::{Consume, Produce};
use crate::element::Element;
#[cfg(doc)]
use crate::fold;
use crate::fold::{Contributions, Partials};
use crate::pack::Pack;
#[cfg(target_arch = "nvptx64")]
use crate::pack::{together, unroll};
use crate::row::RowAt;

/// The two ends of a wire, and how the work between them is cut.
pub trait Hooks: 'static {
    /// Arguments as hooks see them.
    type Args<'a>;
    /// What crosses the wire.
    type Wire: Element;
    /// Packs that a thread produces before it stores the first of them.
    const UNROLL: usize;
    /// Whether `produce` works by element and reads the *rows* of a column side by side: it is then called by tiles (see
    /// [`transpose`](crate::tile::transpose)), and blocks have at most 256 threads.
    const TRANSPOSED: bool = false;

    /// Whether what arrives is stored where `produce` reads: an [`InOut`](crate::args::InOut). Then the schedule is [`InPlace`](crate::schedule::InPlace), and
    /// every `produce` of an element is over before it is consumed: because no chunk is both sent and received
    /// ([`APART`](crate::schedule::Schedule::APART)), or by protocols that see to it ([`TwoShot`](crate::protocol::TwoShot), [`Ll`](crate::protocol::Ll), [`Ll128`](crate::protocol::Ll128)).
    const IN_PLACE: bool = false;

    /// Whether both hooks work by element, or one does and the other is a copy, so that CPU threads may call them for one element after another.
    const EACH: bool = false;
    /// Whether each slice that hooks may index has elements up to `end`.
    #[inline(always)]
    fn reach(args: &Self::Args<'_>, end: usize) -> bool {
        let _ = (args, end);
        false
    }

    /// Elements of a row, where hooks work by rows ([`row`](crate::row)): they are then called by [`Hooks::produce_row`] and its
    /// neighbours, and blocks have at most 256 threads, in whole teams ([`row::lanes`](crate::row::lanes)). Else 0.
    const COLS: usize = 0;
    /// Packs of a row on the wire. Shares, and what travels together, are whole rows.
    const ROW_PACKS: usize = 0;

    /// Hands each pack of the row at `at` to `put`, with its number in the row. Called by all threads that share it.
    #[inline(always)]
    fn produce_row(at: RowAt, args: &Self::Args<'_>, put: &impl Fn(u32, Pack<Self::Wire>)) {
        let _ = (at, args, put);
    }

    /// Takes the row that arrived for `at`, of which `get` gives the packs. In the same way.
    #[inline(always)]
    fn consume_row(at: RowAt, args: &Self::Args<'_>, get: &impl Fn(u32) -> Pack<Self::Wire>) {
        let _ = (at, args, get);
    }

    /// Produces the row at the first place, hands its packs to `put` if that is there, and takes it at the second. In the same way.
    #[inline(always)]
    fn keep_row(at: [RowAt; 2], args: &Self::Args<'_>, put: Option<&impl Fn(u32, Pack<Self::Wire>)>) {
        let _ = (at, args, put);
    }

    /// Folds the row at `at` of `ranks` ranks and takes the result: `of` gives the packs of each rank's, and what this rank, `own.0`, contributes
    /// is produced at `own.1` where that is said. In the same way.
    ///
    /// `RANKS`: how many there are, if that is a constant from 1 to [`AHEAD`](fold::AHEAD). Then `own` is said, and `of` counts the *other* ranks.
    #[inline(always)]
    fn fold_row<const RANKS: usize>(
        at: RowAt,
        args: &Self::Args<'_>,
        ranks: u32,
        own: Option<(u32, RowAt)>,
        of: &impl Fn(u32, u32) -> Pack<Self::Wire>,
    ) {
        let _ = (at, args, ranks, own, of);
    }

    /// Folds as [`Hooks::fold_row`] does, hands the packs of the row that comes out to `put`, with their numbers, and takes that row if this rank `takes`. In the same way.
    #[inline(always)]
    fn relay_row<const RANKS: usize>(
        at: RowAt,
        args: &Self::Args<'_>,
        (ranks, takes): (u32, bool),
        own: Option<(u32, RowAt)>,
        of: &impl Fn(u32, u32) -> Pack<Self::Wire>,
        put: &impl Fn(u32, Pack<Self::Folded>),
    ) {
        let _ = (at, args, ranks, takes, own, of, put);
    }

    /// Takes the row that was folded for `at`, of which `get` gives the packs. In the same way.
    #[inline(always)]
    fn take_row(at: RowAt, args: &Self::Args<'_>, get: &impl Fn(u32) -> Pack<Self::Folded>) {
        let _ = (at, args, get);
    }

    /// The pack of wire values at `ctx` (`ctx.valid` of them).
    fn produce(ctx: &Produce, args: &Self::Args<'_>) -> Pack<Self::Wire>;
    /// Takes the pack that arrived for `ctx` (`ctx.valid` of its elements).
    fn consume(ctx: &Consume, args: &Self::Args<'_>, value: Pack<Self::Wire>);

    /// Whether [`Hooks::fold`] is what takes values, and not [`Hooks::consume`].
    const FOLDS: bool = false;

    /// Folds what `ranks` ranks contribute to the pack at `ctx`, and takes the result, of as many elements as are valid there. `of` and what is
    /// returned: see [`fold::each`].
    #[inline(always)]
    fn fold(ctx: &Consume, args: &Self::Args<'_>, ranks: u32, of: &impl Contributions<Self::Wire>) -> bool {
        let _ = (ctx, args, ranks, of);
        false
    }

    /// What a fold comes to, as it is passed on to other ranks ([`TwoShot`](crate::protocol::TwoShot)). Where nothing is folded, the wire's.
    type Folded: Element;
    /// Packs of what is folded for one of the wire, if it can be passed on; else 0. Of rows: where a row on the wire takes [`ROW_PACKS`](Hooks::ROW_PACKS), a folded one
    /// has room for so many times as many, and may not need them all.
    const RELAYS: usize = 0;

    /// Folds as [`Hooks::fold`] does, and hands the packs of what comes out to `put`, with their numbers, for [`Hooks::take`] here and elsewhere.
    #[inline(always)]
    fn relay(
        ranks: u32,
        of: &impl Contributions<Self::Wire>,
        put: &impl Fn(usize, Pack<Self::Folded>),
    ) -> bool {
        let _ = (ranks, of, put);
        false
    }

    /// Packs of accumulators for one of the wire, where what a domain's ranks contribute can be folded ahead of the rest
    /// ([`Hierarchical`](crate::protocol::Hierarchical), [`fold::partials`]); else 0.
    const PARTIALS: usize = 0;

    /// Folds what the `ranks` ranks of a domain contribute to a pack, and hands the packs of accumulators to `put`, with their numbers, for [`Hooks::join`] here and
    /// elsewhere.
    #[inline(always)]
    fn partial(ranks: u32, of: &impl Contributions<Self::Wire>, put: &impl Fn(usize, [u32; 4])) -> bool {
        let _ = (ranks, of, put);
        false
    }

    /// Folds what so many domains have, of so many ranks in all, and hands what comes out to `put` as [`Hooks::relay`] does. `of` gives each domain's packs by number.
    #[inline(always)]
    fn join(ranks: (u32, u32), of: &impl Partials, put: &impl Fn(usize, Pack<Self::Folded>)) {
        let _ = (ranks, of, put);
    }

    /// Takes what was folded for the pack at `ctx`, `ctx.valid` elements of it.
    #[inline(always)]
    fn take(ctx: &Consume, args: &Self::Args<'_>, folded: Pack<Self::Folded>) {
        let _ = (ctx, args, folded);
    }

    /// What `produce` sends as it is, element `ctx.index()` for each `ctx`, if that is all it does: the host copies it in one piece.
    #[inline(always)]
    fn sends_as_is<'a>(_args: &Self::Args<'a>) -> Option<&'a [Self::Wire]> {
        None
    }

    /// The same of a fold in place: where what is sent lies is the output as well.
    #[inline(always)]
    fn sends_in_place<'a>(_args: &Self::Args<'a>) -> Option<Out<'a, Self::Wire>> {
        None
    }

    /// Folds what each rank contributes to the elements of `to`, those of rank `r` in `from[r]`, as [`Hooks::relay`] does.
    #[cfg(not(target_arch = "nvptx64"))]
    fn fold_run(from: &[&[Self::Wire]], to: &mut [Self::Folded]) {
        let _ = (from, to);
    }

    /// Where [`Hooks::take`] puts what was folded as it is, element `ctx.index()` for each `ctx`, if that is all it does.
    #[inline(always)]
    fn keeps_folded<'a>(_args: &Self::Args<'a>) -> Option<Out<'a, Self::Folded>> {
        None
    }

    /// Where `consume` puts what arrives as it is, element `ctx.index()` for each `ctx`, if that is all it does.
    #[inline(always)]
    fn keeps_as_is<'a>(_args: &Self::Args<'a>) -> Option<Out<'a, Self::Wire>> {
        None
    }
}

/// Makes a pack from a hook that gives one element a call.
#[inline(always)]
pub fn produce_each<W: Element>(ctx: &Produce, hook: impl Fn(&Produce) -> W) -> Pack<W> {
    // For the host a loop: compilers unroll it where that is of use, and vectorise.
    #[cfg(not(target_arch = "nvptx64"))]
    return Pack::of_first(ctx.valid, |k| hook(&Produce(ctx.at(ctx.pos + k, 1, false))));
    // All elements before the first is shifted into its place, so that the hook's loads do not wait for each other.
    #[cfg(target_arch = "nvptx64")]
    {
        let mut values = [W::default(); 16];
        unroll!(Pack::<W>::LANES, |K| if K < ctx.valid {
            values[K] = hook(&Produce(ctx.at(ctx.pos + K, 1, false)));
        });
        together(values)
    }
}

/// A pack of what a hook makes of each element of another: `ctx.valid` of them, and behind those zeros.
#[inline(always)]
pub(crate) fn pass_each<W: Element>(
    ctx: &Consume,
    pack: Pack<W>,
    hook: impl Fn(&Consume, W) -> W,
) -> Pack<W> {
    #[cfg(not(target_arch = "nvptx64"))]
    return Pack::of_first(ctx.valid, |k| hook(&Consume(ctx.at(ctx.pos + k, 1, false)), pack.get(k)));
    #[cfg(target_arch = "nvptx64")]
    {
        let mut values = [W::default(); 16];
        unroll!(Pack::<W>::LANES, |K| if K < ctx.valid {
            values[K] = hook(&Consume(ctx.at(ctx.pos + K, 1, false)), pack.get(K));
        });
        together(values)
    }
}

/// Hands the elements of a pack to a hook that takes one a call: `ctx.valid` of them, whatever the type.
#[inline(always)]
pub fn consume_each<W: Element>(ctx: &Consume, value: Pack<W>, hook: impl Fn(&Consume, W)) {
    // `valid` alone counts: the witnesses made here must lie within the one that was given.
    #[cfg(not(target_arch = "nvptx64"))]
    for k in 0..ctx.valid.min(Pack::<W>::LANES) {
        hook(&Consume(ctx.at(ctx.pos + k, 1, false)), value.get(k));
    }
    #[cfg(target_arch = "nvptx64")]
    unroll!(Pack::<W>::LANES, |K| if K < ctx.valid {
        hook(&Consume(ctx.at(ctx.pos + K, 1, false)), value.get(K));
    });
}
