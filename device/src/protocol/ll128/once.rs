//! What is produced once for every peer.

use super::line::{Line, Outlet};
use super::{carried, leave};
use crate::ctx::Ctx;
use crate::element::Element;
use crate::group::{Block, Group, Warp};
use crate::hooks::Hooks;
use crate::launch::Unpack;
use crate::ops::Direct;
use crate::pack::Pack;
use crate::protocol::{Site, whole_call};
use crate::schedule::{Member, Schedule};
use crate::tile::{Kept, Team};
use crate::wait::{Ahead, Armed, Flow};

/// Every peer that a rank sends to.
pub(super) struct Peers<'k, O, S> {
    ops: &'k O,
    schedule: &'k S,
    me: Member,
    channel: u32,
    calls: u64,
    /// Where the regions of the first peers are: asked for before packs are, so that the waits are one.
    near: [u64; 3],
}

impl<'k, O: Direct, S: Schedule> Peers<'k, O, S> {
    /// `calls`: those before this one; of schedules that are not mutual each peer has a count of its own.
    #[inline(always)]
    pub fn new(ops: &'k O, schedule: &'k S, me: Member, channel: u32, calls: u64) -> Self {
        let sends = schedule.sends(me);
        let base = |leg| if leg > sends { 0 } else { ops.peer_base(schedule.to(me, leg).peer) };
        Peers { ops, schedule, me, channel, calls, near: [base(1), base(2), base(3)] }
    }
}

impl<O: Direct, S: Schedule, W: Element> Outlet<W> for Peers<'_, O, S> {
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(u64, u64)) {
        let (ops, sends, mut leg) = (self.ops, self.schedule.sends(self.me), 1);
        while leg < sends + 1 {
            let peer = self.schedule.to(self.me, leg).peer;
            let calls = if S::MUTUAL {
                self.calls
            } else {
                // SAFETY: live state of this end; written when all threads of the block are done.
                unsafe { (&raw const (*ops.line_state(peer, self.channel)).sent).read() }
            };
            let base = match leg {
                1 => self.near[0],
                2 => self.near[1],
                3 => self.near[2],
                _ => ops.peer_base(peer),
            };
            f(base, calls);
            leg += 1;
        }
    }
}

/// Those peers, and the rank itself.
pub(super) struct Fan<'k, 'a, O, S, H: Hooks> {
    pub peers: Peers<'k, O, S>,
    pub kept: Kept,
    pub args: &'k H::Args<'a>,
}

impl<O: Direct, S: Schedule, H: Hooks> Outlet<H::Wire> for Fan<'_, '_, O, S, H> {
    // What is folded is kept by those who receive.
    const KEEPS: bool = !S::FOLDS;

    #[inline(always)]
    fn each(&self, f: impl FnMut(u64, u64)) {
        <Peers<'_, O, S> as Outlet<H::Wire>>::each(&self.peers, f);
    }

    #[inline(always)]
    fn keep(&self, ctx: Ctx, pack: Pack<H::Wire>) {
        H::consume(&self.kept.at::<H>(ctx), self.args, pack);
    }
}

/// The sending block of a schedule with credits: of all peers first, then the rows.
///
/// # Safety
/// As for [`Protocol::exchange`](crate::protocol::Protocol::exchange); the schedule is [`Schedule::ONCE`], and this rank has a self copy.
#[inline(always)]
pub(super) unsafe fn send<O: Direct, S: Schedule, H: Unpack>(
    site: &Site<'_, O>,
    schedule: &S,
    armed: Armed,
    args: &Ahead<H::Args<'_>>,
) -> Flow {
    let (ops, shape, me, part) = (site.ops, site.shape, site.me, site.grid.block);
    let channel = ops.ll128_channels() + part;
    let (load, call, team) = (carried::<H>(shape, part), whole_call::<H>(shape), Team::all(&Block));
    let (place, sends) = (site.own(schedule, part), schedule.sends(me));
    let watch = &armed.looked();
    let args = args.now(watch.behind());
    let peers = Peers::new(ops, schedule, me, channel, 0);
    // All lanes of a warp together, as `credit` asks.
    let mut free = !Warp.any(watch.poisoned());
    // SAFETY: live state of this end.
    let count = |leg| unsafe { &raw mut (*ops.line_state(schedule.to(me, leg).peer, channel)).sent };
    let mut leg = 1;
    while leg < sends + 1 {
        let place = site.at(schedule.to(me, leg), part);
        // SAFETY: written last by the previous kernel on this channel.
        let calls = unsafe { count(leg).read_volatile() };
        let line = Line { ops, watch, team, place, load, channel, calls, call };
        // SAFETY: a channel of those with credits.
        free = unsafe { line.credit() } && free;
        leg += 1;
    }
    if free {
        let line = Line { ops, watch, team, place, load, channel, calls: 0, call };
        let kept = site.kept(schedule);
        let to = Fan::<O, S, H> { peers, kept, args };
        // SAFETY: every peer is done with the call before the last; each block works its own end of its own channel.
        unsafe { line.send_to::<H, _>(args, &to) };
    }
    leave(ops, watch, free)?;
    let mut leg = 1;
    while Block.leads() && leg < sends + 1 {
        // SAFETY: live state, this block's own; all threads have read it before the sync above.
        unsafe { count(leg).write_volatile(count(leg).read_volatile() + 1) };
        leg += 1;
    }
    Ok(())
}
