//! Loops over the packs of a chunk. All threads of a team take part; neighbouring threads touch neighbouring 16 bytes.
//!
//! A warp that has `U` packs in flight per thread takes `U * 32` neighbouring packs at once, so that a thread's packs lie at constant
//! distances: one address serves all of them. Packs that are not whole go one by one.
//!
//! Packs are counted from the span's first, in 32 bits: these loops stand beside a hook's own values, and registers are few.

#[cfg(target_arch = "nvptx64")]
mod bundles;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
mod kept;
mod then;
pub mod transpose;

use crate::arch;
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
use crate::grain::Grain;
use crate::group::Group;
use crate::hooks::Hooks;
use crate::pack::Pack;
use crate::row::{self, RowAt, walk};
use crate::wait::Arrive;
#[cfg(target_arch = "nvptx64")]
use bundles as loops;
use core::marker::PhantomData;
#[cfg(not(target_arch = "nvptx64"))]
use host as loops;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use host::keep;
pub(crate) use kept::Kept;
pub(crate) use then::Then;

/// Gives packs. A trait and not a closure, since only a method can be made to be inlined however long it is.
pub trait Source<W> {
    /// [`Hooks::TRANSPOSED`]: one element is asked for at a time.
    const TRANSPOSED: bool = false;
    /// Elements that a lane has in flight where it produces tiles.
    const IN_FLIGHT: usize = 32;
    /// [`Hooks::COLS`].
    const COLS: usize = 0;
    /// [`Hooks::ROW_PACKS`].
    const ROW_PACKS: usize = 0;
    /// The pack at `ctx`.
    fn pack(&self, ctx: &Produce) -> Pack<W>;
    /// [`Hooks::produce_row`].
    #[inline(always)]
    fn row(&self, at: RowAt, put: &impl Fn(u32, Pack<W>)) {
        let _ = (at, put);
    }
}

/// Takes packs; see [`Source`].
pub trait Sink<W> {
    /// Whether it may keep what it takes in registers. What hooks take leads to an access or to a branch, for which the value has to be
    /// there, before the block's next barrier; or to nothing.
    const KEEPS: bool = false;
    /// [`Hooks::COLS`].
    const COLS: usize = 0;
    /// [`Hooks::ROW_PACKS`].
    const ROW_PACKS: usize = 0;
    /// Takes the pack that belongs to `ctx`.
    fn take(&self, ctx: &Consume, pack: Pack<W>);
    /// [`Hooks::consume_row`].
    #[inline(always)]
    fn take_row(&self, at: RowAt, get: &impl Fn(u32) -> Pack<W>) {
        let _ = (at, get);
    }
}

/// Makes packs of packs; see [`Source`].
pub trait Pass<W> {
    /// What goes on of the pack that came for `ctx`.
    fn pass(&self, ctx: &Consume, pack: Pack<W>) -> Pack<W>;
}

/// The hooks of a module, with their arguments.
pub struct Module<'k, 'a, H: Hooks>(pub &'k H::Args<'a>);

impl<H: Hooks> Source<H::Wire> for Module<'_, '_, H> {
    const TRANSPOSED: bool = H::TRANSPOSED;
    // Hooks that take what arrives by element leave few registers.
    const IN_FLIGHT: usize = if H::UNROLL >= 4 { 64 } else { 32 };
    const COLS: usize = H::COLS;
    const ROW_PACKS: usize = H::ROW_PACKS;
    #[inline(always)]
    fn pack(&self, ctx: &Produce) -> Pack<H::Wire> {
        H::produce(ctx, self.0)
    }
    #[inline(always)]
    fn row(&self, at: RowAt, put: &impl Fn(u32, Pack<H::Wire>)) {
        H::produce_row(at, self.0, put);
    }
}

impl<H: Hooks> Sink<H::Wire> for Module<'_, '_, H> {
    const COLS: usize = H::COLS;
    const ROW_PACKS: usize = H::ROW_PACKS;
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<H::Wire>) {
        H::consume(ctx, self.0, pack);
    }
    #[inline(always)]
    fn take_row(&self, at: RowAt, get: &impl Fn(u32) -> Pack<H::Wire>) {
        H::consume_row(at, self.0, get);
    }
}

