//! Straight into the peers' outputs, where those are symmetric memory and `consume` does nothing but store.
//!
//! A rank may write a peer's output only once the peer has begun the same launch: until then the peer's stream may still use what the
//! output held. So each block says *go* to every peer and waits for theirs, stores its share of each chunk where it belongs, says
//! *done*, and waits for that of every peer. Both stand on the channel's lines, as if the call were a stream of two headers: staged and
//! direct calls may follow each other in any order. The words behind a line's value name the call, so ranks that disagree on kernel,
//! size or place find out before a byte is written.
//!
//! What stands between *go* and *done* is stores of threads here, bulk copies of one thread in [`bulk`], and the copy engine's work
//! between two kernels ([`all_to_all_copy`], [`sendrecv_copy`]).

pub mod bulk;
mod engine;
mod handshake;

pub use bulk::{all_to_all_bulk, sendrecv_bulk};
pub use engine::{all_to_all_copy, sendrecv_copy};

use super::span::{self, Team, WARP};
use super::tiles::{self, Walk};
use super::{Grid, NOBODY, Params, Ring, Shape, Share, Unpack, own_share, place, work};
use crate::arch;
use crate::args::store_pack;
use crate::ctx::Ctx;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::Pack;
use crate::wait::{Fault, Flow, Watch};
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
            let behind = tiles::of_chunk::<H::Wire>(shape.rows, shape.cols) % (team.lanes / WARP) * WARP;
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
/// The peer said *go*; its output holds the chunk there; outputs' table and offset are those of the launch.
#[inline(always)]
unsafe fn store<H: Hooks>(
    Part { team, share, walk, .. }: Part,
    shape: &Shape,
    place: &Ctx,
    base: u64,
    to: u64,
    args: &H::Args<'_>,
) {
    let size = size_of::<H::Wire>() as u64;
    let start = base + shape.output_offset + to * size;
    let (aligned, lanes) = (start.is_multiple_of(16), Pack::<H::Wire>::LANES);
    let (hooks, at) = (span::Module::<H>(args), |ctx: &Ctx| (start + ctx.pos as u64 * size) as *mut H::Wire);
    let put = |ctx: &Ctx, pack: Pack<H::Wire>, aligned: bool| {
        if aligned && ctx.valid == lanes {
            // SAFETY: inside the peer's output by the caller's contract, aligned by the test; each pack is one thread's.
            unsafe { arch::store_16(at(ctx).cast(), pack.words()) };
        } else {
            // SAFETY: as above, element by element.
            unsafe { store_pack(at(ctx), ctx.valid, pack) };
        }
    };
    // Asked once for all packs, but of tiles, which are too long to stand here twice.
    if let Some(walk) = walk {
        tiles::produce_chunk(walk, place, &hooks, |_, ctx, pack| put(ctx, pack, aligned));
    } else if aligned {
        span::produce::<span::By<H>, _, _>(team, place, share.first, share.packs, &hooks, |_, ctx, pack| {
            put(ctx, pack, true);
        });
    } else {
        span::produce::<span::One, _, _>(team, place, share.first, share.packs, &hooks, |_, ctx, pack| {
            put(ctx, pack, false);
        });
    }
}

/// [`super::all_to_all`] straight into symmetric outputs. Grid: `channels` blocks (none in a world of one rank), then `diagonal`.
///
/// # Safety
/// As for [`super::sendrecv`]; the hooks' `consume` stores to the output and does nothing else; `shape.outputs` and
/// `shape.output_offset` are those of the output.
#[inline(always)]
pub unsafe fn all_to_all_direct<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape, ring) = (&params.ops, &params.shape, Ring::of(&params.ops));
    // SAFETY: the caller's contract.
    let watch = unsafe { Watch::armed(&Block, params.control, ops.rank(), grid.block) };
    // SAFETY: the caller's contract.
    let args = unsafe { H::unpack(&params.raw) };
    let blocks = if ring.world == 1 { 0 } else { shape.channels };
    let at = |peer: u32, channel| place(ops, grid, shape, peer, channel, u64::from(peer) * shape.elements);
    if grid.block >= blocks {
        // SAFETY: the caller's contract.
        let watch = unsafe { watch.looked() };
        return own_share::<O, H>(ops, &watch, shape, &at(ring.rank, 0), grid.block - blocks, &args);
    }
    let channel = Channel::of::<H>(ops, shape, grid.block);
    let mut part = Part::of::<H>(shape, grid.block);
    let mut lanes = Lanes::of(&channel);
    lanes.begin(&channel);
    // SAFETY: the caller's contract; positions were asked for behind what precedes the kernel.
    let watch = unsafe { watch.looked() };
    // SAFETY: the launch's table.
    let base = |step| unsafe { base(shape, ring.to(step)) };
    let first = base(1);
    lanes.await_go(&channel, &watch)?;
    for step in 1..ring.world {
        let (peer, to) = (ring.to(step), u64::from(ring.rank) * shape.elements);
        let base = if step == 1 { first } else { base(step) };
        // SAFETY: every peer said go, with this call's size and place.
        unsafe { store::<H>(part, shape, &at(peer, grid.block), base, to, &args) };
        part.next::<H>(shape);
    }
    Block.sync();
    watch.check_panic(ops)?;
    lanes.close(&channel, &watch, None)
}

/// [`super::sendrecv`] straight into the symmetric output of the peer. Grid: `channels` blocks.
///
/// # Safety
/// As for [`all_to_all_direct`].
#[inline(always)]
pub unsafe fn sendrecv_direct<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    let channel = Channel::of::<H>(ops, shape, grid.block);
    let part = Part::of::<H>(shape, grid.block);
    // SAFETY: the caller's contract.
    let (watch, args) =
        unsafe { (Watch::begin_all(&Block, params.control, ops.rank(), grid.block), H::unpack(&params.raw)) };
    let leads = Block.leads();
    let mut ends = channel.ends(shape.send_peer, shape.recv_peer);
    // SAFETY: the launch's table.
    let base = if ends.to == NOBODY { 0 } else { unsafe { base(shape, ends.to) } };
    if ends.from != NOBODY && leads {
        channel.say_go(&mut ends);
    }
    if ends.to != NOBODY {
        let fault = if leads { channel.await_go(&watch, &mut ends) } else { Fault::NONE };
        channel.settle(&watch, (ends.to, fault))?;
        let place = place(ops, grid, shape, ends.to, grid.block, 0);
        // SAFETY: the peer said go, with this call's size and place.
        unsafe { store::<H>(part, shape, &place, base, 0, &args) };
        Block.sync();
        watch.check_panic(ops)?;
    }
    channel.close(&watch, &ends)
}
