//! Straight into the peers' outputs, where those are symmetric memory and `consume` does nothing but store.
//!
//! A rank may write a peer's output only once the peer has begun the same launch: until then the peer's stream may still use what the
//! output held. So each block tells every peer that it is *ready* and waits until they are, stores its share of each chunk where it belongs,
//! says *complete*, and waits for that of every peer. Both stand on the channel's lines, as if the call were a stream of two headers: calls by
//! the simple protocol and direct ones may follow each other in any order. The words behind a line's value name the call, so ranks that
//! disagree on kernel, size or place find out before a byte is written.
//!
//! What stands between *ready* and *complete* is stores of threads here, bulk copies of one thread in [`bulk`], and the copy engine's work
//! between two kernels in [`copy_engine`].

pub mod bulk;
pub mod copy_engine;
mod handshake;

use super::{Protocol, Share, Site, arguments, work};
use crate::arch;
use crate::args::store_pack;
use crate::ctx::Ctx;
use crate::element::Element;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Shape, Unpack};
use crate::ops::Direct;
use crate::pack::Pack;
use crate::schedule::{Schedule, has_own, legs};
use crate::tile::transpose::{self, Walk};
use crate::tile::{self, Team, WARP};
use crate::wait::{Armed, Flow};
use handshake::{Channel, Lanes};

/// Where the symmetric allocation of `peer`'s output is mapped: a load, to be made before it is needed.
///
/// # Safety
/// The table is that of the launch.
#[inline(always)]
unsafe fn base(shape: &Shape, peer: u32) -> u64 {
    // SAFETY: the table has an entry for each rank. Volatile: it stays where it is, before a wait.
    unsafe { (shape.outputs as *const u64).add(peer as usize).read_volatile() }
}

/// What this block does of one chunk after another.
#[derive(Clone, Copy)]
struct Part {
    team: Team,
    share: Share,
    /// Of tiles.
    walk: Option<Walk>,
    /// Threads that have a tile more of each chunk than others: of the next one they take the last.
    behind: u32,
}

impl Part {
    /// Worked out here and now: the time before a wait is over is free.
    #[inline(always)]
    fn of<H: Hooks>(shape: &Shape, channel: u32) -> Self {
        let (team, share) = work::<H>(shape.elements, shape.share, channel, shape.channels);
        let behind = if H::TRANSPOSED {
            let behind = transpose::of_chunk::<H::Wire>(shape.rows, shape.cols) % (team.lanes / WARP) * WARP;
            arch::late(u64::from(behind)) as u32
        } else {
            0
        };
        let walk = H::TRANSPOSED.then(|| Walk::of_chunk(team, shape.rows).now());
        Part { team, share: share.now(), walk, behind }
    }

    /// Goes on to the next chunk.
    #[inline(always)]
    fn next<H: Hooks>(&mut self, shape: &Shape) {
        if H::TRANSPOSED {
            let Team { lane, lanes } = self.team;
            self.team.lane = if lane >= self.behind { lane } else { lane + lanes } - self.behind;
            self.walk = Some(Walk::of_chunk(self.team, shape.rows));
        }
    }
}

/// Stores `part`, this block's of the chunk at `place`, into the output of its peer, whose allocation is at `base`, from element `to` on.
///
/// # Safety
/// The peer is ready; its output holds the chunk there; outputs' table and offset are those of the launch.
#[inline(always)]
unsafe fn store<H: Hooks>(
    Part { team, share, walk, .. }: Part,
    shape: &Shape,
    place: &Ctx,
    base: u64,
    to: u64,
    args: &H::Args<'_>,
) {
    let start = base + shape.output_offset + to * size_of::<H::Wire>() as u64;
    let put = |ctx: &Ctx, pack: Pack<H::Wire>, aligned: bool| {
        // SAFETY: the caller's contract; each pack is one thread's.
        unsafe { store_at(start, ctx, pack, aligned) };
    };
    produce::<H>(team, share, walk, place, start.is_multiple_of(16), args, put);
}

/// Stores the pack at `ctx` into a chunk whose first element is at `start`.
///
/// # Safety
/// It lies in a peer's output, which is this thread's to write there; `aligned`: `start` is a multiple of 16.
#[inline(always)]
unsafe fn store_at<W: Element>(start: u64, ctx: &Ctx, pack: Pack<W>, aligned: bool) {
    let at = (start + ctx.pos as u64 * size_of::<W>() as u64) as *mut W;
    // SAFETY: the caller's contract; element by element where it is not aligned.
    unsafe {
        if aligned && ctx.valid == Pack::<W>::LANES {
            arch::store_16(at.cast(), pack.words());
        } else {
            store_pack(at, ctx.valid, pack);
        }
    }
}

