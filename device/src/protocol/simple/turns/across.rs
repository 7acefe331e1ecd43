//! What arrives in a domain, and what arrives from other domains.
//!
//! Three steps are one loop ([`cross`]): what arrives is folded and sent across domains, and what arrives from there is joined with it and passed on. Where what arrives from both
//! is joined by one rank for all, there is no exchange ([`meet`]).
//!
//! A block of three steps is [`AHEAD`] turns further with the first fold than with the second, so that so many turns are under way between domains while it waits for none of them.

use super::{Ends, Pass, Turn, Turns};
use crate::arch;
use crate::group::{Block, Group};
use crate::ops::Ops;
use crate::schedule::Legs;
use crate::tile::Team;
use crate::wait::Flow;

/// Turns between the two folds. A ring holds three turns and a header: who waits for room across domains in turn `k` needs turn `k - 3` freed there, by a block that has
/// handed over turn `k - 1`. With one turn more each of them would wait for the other.
const AHEAD: u32 = 2;

/// Does something for each leg of a turn; a fault leaves the function from within.
macro_rules! each_leg {
    ($turn:expr, $leg:ident => $act:expr) => {
        let mut $leg = $turn.leg;
        while $leg < $turn.behind {
            $act;
            $leg += 1;
        }
    };
}

/// The same for turns that have one: with what was stored before it, the flag of the first leg is behind a fence, and so are those that follow.
macro_rules! each_leg_of_some {
    ($turn:expr, $leg:ident => $act:expr) => {
        let mut $leg = $turn.leg;
        loop {
            $act;
            $leg += 1;
            if $leg >= $turn.behind {
                break;
            }
        }
    };
}

/// What the threads of a block do with the packs of a turn.
pub(in super::super) trait Cross {
    /// Folds those of turn `from` of the first step, and stores them as those of turn `to` of the second.
    fn partial(&self, from: Turn, to: Turn, team: Team);
    /// Folds those of turn `from` of the second step with this rank's own, and stores them as those of turn `to` of the third.
    fn join(&self, from: Turn, to: Turn, team: Team);
}

/// Has `work` fold what arrives at the ends `near`, exchange it at the ends `far`, and send what comes of that by the ends `to`, turn by turn. There are peers at all of
/// them, and as many turns.
///
/// # Safety
/// As for [`receive`](super::receive) of the first, [`send`](super::send) of the last, and both of the ends between. `work` loads at `far` what has arrived there, and of
/// what it stored there the turns that are not joined yet.
#[inline(always)]
pub(in super::super) unsafe fn cross<O: Ops, N: Legs, F: Legs, S: Legs, W: Cross>(
    turns: [Turns; 3],
    near: &Ends<'_, O, N>,
    far: &Ends<'_, O, F>,
    to: &Ends<'_, O, S>,
    work: &W,
) -> Flow {
    let (me, watch, team) = (near.site.me, near.watch, Team::all(&Block));
    // SAFETY: the caller's contract; positions move with `finish` alone, behind the last use of an end.
    let arrived = |leg| unsafe { near.from(near.schedule.from(me, leg).peer) };
    // SAFETY: as above.
    let crossing = |leg| unsafe { far.to(leg) };
    // SAFETY: as above.
    let crossed = |leg| unsafe { far.from(far.schedule.from(me, leg).peer) };
    // SAFETY: as above.
    let passing = |leg| unsafe { to.to(leg) };
    let mut first = [turns[0].first(), turns[1].first()];
    let mut second = [turns[1].first(), turns[2].first()];
    let mut ahead = 0;
    loop {
        let [from, sent] = first;
        if !turns[0].is_over(from) {
            each_leg!(from, leg => arrived(leg).await_bytes(&Block, from.from, from.to)?);
            each_leg!(sent, leg => crossing(leg).reserve(&Block, sent.from, sent.to)?);
            work.partial(from, sent, team);
            Block.sync();
            watch.check_panic(near.site.ops)?;
            each_leg_of_some!(sent, leg => crossing(leg).hand_over(&Block, sent.from, sent.to));
            first = [turns[0].after(from), turns[1].after(sent)];
            let over = turns[0].is_over(first[0]);
            each_leg!(from, leg => {
                let input = arrived(leg);
                input.give_back(&Block, from.to);
                if over {
                    input.finish(&Block);
                }
            });
            ahead += 1;
            if ahead <= AHEAD && !over {
                continue;
            }
        }
        let [from, sent] = second;
        each_leg!(from, leg => crossed(leg).await_bytes(&Block, from.from, from.to)?);
        each_leg!(sent, leg => passing(leg).reserve(&Block, sent.from, sent.to)?);
        work.join(from, sent, team);
        Block.sync();
        watch.check_panic(near.site.ops)?;
        second = [turns[1].after(from), turns[2].after(sent)];
        let over = turns[1].is_over(second[0]);
        each_leg_of_some!(sent, leg => {
            let out = passing(leg);
            out.hand_over(&Block, sent.from, sent.to);
            if over {
                out.finish(&Block);
            }
        });
        each_leg!(from, leg => {
            let input = crossed(leg);
            input.give_back(&Block, from.to);
            if over {
                input.finish(&Block);
                // What was stored there was loaded until now.
                crossing(leg).finish(&Block);
            }
        });
        if over {
            return Ok(());
        }
        ahead -= 1;
    }
}

