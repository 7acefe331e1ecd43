//! What a block does with several peers on its channel: a chunk of its stream for all of them, or of one after the other.
//!
//! As with one peer, the leader hands over what was stored in the turn before, and waits for room or bytes of the next one, while the other
//! warps are at the present one; one barrier a turn keeps them together.
//!
//! A rank waits for the slowest of its peers, so no end may take all of one peer's stream first: another could not go on meanwhile, and ranks
//! would wait in a circle. With rings of four turns there is none. A sender that waits for room in turn `k` has handed over turn `k - 1` to
//! everybody, and needs turn `k - 3` freed; a receiver that waits in turn `j` has freed turn `j - 1` of everybody, and needs turn `j + 1`. Whoever is
//! behind all others can therefore go on.

mod across;
mod rounds;

pub(super) use across::{Cross, cross, meet};
pub(super) use rounds::Rounds;

use super::channel::{Call, HEADER, Receiving, Ring, Sending, payload_packs, stream_bytes};
use super::late;
use crate::arch;
use crate::group::{Block, Group};
use crate::ops::Ops;
use crate::pack::unroll;
use crate::protocol::{Share, Site};
use crate::schedule::{Leg, Legs};
use crate::tile::Team;
use crate::wait::{Flow, Watch};

/// The stream of one call, with so many peers.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    total: u64,
    chunk: u64,
    legs: u32,
    /// A turn is of one leg; else of all.
    one: bool,
    /// Packs of the stream.
    pub packs: u32,
}

/// Bytes `from..to` of the streams of one leg, or of all.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    from: u64,
    to: u64,
    /// The first leg.
    pub leg: u32,
    /// The one behind the last.
    behind: u32,
}

impl Turn {
    /// Where its packs begin in each stream.
    #[inline(always)]
    pub fn payload(&self) -> u64 {
        self.from.max(HEADER)
    }
}

impl Turns {
    #[inline(always)]
    pub fn of<O: Ops>(site: &Site<'_, O>, share: Share, legs: u32, one: bool) -> Self {
        let call = share.call(site.shape);
        Turns { total: stream_bytes(call.payload), chunk: site.shape.chunk, legs, one, packs: share.packs }
    }

    #[inline(always)]
    fn at(&self, from: u64, leg: u32) -> Turn {
        let to = self.total.min(from.max(HEADER) + self.chunk);
        Turn { from, to, leg, behind: if self.one { leg + 1 } else { self.legs + 1 } }
    }

    #[inline(always)]
    fn first(&self) -> Turn {
        self.at(0, 1)
    }

    #[inline(always)]
    fn after(&self, turn: Turn) -> Turn {
        if turn.behind < self.legs + 1 { self.at(turn.from, turn.behind) } else { self.at(turn.to, 1) }
    }

    /// Whether there is no such turn.
    #[inline(always)]
    fn is_over(&self, turn: Turn) -> bool {
        turn.from == self.total
    }

    /// The same with a turn of one leg after the other.
    #[inline(always)]
    pub fn one_by_one(self) -> Self {
        Turns { one: true, ..self }
    }

    /// Bytes of the stream behind the header.
    #[inline(always)]
    pub fn payload(&self) -> u64 {
        self.total - HEADER
    }

    /// The same, in which there are `packs` and nothing behind them.
    #[inline(always)]
    pub fn of_packs(self, packs: u32) -> Self {
        Turns { packs, ..self }
    }

    /// The same with turns of all legs.
    #[inline(always)]
    pub fn all(self) -> Self {
        Turns { one: false, ..self }
    }

    /// Those of a stream whose turns have `times` as much in them.
    #[inline(always)]
    pub fn times(self, times: u32) -> Self {
        let payload = HEADER + 16 * u64::from(self.packs) * u64::from(times);
        Turns { total: payload, chunk: self.chunk * u64::from(times), packs: self.packs * times, ..self }
    }

    /// Packs of a turn: the first of the share, and how many; and where the first one's bytes are.
    #[inline(always)]
    pub fn packs(&self, turn: Turn) -> (usize, u32, u64) {
        let (first, count) = payload_packs(turn.from, turn.to, self.packs);
        (first, count, HEADER + 16 * first as u64)
    }
}

