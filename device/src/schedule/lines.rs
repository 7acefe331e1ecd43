//! In lines that carry their flags: small chunks, where peers' memory can be stored to. See [`crate::line`].

use super::span::{self, Team, WARP};
use super::{Grid, NOBODY, Params, Ring, Shape, Share, Unpack, cut, own_share, packs_of, place};
use crate::arch;
use crate::channel::Call;
use crate::ctx::Ctx;
use crate::element::Element;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::line::{self, Line, Load};
use crate::ops::Direct;
use crate::wait::{Flow, Stopped, Watch};

/// From so many packs a thread on, halves of a block send and receive at the same time.
const HALVES_FROM: u32 = 8;

/// How the threads of a block share its peers.
#[derive(Clone, Copy)]
struct Teams {
    count: u32,
    /// This thread's.
    index: u32,
    team: Team,
}

impl Teams {
    /// A team gets a warp for every row, or where that is more threads than there are and hooks are taken four at a time, for every four;
    /// or for every tile. There are as many teams as there are threads for, up to one for each peer.
    #[inline(always)]
    fn of<H: Hooks>(all: Team, peers: u32, load: &Load) -> Self {
        let Team { lane, lanes } = all;
        let warps = |rows_each: u32| 32 * load.rows().div_ceil(rows_each).max(1);
        let mut width = warps(if load.tiles > 0 { line::TILE_ROWS } else { 1 });
        if load.tiles == 0 && peers * width > lanes && <span::FourOrOne<H> as span::Unroll>::PACKS == 4 {
            width = warps(4);
        }
        let count = (lanes / width).min(peers);
        if count <= 1 {
            return Teams { count: 1, index: 0, team: all };
        }
        let team = Team { lane: lane % width, lanes: width };
        Teams { count, index: lane / width, team }
    }

    /// The same, worked out by now: before memory may be looked at.
    #[inline(always)]
    fn now(self) -> Self {
        let now = |n: u32| arch::late(u64::from(n)) as u32;
        let Team { lane, lanes } = self.team;
        Teams {
            count: now(self.count),
            index: now(self.index),
            team: Team { lane: now(lane), lanes: now(lanes) },
        }
    }

    /// Who of this team sends, and who receives: all do both in turn, but where there is much to do (and tiles do not keep every warp busy
    /// for long), one half sends while the other takes what arrives.
    #[inline(always)]
    fn roles(&self, load: &Load) -> [Option<Team>; 2] {
        let Team { lane, lanes } = self.team;
        let half = lanes / (2 * WARP) * WARP;
        if half == 0
            || self.count > 1
            || load.tiles > 0
            || load.rows() * line::ROW_PACKS <= HALVES_FROM * lanes
        {
            return [Some(self.team); 2];
        }
        if lane < half {
            [Some(Team { lane, lanes: half }), None]
        } else {
            [None, Some(Team { lane: lane - half, lanes: lanes - half })]
        }
    }

    /// Calls `f` for each step of this thread's team; threads beyond the last team have none.
    #[inline(always)]
    fn each_step(&self, world: u32, mut f: impl FnMut(u32)) {
        let mut step = if self.index < self.count { 1 + self.index } else { world };
        while step < world {
            f(step);
            step += self.count;
        }
    }
}

/// How all channels name the call: by the chunk's size, not by the share's, and by how it is cut.
#[inline(always)]
fn call<H: Hooks>(shape: &Shape) -> Call {
    Call { kernel: shape.kernel, payload: 16 * packs_of::<H>(shape.elements), cut: shape.cut }
}

/// What channel number `part` carries of each chunk.
#[inline(always)]
fn carried<H: Hooks>(shape: &Shape, part: u32) -> Load {
    if H::TRANSPOSED && shape.tiles > 0 {
        return Load::of_tiles(shape.tiles as u32, part, shape.channels);
    }
    let Share { first, packs } = Share::of::<H>(shape.elements, shape.share, part);
    Load::of_packs(first, packs)
}