/// A closure that gives or takes an element or a pack a call, as its [`Grain`] says.
pub struct Each<F, G>(pub F, PhantomData<G>);

impl<F, G> Each<F, G> {
    /// A tile's hook.
    #[inline(always)]
    pub const fn of(hook: F) -> Self {
        Each(hook, PhantomData)
    }
}

impl<G: Grain, F: Fn(&Produce) -> G> Source<G::Wire> for Each<F, G> {
    #[inline(always)]
    fn pack(&self, ctx: &Produce) -> Pack<G::Wire> {
        G::give(ctx, &self.0)
    }
}

impl<G: Grain, F: Fn(&Consume, G)> Sink<G::Wire> for Each<F, G> {
    // What the closure captured.
    const KEEPS: bool = true;
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<G::Wire>) {
        G::take(ctx, pack, &self.0);
    }
}

impl<G: Grain, F: Fn(&Consume, G) -> G> Pass<G::Wire> for Each<F, G> {
    #[inline(always)]
    fn pass(&self, ctx: &Consume, pack: Pack<G::Wire>) -> Pack<G::Wire> {
        G::pass(ctx, pack, &self.0)
    }
}

impl<G: Grain> Unroll for G {
    const PACKS: usize = G::IN_FLIGHT;
}

/// For what is passed on, whose two ends take registers.
pub struct Two;