/// One end of a channel to each peer. Traits and not closures, since only methods can be made to be inlined however long they are.
#[derive(Clone, Copy)]
pub(super) struct Ends<'k, O, S> {
    pub site: &'k Site<'k, O>,
    pub schedule: &'k S,
    pub watch: &'k Watch,
    pub channel: u32,
    pub call: Call,
    /// Legs that are sent before the first one, if turns begin with another: see [`Ends::turned`].
    pub begins: Option<u32>,
}

impl<'k, O: Ops, S: Legs> Ends<'k, O, S> {
    /// The same, which send one leg after the other and begin with another one on each channel: at any time blocks share the links to all peers evenly. (Those
    /// that receive begin with the first. On other legs they took longer.)
    #[inline(always)]
    pub fn turned(self) -> Self {
        Ends { begins: Some(self.channel % self.schedule.sends(self.site.me).max(1)), ..self }
    }

    /// Leg number `leg` of a turn, of those that this rank sends.
    #[inline(always)]
    pub fn sent(&self, leg: u32) -> Leg {
        let (schedule, me) = (self.schedule, self.site.me);
        let leg = match self.begins.map(|before| before + leg) {
            None => leg,
            Some(leg) if leg > schedule.sends(me) => leg - schedule.sends(me),
            Some(leg) => leg,
        };
        schedule.to(me, leg)
    }

    /// The sending end of a leg. Asked for again wherever it is needed, since there may be many.
    ///
    /// # Safety
    /// As for [`Sending::again`].
    #[inline(always)]
    pub unsafe fn to(&self, leg: u32) -> Sending<'k, O> {
        // SAFETY: the caller's contract.
        unsafe { Sending::again(self.site.ops, self.watch, self.sent(leg).peer, self.channel, self.call) }
    }

    /// The receiving end of the channel from `peer`, in the same way.
    ///
    /// # Safety
    /// As for [`Receiving::again`].
    #[inline(always)]
    pub unsafe fn from(&self, peer: u32) -> Receiving<'k, O> {
        // SAFETY: the caller's contract.
        unsafe { Receiving::again(self.site.ops, self.watch, peer, self.channel, self.call) }
    }
}

impl<'k, O: Ops, S: Legs> Ends<'k, O, S> {
    /// The leader's wait for room at every peer of a turn, for whom it begins the stream with the `first`: as [`each`].
    ///
    /// # Safety
    /// As for [`Ends::to`]; one thread of the block.
    #[inline(always)]
    unsafe fn room(&self, turn: Turn, first: bool) -> (u32, u32) {
        each(turn, |leg| {
            // SAFETY: the caller's contract.
            let out = unsafe { self.to(leg) };
            let found = out.await_room(turn.to);
            if first && found == 0 {
                out.open();
            }
            found
        })
    }

    /// Every peer's ring, for a turn whose packs begin at `payload` of each stream.
    ///
    /// # Safety
    /// As for [`Ends::to`]. The turn's bytes are reserved, and not handed over while this is used.
    #[inline(always)]
    pub unsafe fn everybody(&'k self, payload: u64) -> Everybody<'k, O, S> {
        let sends = self.schedule.sends(self.site.me);
        let mut near = [Ring::NONE; NEAR];
        unroll!(NEAR = 3, |K| if (K as u32) < sends {
            // SAFETY: the caller's contract.
            near[K] = unsafe { self.to(K as u32 + 1) }.ring(payload);
        });
        Everybody { ends: self, near, payload, sends }
    }
}

/// Peers whose rings' places stay in registers through a turn: all of them where no more than four ranks take part.
const NEAR: usize = 3;

/// The rings of all peers in a turn.
pub(super) struct Everybody<'k, O, S> {
    ends: &'k Ends<'k, O, S>,
    near: [Ring; NEAR],
    payload: u64,
    sends: u32,
}

impl<O: Ops, S: Legs> Everybody<'_, O, S> {
    /// Stores pack `s` of the turn for every peer.
    ///
    /// # Safety
    /// No other thread stores it.
    #[inline(always)]
    pub unsafe fn store(&self, s: u32, words: [u32; 4]) {
        let Everybody { ends, near, payload, sends } = self;
        unroll!(NEAR = 3, |K| if (K as u32) < *sends {
            // SAFETY: the ring's place of the pack, reserved for this block.
            unsafe { arch::store_16(near[K].pack(s), words) };
        });
        let mut leg = NEAR as u32 + 1;
        while leg < sends + 1 {
            // SAFETY: as above.
            unsafe { arch::store_16(ends.to(leg).at(payload + 16 * u64::from(s)), words) };
            leg += 1;
        }
    }
}