/// Has `work` join what arrives at the ends `near` and at the ends `far`, and send what comes of that by the ends `onward`, turn by turn. There are peers at the first two,
/// and as many turns of all.
///
/// # Safety
/// As for [`receive`](super::receive) of the first two, and [`send`](super::send) of the last.
#[inline(always)]
pub(in super::super) unsafe fn meet<O: Ops, N: Legs, F: Legs, S: Legs, W: Pass>(
    turns: [Turns; 2],
    (near, far): (&Ends<'_, O, N>, &Ends<'_, O, F>),
    onward: Option<(Turns, &Ends<'_, O, S>)>,
    work: &W,
) -> Flow {
    let me = near.site.me;
    // SAFETY: the caller's contract; positions move with `finish` alone.
    let arrived = |leg| unsafe { near.from(near.schedule.from(me, leg).peer) };
    // SAFETY: as above.
    let crossed = |leg| unsafe { far.from(far.schedule.from(me, leg).peer) };
    let (mut here, mut there) = (turns[0].first(), turns[1].first());
    let mut sent = onward.map(|(turns, _)| turns.first());
    loop {
        each_leg!(here, leg => arrived(leg).await_bytes(&Block, here.from, here.to)?);
        each_leg!(there, leg => crossed(leg).await_bytes(&Block, there.from, there.to)?);
        if let (Some((_, to)), Some(sent)) = (onward, sent) {
            // SAFETY: as above.
            each_leg!(sent, leg => unsafe { to.to(leg) }.reserve(&Block, sent.from, sent.to)?);
        }
        work.turn(here, there, Team::all(&Block));
        Block.sync();
        near.watch.check_panic(near.site.ops)?;
        let (next, then) = (turns[0].after(here), turns[1].after(there));
        let over = turns[0].is_over(next);
        if let (Some((turns, to)), Some(now)) = (onward, sent) {
            if now.leg < now.behind {
                each_leg_of_some!(now, leg => {
                    // SAFETY: as above.
                    let result = unsafe { to.to(leg) };
                    result.hand_over(&Block, now.from, now.to);
                    if over {
                        result.finish(&Block);
                    }
                });
            } else if Block.leads() {
                // It stored nothing. The check of the PTX cannot know that.
                arch::fence_system();
            }
            sent = Some(turns.after(now));
        }
        each_leg!(here, leg => {
            let input = arrived(leg);
            input.give_back(&Block, here.to);
            if over {
                input.finish(&Block);
            }
        });
        each_leg!(there, leg => {
            let input = crossed(leg);
            input.give_back(&Block, there.to);
            if over {
                input.finish(&Block);
            }
        });
        if over {
            return Ok(());
        }
        (here, there) = (next, then);
    }
}