/// Hands what hooks produce of the chunk at `place` to `put`, with whether it is aligned.
#[inline(always)]
fn produce<H: Hooks>(
    team: Team,
    share: Share,
    walk: Option<Walk>,
    place: &Ctx,
    aligned: bool,
    args: &H::Args<'_>,
    put: impl Fn(&Ctx, Pack<H::Wire>, bool),
) {
    let hooks = tile::Module::<H>(args);
    // Asked once for all packs, but of tiles, which are too long to stand here twice.
    if let Some(walk) = walk {
        transpose::produce_chunk(walk, place, &hooks, |_, ctx, pack| put(ctx, pack, aligned));
    } else if aligned {
        tile::produce::<tile::By<H>, _, _>(team, place, share.first, share.packs, &hooks, |_, ctx, pack| {
            put(ctx, pack, true);
        });
    } else {
        tile::produce::<tile::One, _, _>(team, place, share.first, share.packs, &hooks, |_, ctx, pack| {
            put(ctx, pack, false);
        });
    }
}

/// The protocol of stores, as a type. Grid: `channels` blocks (none without peers, unless they produce once), then `self_copy`.
///
/// The hooks' `consume` stores to the output and does nothing else; [`Shape::outputs`] and [`Shape::output_offset`] are those of the output.
#[derive(Debug)]
pub struct Store;

// SAFETY: a peer's output is written between its *ready* and this rank's *complete*.
unsafe impl<O: Direct> Protocol<O> for Store {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
        let site = Site::of(grid, params);
        let me = site.me;
        // SAFETY: the caller's contract.
        let armed = unsafe { Armed::new(&Block, params.control, ops.rank(), grid.block) };
        // SAFETY: the caller's contract.
        let args = unsafe { arguments::<H>(&params.raw) };
        let blocks = if !S::ONCE && legs(schedule, me) == 0 { 0 } else { shape.channels };
        if S::OWN && !S::ONCE && grid.block >= blocks {
            let watch = armed.looked();
            return site.self_copy::<S, H>(schedule, &watch, grid.block - blocks, args.now(watch.behind()));
        }
        let channel = Channel::of::<H>(ops, shape, grid.block);
        let mut part = Part::of::<H>(shape, grid.block);
        let mut lanes = Lanes::of(schedule, me);
        lanes.begin(&channel);
        let watch = armed.looked();
        let args = args.now(watch.behind());
        let sends = schedule.sends(me);
        // SAFETY: the launch's table.
        let base = |leg| unsafe { base(shape, schedule.to(me, leg).peer) };
        let first = if !S::ONCE && (S::MUTUAL || sends > 0) { base(1) } else { 0 };
        lanes.await_ready(&channel, &watch)?;
        if S::ONCE {
            if has_own(schedule, me) {
                let (place, kept) = (site.own(schedule, grid.block), site.kept(schedule));
                let to = shape.output_offset
                    + u64::from(schedule.own(me)[1]) * shape.elements * size_of::<H::Wire>() as u64;
                let Part { team, share, walk, .. } = part;
                let put = |ctx: &Ctx, pack: Pack<H::Wire>, aligned: bool| {
                    let mut number = 1;
                    while number < sends + 1 {
                        // SAFETY: the peer is ready, with this call's size and place; each pack is one thread's.
                        unsafe { store_at(base(number) + to, ctx, pack, aligned) };
                        number += 1;
                    }
                    H::consume(&kept.at::<H>(ctx.at(ctx.pos, ctx.valid, ctx.whole)), args, pack);
                };
                // Allocations are.
                produce::<H>(team, share, walk, &place, to.is_multiple_of(16), args, put);
            }
            Block.sync();
            watch.check_panic(ops)?;
            return lanes.close(&channel, &watch, None);
        }
        let mut number = 1;
        while number < sends + 1 {
            let leg = schedule.to(me, number);
            let base = if number == 1 { first } else { base(number) };
            let to = u64::from(leg.theirs) * shape.elements;
            // SAFETY: the peer is ready, with this call's size and place.
            unsafe { store::<H>(part, shape, &site.at(leg, grid.block), base, to, args) };
            if const { S::MOST_LEGS == 1 } {
                break;
            }
            part.next::<H>(shape);
            number += 1;
        }
        Block.sync();
        watch.check_panic(ops)?;
        lanes.close(&channel, &watch, None)
    }
}