/// What the threads of `team` do with the packs of a turn.
pub(super) trait Work {
    /// [`Hooks::COLS`](crate::hooks::Hooks::COLS).
    const COLS: usize;
    /// Produces and stores them, or loads and consumes them.
    fn turn(&self, turn: Turn, team: Team);
}

/// The leader's wait for what turn `turn` needs of each of its peers: 0 or a kind of fault, and the leg of it.
#[inline(always)]
fn each(turn: Turn, wait: impl Fn(u32) -> u32) -> (u32, u32) {
    let mut leg = turn.leg;
    while leg < turn.behind {
        let found = wait(leg);
        if found != 0 {
            return (found, leg);
        }
        leg += 1;
    }
    // Of a thread that found nothing any leg.
    (0, turn.leg)
}

/// What the threads of `team` do with the packs of a turn of two streams.
pub(super) trait Pass {
    /// [`Hooks::COLS`](crate::hooks::Hooks::COLS).
    const COLS: usize = 0;
    /// Whether turns of either are of one leg, not of all.
    const BY_LEG: [bool; 2] = [false; 2];
    /// Folds those of turn `from`, and stores them as those of turn `to`; where both arrive, takes what they come to.
    fn turn(&self, from: Turn, to: Turn, team: Team);
}

/// Sends what `work` stores, turn by turn.
///
/// # Safety
/// This block alone works the sending ends of the channel; all its threads call; `work` stores the packs of a turn into what its peers have freed.
#[inline(always)]
pub(super) unsafe fn send<O: Ops, S: Legs, W: Work>(turns: Turns, ends: &Ends<'_, O, S>, work: &W) -> Flow {
    // SAFETY: the caller's contract; the position moves with `finish` alone.
    let to = |leg| unsafe { ends.to(leg) };
    // SAFETY: as above.
    let room = |turn, first| unsafe { ends.room(turn, first) };
    let settle = |(found, leg): (u32, u32), turn: Turn| match turns.legs {
        0 => {
            Block.sync();
            Ok(())
        }
        _ => to(leg).settle(&Block, found, turn.to),
    };
    let hand_over = |turn: Turn| {
        let mut leg = turn.leg;
        while leg < turn.behind {
            let out = to(leg);
            out.hand_over(&Block, turn.from, turn.to);
            if turn.to == turns.total {
                out.finish(&Block);
            }
            leg += 1;
        }
    };
    let mut now = turns.first();
    let found = if Block.leads() { room(now, true) } else { (0, now.leg) };
    settle(found, now)?;
    loop {
        let next = turns.after(now);
        let over = turns.is_over(next);
        let looks = !over && Block.leads();
        let ahead = if !late(W::COLS) && looks { room(next, next.from == 0) } else { (0, next.leg) };
        if let Some(team) = Team::at_work(&Block, W::COLS) {
            work.turn(now, team);
        }
        let found = if late(W::COLS) && looks { room(next, next.from == 0) } else { ahead };
        if over {
            Block.sync();
        } else {
            settle(found, next)?;
        }
        ends.watch.check_panic(ends.site.ops)?;
        hand_over(now);
        if over {
            return Ok(());
        }
        now = next;
    }
}

/// Has `work` take what arrives, turn by turn.
///
/// # Safety
/// This block alone works the receiving ends of the channel; all its threads call; `work` reads the packs of a turn alone, and keeps none that is not
/// loaded when it returns.
#[inline(always)]
pub(super) unsafe fn receive<O: Ops, S: Legs, W: Work>(
    turns: Turns,
    ends: &Ends<'_, O, S>,
    work: &W,
) -> Flow {
    // SAFETY: the caller's contract; the position moves with `finish` alone.
    let from = |leg| unsafe { ends.from(ends.schedule.from(ends.site.me, leg).peer) };
    let give_back = |turn: Turn| {
        let mut leg = turn.leg;
        while leg < turn.behind {
            let input = from(leg);
            input.give_back(&Block, turn.to);
            if turn.to == turns.total {
                input.finish(&Block);
            }
            leg += 1;
        }
    };
    let (mut now, mut awaited) = (turns.first(), false);
    loop {
        if !awaited {
            let mut leg = now.leg;
            while leg < now.behind {
                from(leg).await_bytes(&Block, now.from, now.to)?;
                leg += 1;
            }
        }
        let next = turns.after(now);
        let over = turns.is_over(next);
        // A stream's first bytes are looked at before they are taken.
        awaited = !over && next.from > 0 && turns.legs > 0;
        let wait = || each(next, |leg| from(leg).await_more(next.to));
        let looks = awaited && Block.leads();
        let ahead = if !late(W::COLS) && looks { wait() } else { (0, next.leg) };
        if let Some(team) = Team::at_work(&Block, W::COLS) {
            work.turn(now, team);
        }
        let (found, leg) = if late(W::COLS) && looks { wait() } else { ahead };
        if awaited {
            from(leg).settle(&Block, found, next.to)?;
        } else {
            Block.sync();
        }
        ends.watch.check_panic(ends.site.ops)?;
        give_back(now);
        if over {
            return Ok(());
        }
        now = next;
    }
}