impl Unroll for Two {
    const PACKS: usize = 2;
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

/// As the hooks ask, but no more than two: where the places of several rings take registers.
pub struct UpToTwo<H>(PhantomData<H>);

impl<H: Hooks> Unroll for UpToTwo<H> {
    const PACKS: usize = if H::UNROLL > 2 { 2 } else { H::UNROLL };
}

/// Four where the hooks ask for as many, else one: hooks that work by element leave few registers for more beside lines.
pub struct FourOrOne<H>(PhantomData<H>);

impl<H: Hooks> Unroll for FourOrOne<H> {
    const PACKS: usize = if H::UNROLL >= 4 { 4 } else { 1 };
}

/// Where packs are seldom, or never, many.
pub struct One;

impl Unroll for One {
    const PACKS: usize = 1;
}

/// Of `count` packs from chunk pack `first` on, how many are whole and have an aligned index.
#[inline(always)]
pub fn whole_until(place: &Ctx, lanes: usize, first: usize, count: u32) -> u32 {
    if place.in_packs(lanes) {
        (place.chunk_len / lanes).saturating_sub(first).min(count as usize) as u32
    } else {
        0
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
pub const WARP: u32 = if cfg!(target_arch = "nvptx64") { 32 } else { 1 };

/// Threads that share a loop.
#[derive(Clone, Copy)]
pub struct Team {
    /// This thread.
    pub lane: u32,
    /// Threads.
    pub lanes: u32,
}

impl Team {
    /// All threads of a group.
    #[inline(always)]
    pub fn all<G: Group>(group: &G) -> Self {
        Team { lane: group.lane(), lanes: group.lanes() }
    }

    /// The threads behind the leader's warp, without that one; all threads if there is no other warp. `None` for those left out.
    #[inline(always)]
    pub fn behind<G: Group>(group: &G) -> Option<Self> {
        let Team { lane, lanes } = Team::all(group);
        if lanes <= WARP {
            Some(Team { lane, lanes })
        } else if lane < WARP {
            None
        } else {
            Some(Team { lane: lane - WARP, lanes: lanes - WARP })
        }
    }

    /// Those that produce or consume: all of them where warps share rows, or as [`Team::behind`].
    #[inline(always)]
    pub fn at_work<G: Group>(group: &G, cols: usize) -> Option<Self> {
        if row::shares_warps(cols) { Some(Team::all(group)) } else { Team::behind(group) }
    }

    /// All threads of `parts` blocks, of which this one is number `part`.
    #[inline(always)]
    pub fn among<G: Group>(group: &G, part: u32, parts: u32) -> Self {
        Team { lane: part * group.lanes() + group.lane(), lanes: parts * group.lanes() }
    }

    /// The first of this thread's `U` packs, `WARP` apart, in the team's first bundles.
    #[inline(always)]
    #[allow(clippy::modulo_one)] // on the host
    pub fn bundle<const U: usize>(&self) -> u32 {
        self.lane / WARP * (U as u32 * WARP) + self.lane % WARP
    }

    /// From one bundle of this thread to its next.
    #[inline(always)]
    pub fn stride<const U: usize>(&self) -> u32 {
        self.lanes / WARP * (U as u32 * WARP)
    }
}

/// Where bundles of `U` packs end, of those before `whole`. Hooks by pack (four or more) fill the last bundle as far as packs go;
/// those by element have no registers to spare for that. Where every thread has one pack at most, there are no bundles: they would leave
/// warps without work.
#[inline(always)]
pub fn bundled<const U: usize>(team: Team, count: u32, whole: u32) -> u32 {
    let each = U as u32 * WARP;
    if count <= team.lanes {
        0
    } else if U >= 4 {
        whole
    } else {
        whole / each * each
    }
}

/// Pack `k` of the bundle that begins at `s`.
#[inline(always)]
pub const fn nth(s: u32, k: usize) -> u32 {
    s + k as u32 * WARP
}

/// Produces `count` packs from chunk pack `first` on and hands each to `put` with its number, from 0 on, and context.
///
/// There are few copies of the hook, since one may be long: `U::PACKS` for whole packs, one for the rest.
#[inline(always)]
pub fn produce<U: Unroll, W: Element, S: Source<W>>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    source: &S,
    put: impl Fn(u32, &Ctx, Pack<W>),
) {
    if S::TRANSPOSED {
        return transpose::produce(team, place, first, count, source, put);
    }
    if const { S::COLS > 0 } {
        return walk::produce(team, place, first, count, source, put);
    }
    loops::produce::<U, W, S>(team, place, first, count, source, put);
}

/// Loads `count` packs, number `s` from `at(s)`, and consumes each as the chunk's pack `first + s`.
#[inline(always)]
pub fn consume<U: Unroll, W: Element, S: Sink<W>>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    sink: &S,
    at: impl Fn(u32) -> *const u8,
) {
    consume_by::<U, W, S>(team, place, first, count, sink, |s| {
        // SAFETY: pack `s` has arrived and is not overwritten before it is freed.
        Pack::from_words(unsafe { arch::load_16_once(at(s)) })
    });
}

/// As [`consume`], of what `get(s)` gives.
#[inline(always)]
pub(crate) fn consume_by<U: Unroll, W: Element, S: Sink<W>>(
    team: Team,
    place: &Ctx,
    first: usize,
    count: u32,
    sink: &S,
    get: impl Fn(u32) -> Pack<W>,
) {
    if const { S::COLS > 0 } {
        return walk::consume(team, place, first, count, sink, get);
    }
    loops::consume::<U, W, S>(team, place, first, count, sink, get);
}

/// This rank's own part: from `produce` to `consume` without a wire. Packs `first .. first + count` of the chunk.
#[inline(always)]
pub(crate) fn self_copy<H: Hooks>(
    team: Team,
    (place, kept): (&Ctx, Kept),
    first: usize,
    count: u32,
    args: &H::Args<'_>,
) {
    if H::TRANSPOSED {
        let hooks = Module::<H>(args);
        return transpose::produce(team, place, first, count, &hooks, |_, ctx, pack| {
            H::consume(&kept.at::<H>(ctx.at(ctx.pos, ctx.valid, ctx.whole)), args, pack);
        });
    }
    if const { H::COLS > 0 } {
        return walk::keep::<H>(team, (place, kept), first, count, args, None::<&fn(u32, Pack<H::Wire>)>);
    }
    loops::self_copy::<H>(team, (place, kept), first, count, args);
}

/// The same of hooks by pack or element, in a kernel that may not have waited for the one in front yet. A thread that has no pack does not
/// here either.
#[inline(always)]
pub(crate) fn self_copy_arriving<'a, H: Hooks>(
    team: Team,
    (place, kept): (&Ctx, Kept),
    first: usize,
    count: u32,
    args: impl Arrive<H::Args<'a>>,
) {
    loops::self_copy::<H>(team, (place, kept), first, count, args);
}