/// [`super::all_to_all`] for small chunks: no fence, no staging, no flag of its own. Grid: `channels` blocks (none in a world of one
/// rank), each of which exchanges its share with every peer, then `diagonal`; a share has at most [`crate::line::PACKS`] packs, or
/// [`crate::line::TILES`] tiles.
///
/// # Safety
/// As for [`super::sendrecv`].
#[inline(always)]
pub unsafe fn all_to_all_lines<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape, ring) = (&params.ops, &params.shape, Ring::of(&params.ops));
    let channel = grid.block;
    // SAFETY: the caller's contract.
    let armed = unsafe { Watch::armed(&Block, params.control, ops.rank(), grid.block) };
    // SAFETY: the caller's contract.
    let args = unsafe { H::unpack(&params.raw) };
    let at = |peer: u32| place(ops, grid, shape, peer, channel, u64::from(peer) * shape.elements);
    let blocks = if ring.world == 1 { 0 } else { shape.channels };
    if channel >= blocks {
        // SAFETY: the caller's contract.
        let watch = unsafe { armed.looked() };
        return own_share::<O, H>(ops, &watch, shape, &at(ring.rank), channel - blocks, &args);
    }
    let state = ops.line_state(ring.rank, channel);
    // SAFETY: the caller's contract; live state, written last by the previous kernel on this channel.
    let begin = || unsafe { (armed.looked(), (&raw const (*state).sent).read_volatile()) };
    let (mut watch, mut calls, mut begun) = (armed, 0, false);
    // These have no registers for what is worked out early.
    let late = H::TRANSPOSED && H::Wire::SIZE == 1;
    if late {
        ((watch, calls), begun) = (begin(), true);
    }
    let (load, call) = (carried::<H>(shape, channel), call::<H>(shape));
    let teams = Teams::of::<H>(Team::all(&Block), ring.world - 1, &load);
    let teams = if late { teams } else { teams.now() };
    let [sends, receives] = teams.roles(&load);
    if let Some(team) = sends {
        teams.each_step(ring.world, |step| {
            // Not before this loop: what it works out once it works out while the kernel before this one on the stream still runs.
            if !begun {
                ((watch, calls), begun) = (begin(), true);
            }
            let place = at(ring.to(step));
            let line = Line { ops, watch: &watch, team, place, load, channel, calls, call };
            // SAFETY: free, as `line`'s module says; each block works its own line channel.
            unsafe { line.send::<H>(&args) };
        });
    }
    if !begun {
        (watch, calls) = begin();
    }
    // Not before: a branch would wait for the abort word before the input is asked for. Lines of a poisoned transport harm nobody, since
    // `renew` clears them when all ranks are idle.
    if watch.poisoned() {
        return Err(Stopped);
    }
    let mut whole = true;
    if let Some(team) = receives {
        teams.each_step(ring.world, |step| {
            let place = at(ring.from(step));
            let line = Line { ops, watch: &watch, team, place, load, channel, calls, call };
            // SAFETY: each block works its own line channel.
            whole = whole && unsafe { line.receive::<H>(&args) };
        });
    }
    leave(ops, &watch, whole)?;
    if Block.leads() {
        // SAFETY: live state, this block's own; all threads have read it before the sync above.
        unsafe { (&raw mut (*state).sent).write_volatile(calls + 1) };
    }
    Ok(())
}

