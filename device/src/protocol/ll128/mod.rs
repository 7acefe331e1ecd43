//! LL128: small chunks in 128-byte lines that carry their flags, where peers' memory can be stored to. No fence, no staging, no flag's own
//! flight.

mod by_tiles;
mod fold;
mod forward;
mod line;
mod load;
mod once;
mod poll;
mod relay;
pub(crate) mod row;
mod teams;
mod two;

pub use by_tiles::TILES;
pub use line::{BUFFER, BUFFERS, PACKS, ROW_PACKS};
pub use load::TILE_ROWS;
pub use relay::{Ll128TwoShot, most_packs};

use super::{Protocol, Share, Site, arguments, whole_call};
use crate::arch;
use crate::element::Element;
use crate::group::{Block, Group, Warp};
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Shape, Unpack, cut};
use crate::ops::{ChannelState, Direct};
use crate::schedule::{Schedule, has_own};
use crate::tile::{Team, WARP};
use crate::wait::{Ahead, Armed, FirstTurn, Flow, LateWatch, Stopped, Watch};
pub(crate) use line::{Line, Single, bundles};
pub(crate) use load::Load;
use once::{Fan, Peers};
use teams::Teams;

/// What channel number `part` carries of each chunk.
#[inline(always)]
fn carried<H: Hooks>(shape: &Shape, part: u32) -> Load {
    if H::TRANSPOSED && shape.tiles > 0 {
        return Load::of_tiles(shape.tiles as u32, part, shape.channels);
    }
    let Share { first, packs } = Share::of::<H>(shape.elements, shape.share, part);
    Load::of_packs(first, packs)
}

/// The protocol, as a type.
///
/// Grid of mutual schedules: `channels` blocks (none without peers), each of which exchanges its share with every peer, then `self_copy` blocks.
/// Grid of others: senders, then receivers, `channels` of each that a rank has. A share has at most [`PACKS`] packs, or [`TILES`] tiles.
#[derive(Debug)]
pub struct Ll128;

// SAFETY: rows are stored into buffers whose last reader is done (`line`), whole warps at a time.
unsafe impl<O: Direct> Protocol<O> for Ll128 {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        // SAFETY: the caller's contract.
        unsafe { if S::MUTUAL { mutual::<O, S, H>(grid, params) } else { credited::<O, S, H>(grid, params) } }
    }
}

/// Where every rank sends to whom it receives from: what arrives is the credit.
///
/// # Safety
/// As for [`Protocol::exchange`].
#[inline(always)]
unsafe fn mutual<O: Direct, S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
    let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
    let site = Site::of(grid, params);
    let (me, legs) = (site.me, schedule.sends(site.me));
    let channel = grid.block;
    // SAFETY: the caller's contract.
    let armed = unsafe { Armed::new(&Block, params.control, ops.rank(), grid.block) };
    // SAFETY: the caller's contract.
    let args = unsafe { arguments::<H>(&params.raw) };
    let blocks = if legs == 0 && !S::ONCE { 0 } else { shape.channels };
    if !S::ONCE && !S::FOLDS && channel >= blocks {
        let watch = armed.looked();
        return site.self_copy::<S, H>(schedule, &watch, channel - blocks, args.now(watch.behind()));
    }
    let state = ops.line_state(me.rank, channel);
    let ((mut watch, mut first), mut calls) = (armed.first_of(state), 0);
    // These have no registers for what is worked out early.
    let late = H::TRANSPOSED && H::Wire::SIZE == 1;
    if late {
        // SAFETY: `state` is live, and of this block's own channel.
        unsafe { begin((&mut watch, &mut first), &mut calls) };
    }
    let (load, call) = (carried::<H>(shape, channel), whole_call::<H>(shape));
    let teams = Teams::of::<H>(Team::all(&Block), legs, &load);
    let teams = if late { teams } else { teams.now() };
    if S::FOLDS && arch::of_two(me.world) {
        let (leg, own) = (schedule.to(me, 1), || site.own(schedule, channel));
        let places = [if S::ONCE { own() } else { site.at(leg, channel) }, own()];
        if load.in_turn::<H::Wire>(Block.lanes(), [&places[0], &places[1]]) {
            // SAFETY: `state` is live, and of this block's own channel.
            let (watch, calls) = unsafe { begin((&mut watch, &mut first), &mut calls) };
            let [out, line] = places.map(|place| Line {
                ops,
                watch,
                team: Team::all(&Block),
                place,
                load,
                channel,
                calls,
                call,
            });
            let to = Single { base: ops.peer_base(leg.peer), calls };
            let args = args.now(watch.behind());
            // SAFETY: free, as `line`'s module says; each block works its own LL128 channel.
            let whole = unsafe { line.send_and_fold::<H>((&out, &to), site.kept(schedule), me, args) };
            // SAFETY: `state` is this block's own.
            return unsafe { end(ops, watch, whole, state, calls + 1) };
        }
    }
    let [sends, receives] = teams.roles(&load, H::IN_PLACE && !S::APART);
    if S::ONCE {
        // SAFETY: `state` is live, and of this block's own channel.
        let (watch, calls) = unsafe { begin((&mut watch, &mut first), &mut calls) };
        let args = args.now(watch.behind());
        if let Some(team) = teams.once(sends) {
            let (place, kept) = (site.own(schedule, channel), site.kept(schedule));
            let line = Line { ops, watch, team, place, load, channel, calls, call };
            let to = Fan::<O, S, H> { peers: Peers::new(ops, schedule, me, channel, calls), kept, args };
            // SAFETY: free, as `line`'s module says; each block works its own LL128 channel.
            unsafe { line.send_to::<H, _>(args, &to) };
        }
    } else if let Some(team) = sends {
        teams.each_leg(legs, |leg| {
            // Not before this loop: what it works out once it works out while the kernel before this one on the stream still runs.
            // SAFETY: `state` is live, and of this block's own channel.
            let (watch, calls) = unsafe { begin((&mut watch, &mut first), &mut calls) };
            let place = site.at(schedule.to(me, leg), channel);
            let line = Line { ops, watch, team, place, load, channel, calls, call };
            // SAFETY: free, as `line`'s module says; each block works its own LL128 channel.
            unsafe { line.send::<H>(args.now(watch.behind())) };
        });
    }
    // SAFETY: `state` is live, and of this block's own channel.
    let (watch, calls) = unsafe { begin((&mut watch, &mut first), &mut calls) };
    let args = args.now(watch.behind());
    if const { H::IN_PLACE && !S::APART } {
        // What is taken is stored where others of the block may still read what they send. Nobody waits for a peer before this.
        Block.sync();
    }
    // Not before: a branch would wait for the abort word before the input is asked for. Lines of a poisoned transport harm nobody, since
    // `renew` clears them when all ranks are idle.
    if watch.poisoned() {
        return Err(Stopped);
    }
    let mut whole = true;
    if S::FOLDS {
        if let Some(team) = teams.once(receives) {
            let place = site.own(schedule, channel);
            let line = Line { ops, watch, team, place, load, channel, calls, call };
            // SAFETY: each block works its own LL128 channel.
            whole = unsafe { line.fold::<H>(site.kept(schedule), me, args) };
        }
    } else if let Some(team) = receives {
        teams.each_leg(legs, |leg| {
            let place = site.at(schedule.from(me, leg), channel);
            let line = Line { ops, watch, team, place, load, channel, calls, call };
            // SAFETY: each block works its own LL128 channel.
            whole = whole && unsafe { line.receive::<H>(args) };
        });
    }
    // SAFETY: `state` is this block's own.
    unsafe { end(ops, watch, whole, state, calls + 1) }
}