/// Has `work` take what arrives at the ends `from`, and sends what it stores by the ends `to`, turn by turn. There are peers at both, and as many turns, of one
/// leg or of all.
///
/// # Safety
/// As for [`receive`] of the one, and [`send`] of the others.
#[inline(always)]
pub(super) unsafe fn relay<O: Ops, F: Legs, S: Legs, W: Pass>(
    turns: [Turns; 2],
    (from, to): (&Ends<'_, O, F>, &Ends<'_, O, S>),
    work: &W,
) -> Flow {
    // SAFETY: the caller's contract; the positions move with `finish` alone.
    let input = |leg| unsafe { from.from(from.schedule.from(from.site.me, leg).peer) };
    // SAFETY: as above.
    let out = |leg| unsafe { to.to(leg) };
    let bytes = |turn: Turn| each(turn, |leg| input(leg).await_more(turn.to));
    // SAFETY: as above.
    let room = |turn, first| unsafe { to.room(turn, first) };
    let (mut arrived, mut passed) = (turns[0].first(), turns[1].first());
    let mut leg = arrived.leg;
    while leg < arrived.behind {
        input(leg).await_bytes(&Block, arrived.from, arrived.to)?;
        leg += 1;
    }
    let found = if Block.leads() { room(passed, true) } else { (0, passed.leg) };
    out(found.1).settle(&Block, found.0, passed.to)?;
    loop {
        let (next, then) = (turns[0].after(arrived), turns[1].after(passed));
        let over = turns[0].is_over(next);
        let none = [(0, next.leg), (0, then.leg)];
        // Whether a turn is the last of its legs.
        let ends =
            |side: usize, turn: Turn| if W::BY_LEG[side] { turn.to == turns[side].total } else { over };
        let wait = || match over || !Block.leads() {
            true => none,
            false if const { W::BY_LEG[0] } && next.from == 0 => [none[0], room(then, false)],
            false => [bytes(next), room(then, const { W::BY_LEG[1] } && then.from == 0)],
        };
        let ahead = if late(W::COLS) { none } else { wait() };
        if let Some(team) = Team::at_work(&Block, W::COLS) {
            work.turn(arrived, passed, team);
        }
        let found = if late(W::COLS) { wait() } else { ahead };
        if Block.any(found[0].0 | found[1].0 != 0) {
            input(found[0].1).settle(&Block, found[0].0, next.to)?;
            out(found[1].1).settle(&Block, found[1].0, then.to)?;
        }
        from.watch.check_panic(from.site.ops)?;
        // There is one: with what was stored before it, its flag is behind a fence.
        let mut leg = passed.leg;
        loop {
            let out = out(leg);
            out.hand_over(&Block, passed.from, passed.to);
            if ends(1, passed) {
                out.finish(&Block);
            }
            leg += 1;
            if leg >= passed.behind {
                break;
            }
        }
        let mut leg = arrived.leg;
        while leg < arrived.behind {
            let input = input(leg);
            input.give_back(&Block, arrived.to);
            if ends(0, arrived) {
                input.finish(&Block);
            }
            leg += 1;
        }
        if over {
            return Ok(());
        }
        // A stream's first bytes are looked at before they are taken.
        if const { W::BY_LEG[0] } && next.from == 0 {
            input(next.leg).await_bytes(&Block, next.from, next.to)?;
        }
        (arrived, passed) = (next, then);
    }
}