/// What every chunk of an all-to-all begins with, where the rest goes another way, which must wait for *go*: lines need none. Diagonal block
/// number `part` exchanges its share of the first `shape.first` packs of each chunk on the line channel of that number, while its first
/// warp does `work`; a block of one warp does that in between.
///
/// # Safety
/// As for [`super::sendrecv`]; called by all threads of a diagonal block, whose watch has not looked yet; the share is one that the
/// channel's buffers hold.
#[inline(always)]
pub(super) unsafe fn first<O: Direct, H: Unpack>(
    (ops, armed, shape): (&O, Watch, &Shape),
    part: u32,
    at: impl Fn(u32) -> Ctx,
    args: &H::Args<'_>,
    work: impl FnOnce(),
) -> Flow {
    let ring = Ring::of(ops);
    // There may be fewer channels than blocks if they have nothing to carry.
    let state = (shape.first > 0).then(|| ops.line_state(ring.rank, part));
    let (begin, packs) = cut(shape.first, shape.own_share, part);
    let load = Load::of_packs(begin as usize, packs as u32);
    let call = call::<H>(shape);
    let teams = Team::behind(&Block).map(|team| Teams::of::<H>(team, ring.world - 1, &load).now());
    // SAFETY: the caller's contract.
    let watch = &unsafe { armed.looked() };
    // SAFETY: live state, written last by the previous kernel on this channel.
    let calls = state.map_or(0, |state| unsafe { (&raw const (*state).sent).read_volatile() });
    let line = |place, team| Line { ops, watch, team, place, load, channel: part, calls, call };
    if let Some(teams) = teams {
        teams.each_step(ring.world, |step| {
            // SAFETY: free, as `line`'s module says; each diagonal block works its own line channel.
            unsafe { line(at(ring.to(step)), teams.team).send::<H>(args) };
        });
    }
    // As in `all_to_all_lines`: not before.
    let mut whole = !watch.poisoned();
    if Block.lane() < WARP && whole {
        work();
    }
    if let Some(teams) = teams {
        teams.each_step(ring.world, |step| {
            // SAFETY: each diagonal block works its own line channel.
            whole = whole && unsafe { line(at(ring.from(step)), teams.team).receive::<H>(args) };
        });
    }
    leave(ops, watch, whole)?;
    if let (Some(state), true) = (state, Block.leads()) {
        // SAFETY: live state, this block's own; all threads have read it before the sync above.
        unsafe { (&raw mut (*state).sent).write_volatile(calls + 1) };
    }
    Ok(())
}

/// [`super::sendrecv`] for small chunks. Grid as there.
///
/// # Safety
/// As for [`super::sendrecv`].
#[inline(always)]
pub unsafe fn sendrecv_lines<O: Direct, H: Unpack>(grid: Grid, params: &Params<O, H::Raw>) -> Flow {
    let (ops, shape) = (&params.ops, &params.shape);
    // SAFETY: the caller's contract.
    let armed = unsafe { Watch::armed(&Block, params.control, ops.rank(), grid.block) };
    // SAFETY: the caller's contract.
    let args = unsafe { H::unpack(&params.raw) };
    let senders = if shape.send_peer == NOBODY { 0 } else { shape.channels };
    let sends = grid.block < senders;
    let (part, peer) =
        if sends { (grid.block, shape.send_peer) } else { (grid.block - senders, shape.recv_peer) };
    let channel = ops.line_channels() + part;
    let state = ops.line_state(peer, channel);
    // SAFETY: live state of this end.
    let count = unsafe { if sends { &raw mut (*state).sent } else { &raw mut (*state).received } };
    let count = arch::late(count as u64) as *mut u64;
    let place = place(ops, grid, shape, peer, part, 0);
    let (load, call) = (carried::<H>(shape, part), call::<H>(shape));
    let team = Team::all(&Block);
    let line = |watch, calls| Line { ops, watch, team, place, load, channel, calls, call };
    // SAFETY: the caller's contract; each block works its own end of its own channel, of those for `sendrecv`; the count was written last by
    // the previous kernel on this channel.
    unsafe {
        let calls = if sends {
            let (watch, calls) = (&armed.looked_in::<1>(), count.read_volatile());
            let line = line(watch, calls);
            let free = line.credit();
            if free {
                line.send::<H>(&args);
            }
            leave(ops, watch, free)?;
            calls
        } else {
            let (watch, calls) = (&armed.looked_in::<2>(), count.read_volatile());
            let line = line(watch, calls);
            // A sender's wait for credit sees it too.
            if watch.poisoned() {
                return Err(Stopped);
            }
            let whole = line.receive::<H>(&args);
            leave(ops, watch, whole)?;
            if Block.leads() {
                line.give_credit();
            }
            calls
        };
        if Block.leads() {
            count.write_volatile(calls + 1);
        }
    }
    Ok(())
}

/// Syncs the block, and ends it if a lane found a fault or panicked.
#[inline(always)]
fn leave<O: Direct>(ops: &O, watch: &Watch, whole: bool) -> Flow {
    let stopped = Block.any(!whole);
    // First: the lanes that left may have done so because of a panic of this block, which the peers do not know of.
    watch.check_panic(ops)?;
    if stopped { Err(Stopped) } else { Ok(()) }
}