/// A block's watch, and the calls that its channel has carried before this one: read on the first turn.
///
/// # Safety
/// `first` is the live state of this block's own channel, which the previous kernel on it wrote last.
#[inline(always)]
unsafe fn begin<'w>(
    (watch, first): (&'w mut LateWatch, &mut FirstTurn<*mut ChannelState>),
    calls: &mut u64,
) -> (&'w Watch, u64) {
    let (watch, first) = watch.looked::<0, _>(first);
    if let Some(state) = first {
        // SAFETY: the caller's contract.
        *calls = unsafe { (&raw const (*state).sent).read_volatile() };
    }
    (watch, *calls)
}

/// What every chunk of a mutual schedule begins with, where the rest goes another way, which must wait until peers are ready: lines need not
/// wait. Self-copy block number `part` exchanges its share of the first `shape.first` packs of each chunk on the LL128 channel of that number,
/// while its first warp does `work`; a block of one warp does that in between.
///
/// # Safety
/// As for [`Protocol::exchange`]; called by all threads of a self-copy block; the share is one that the
/// channel's buffers hold; the schedule is mutual.
#[inline(always)]
pub(super) unsafe fn prefix<O: Direct, S: Schedule, H: Unpack>(
    (site, schedule, armed): (&Site<'_, O>, &S, Armed),
    part: u32,
    args: &Ahead<H::Args<'_>>,
    work: impl FnOnce(),
) -> Flow {
    let (ops, shape, me) = (site.ops, site.shape, site.me);
    let legs = schedule.sends(me);
    // There may be fewer channels than blocks if they have nothing to carry.
    let state = (shape.first > 0).then(|| ops.line_state(me.rank, part));
    let (begin, packs) = cut(shape.first, shape.own_share, part);
    let load = Load::of_packs(begin as usize, packs as u32);
    let call = whole_call::<H>(shape);
    let teams = Team::behind(&Block).map(|team| Teams::of::<H>(team, legs, &load).now());
    let watch = &armed.looked();
    let args = args.now(watch.behind());
    // SAFETY: live state, written last by the previous kernel on this channel.
    let calls = state.map_or(0, |state| unsafe { (&raw const (*state).sent).read_volatile() });
    let line = |place, team| Line { ops, watch, team, place, load, channel: part, calls, call };
    if let Some(teams) = teams {
        teams.each_leg(legs, |leg| {
            // SAFETY: free, as `line`'s module says; each self-copy block works its own LL128 channel.
            unsafe { line(site.at(schedule.to(me, leg), part), teams.team).send::<H>(args) };
        });
    }
    // As in `mutual`: not before. Each lane has looked for itself.
    let mut whole = !Warp.any(watch.poisoned());
    if Block.lane() < WARP && whole {
        work();
    }
    if let Some(teams) = teams {
        teams.each_leg(legs, |leg| {
            let place = site.at(schedule.from(me, leg), part);
            // SAFETY: each self-copy block works its own LL128 channel.
            whole = whole && unsafe { line(place, teams.team).receive::<H>(args) };
        });
    }
    leave(ops, watch, whole)?;
    if let Some(state) = state {
        // SAFETY: this block's own; all threads have read it before the sync above.
        unsafe { count(state, calls + 1) };
    }
    Ok(())
}

/// Where bytes may go one way: receivers say what they are done with.
///
/// # Safety
/// As for [`Protocol::exchange`].
#[inline(always)]
unsafe fn credited<O: Direct, S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
    let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
    // SAFETY: the caller's contract.
    let armed = unsafe { Armed::new(&Block, params.control, ops.rank(), grid.block) };
    // SAFETY: the caller's contract.
    let args = unsafe { arguments::<H>(&params.raw) };
    let site = Site::of(grid, params);
    let me = site.me;
    let [sends, receives] = [schedule.sends(me), schedule.receives(me)];
    let produces = if S::ONCE { has_own(schedule, me) } else { sends > 0 };
    let senders = if produces { shape.channels } else { 0 };
    if S::ONCE && grid.block < senders {
        // SAFETY: the caller's contract.
        return unsafe { once::send::<O, S, H>(&site, schedule, armed, &args) };
    }
    if const { S::OWN && !S::ONCE } {
        let ends = senders + if receives > 0 { shape.channels } else { 0 };
        if grid.block >= ends {
            let watch = armed.looked();
            return site.self_copy::<S, H>(schedule, &watch, grid.block - ends, args.now(watch.behind()));
        }
    }
    let is_sender = !S::ONCE && grid.block < senders;
    let (part, legs) = if is_sender { (grid.block, sends) } else { (grid.block - senders, receives) };
    let channel = ops.ll128_channels() + part;
    let (load, call, team) = (carried::<H>(shape, part), whole_call::<H>(shape), Team::all(&Block));
    let ((mut watch, mut first), mut number) = (armed.first_of(()), 1);
    while number < legs + 1 {
        let leg = if is_sender { schedule.to(me, number) } else { schedule.from(me, number) };
        let state = ops.line_state(leg.peer, channel);
        // SAFETY: live state of this end.
        let count = unsafe { if is_sender { &raw mut (*state).sent } else { &raw mut (*state).received } };
        let count = arch::late(count as u64) as *mut u64;
        let place = site.at(leg, part);
        let line = |watch, calls| Line { ops, watch, team, place, load, channel, calls, call };
        // SAFETY: the caller's contract; each block works its own end of its own channel, of those with credits; the count was written
        // last by the previous kernel on this channel.
        unsafe {
            let calls = if is_sender {
                let (watch, _) = watch.looked::<1, _>(&mut first);
                let calls = count.read_volatile();
                let line = line(watch, calls);
                let free = line.credit();
                if free {
                    line.send::<H>(args.now(watch.behind()));
                }
                leave(ops, watch, free)?;
                calls
            } else {
                let (watch, _) = watch.looked::<2, _>(&mut first);
                let calls = count.read_volatile();
                let line = line(watch, calls);
                // A sender's wait for credit sees it too.
                if watch.poisoned() {
                    return Err(Stopped);
                }
                let whole = line.receive::<H>(args.now(watch.behind()));
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
        if const { S::MOST_LEGS == 1 } {
            break;
        }
        number += 1;
    }
    Ok(())
}

/// As [`leave`]; then the channel has carried `calls`.
///
/// # Safety
/// `state` is the live state of this block's own channel.
#[inline(always)]
unsafe fn end<O: Direct>(ops: &O, watch: &Watch, whole: bool, state: *mut ChannelState, calls: u64) -> Flow {
    leave(ops, watch, whole)?;
    // SAFETY: the caller's contract; all threads have read it before the sync above.
    unsafe { count(state, calls) };
    Ok(())
}

/// The channel has carried `calls`.
///
/// # Safety
/// `state` is the live state of this block's own channel, which all threads have read.
#[inline(always)]
unsafe fn count(state: *mut ChannelState, calls: u64) {
    if Block.leads() {
        // SAFETY: the caller's contract.
        unsafe { (&raw mut (*state).sent).write_volatile(calls) };
    }
}

/// Syncs the block, and ends it if a lane found a fault or panicked.
#[inline(always)]
pub(crate) fn leave<O: Direct>(ops: &O, watch: &Watch, whole: bool) -> Flow {
    let stopped = Block.any(!whole);
    // First: the lanes that left may have done so because of a panic of this block, which the peers do not know of.
    watch.check_panic(ops)?;
    if stopped { Err(Stopped) } else { Ok(()) }
}
