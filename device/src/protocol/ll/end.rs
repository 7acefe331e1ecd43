//! A block's end of a channel in one call.

use super::buffer::{Buffer, DONE, Loaded, PACKS, REFRESH};
#[cfg(target_arch = "nvptx64")]
use crate::atomic::Relaxed;
#[cfg(not(target_arch = "nvptx64"))]
use crate::atomic::Release;
use crate::atomic::{self, System};
use crate::fold::AHEAD;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::ops::Direct;
use crate::pack::{Pack, unroll};
use crate::protocol::simple::channel::Call;
use crate::protocol::simple::{Packs, Take, fold_packs};
use crate::protocol::{Share, Site};
use crate::row::walk;
use crate::schedule::Schedule;
use crate::tile::{self, Team};
use crate::wait::{ABORTED, About, Fault, Flow, Watch, operation};

/// Packs that a thread asks for before it looks at the first.
const AT_ONCE: usize = 4;

/// What a block sends to its peers, and gets from them. `number` is that of this call, by peer.
pub(super) struct End<'k, O, S, N> {
    pub site: &'k Site<'k, O>,
    pub schedule: &'k S,
    pub watch: &'k Watch,
    pub channel: u32,
    pub part: u32,
    pub share: Share,
    pub call: Call,
    pub number: N,
}

impl<O: Direct, S: Schedule, N: Fn(u32) -> u64> End<'_, O, S, N> {
    #[inline(always)]
    fn sends(&self) -> u32 {
        self.schedule.sends(self.site.me)
    }

    #[inline(always)]
    fn receives(&self) -> u32 {
        self.schedule.receives(self.site.me)
    }

    #[inline(always)]
    fn about(&self, peer: u32, operation: u32) -> About {
        About { peer, channel: self.channel, operation }
    }

    /// Where what is sent on leg `leg` goes.
    #[inline(always)]
    fn out(&self, leg: u32) -> Buffer {
        let peer = self.schedule.to(self.site.me, leg).peer;
        let ops = self.site.ops;
        Buffer::of(ops.ll_out(ops.peer_base(peer), self.channel), (self.number)(peer))
    }

    /// The same of up to [`AHEAD`] legs from `leg` on: all are asked for before the first is used.
    #[inline(always)]
    fn outs(&self, leg: u32) -> [Buffer; AHEAD] {
        let (mut outs, sends) = ([Buffer::NONE; AHEAD], self.sends());
        unroll!(AHEAD = 4, |K| if leg + (K as u32) < sends + 1 {
            outs[K] = self.out(leg + K as u32);
        });
        outs
    }

    /// Where what `peer` sends arrives.
    #[inline(always)]
    fn input(&self, peer: u32) -> Buffer {
        Buffer::of(self.site.ops.ll_in(peer, self.channel), (self.number)(peer))
    }

    /// Waits until every peer is done with the call before the last one.
    ///
    /// # Safety
    /// The channel is one of those with credits; called by all threads of the block.
    #[inline(always)]
    pub unsafe fn credit(&self) -> Flow {
        let (mut fault, mut peer, mut leg) = (Fault::NONE, self.site.me.rank, 1);
        while leg < self.sends() + 1 && fault.kind == 0 {
            peer = self.schedule.to(self.site.me, leg).peer;
            let needed = (self.number)(peer).wrapping_sub(2);
            // SAFETY: behind the buffers of the other direction, a live word that the peer writes by atomics alone.
            fault = unsafe {
                let at = self.site.ops.ll_in(peer, self.channel).add(DONE).cast::<u64>();
                self.watch.poll(at, needed, operation::SEND).1
            };
            leg += 1;
        }
        self.watch.settle(&Block, self.site.ops, self.about(peer, operation::SEND), fault)
    }

    /// Stores this block's share of what goes to each peer.
    ///
    /// # Safety
    /// The buffers of this call are free, and this block's; called by all its threads.
    #[inline(always)]
    pub unsafe fn send<H: Hooks>(&self, args: &H::Args<'_>) {
        let (team, share, sends) = (Team::all(&Block), self.share, self.sends());
        let hooks = tile::Module::<H>(args);
        let mut leg = 1;
        if const { !S::ONCE } {
            while leg < sends + 1 {
                let place = self.site.at(self.schedule.to(self.site.me, leg), self.part);
                let out = self.out(leg);
                tile::produce::<tile::FourOrOne<H>, _, _>(
                    team,
                    &place,
                    share.first,
                    share.packs,
                    &hooks,
                    |s, _, pack| {
                        // SAFETY: the caller's contract; each pack is one thread's.
                        unsafe { out.store(s, pack.words()) };
                    },
                );
                // SAFETY: as above.
                unsafe { self.frame(leg, out) };
                if const { S::MOST_LEGS == 1 } {
                    break;
                }
                leg += 1;
            }
            return;
        }
        let first = self.outs(1);
        let store = |s: u32, pack: Pack<H::Wire>| {
            let (mut outs, mut leg) = (first, 1);
            while leg < sends + 1 {
                unroll!(AHEAD = 4, |K| if leg + (K as u32) < sends + 1 {
                    // SAFETY: the caller's contract; each pack is one thread's.
                    unsafe { outs[K].store(s, pack.words()) };
                });
                leg += AHEAD as u32;
                if leg < sends + 1 {
                    outs = self.outs(leg);
                }
            }
        };
        let (place, kept) = (self.site.own(self.schedule, self.part), self.site.kept(self.schedule));
        if const { H::COLS > 0 && !S::FOLDS } {
            // A row is kept as a whole.
            walk::keep::<H>(team, (&place, kept), share.first, share.packs, args, Some(&store));
        } else {
            tile::produce::<tile::FourOrOne<H>, _, _>(
                team,
                &place,
                share.first,
                share.packs,
                &hooks,
                |s, ctx, pack| {
                    store(s, pack);
                    // Else it is folded with what arrives.
                    if const { !S::FOLDS } {
                        H::consume(&kept.at::<H>(ctx.at(ctx.pos, ctx.valid, ctx.whole)), args, pack);
                    }
                },
            );
        }
        while leg < sends + 1 {
            // SAFETY: as above.
            unsafe { self.frame(leg, self.out(leg)) };
            leg += 1;
        }
    }

    /// What goes with the packs of leg `leg`: the header, and where flags would grow too old the rest of the buffer.
    ///
    /// # Safety
    /// As for [`End::send`].
    #[inline(always)]
    unsafe fn frame(&self, leg: u32, out: Buffer) {
        let number = (self.number)(self.schedule.to(self.site.me, leg).peer);
        if Block.leads() {
            // SAFETY: the caller's contract.
            unsafe { out.store_header(self.call.header(number)) };
        }
        if number % REFRESH < 2 {
            let mut s = self.share.packs + Block.lane();
            while s < PACKS as u32 {
                // SAFETY: as above.
                unsafe { out.store(s, [0; 4]) };
                s += Block.lanes();
            }
        }
    }

    /// Waits until all that this block receives has arrived, and of the same call.
    ///
    /// # Safety
    /// This block alone receives on the channel; called by all its threads.
    #[inline(always)]
    pub unsafe fn arrived(&self) -> Flow {
        let (mut fault, mut peer, mut leg) = (Fault::NONE, self.site.me.rank, 1);
        while leg < self.receives() + 1 && fault.kind == 0 {
            peer = self.schedule.from(self.site.me, leg).peer;
            // SAFETY: the caller's contract.
            fault = unsafe { self.arrived_from(peer) };
            if const { S::MOST_LEGS == 1 } {
                break;
            }
            leg += 1;
        }
        self.watch.settle(&Block, self.site.ops, self.about(peer, operation::RECEIVE), fault)
    }

    /// This thread's part of that: some packs, whoever takes them; and the leader's the header, before anything else.
    ///
    /// # Safety
    /// As for [`End::arrived`].
    #[inline(always)]
    unsafe fn arrived_from(&self, peer: u32) -> Fault {
        let (number, input) = ((self.number)(peer), self.input(peer));
        if Block.leads() {
            let mut header = Loaded::NONE;
            let fault = self.poll(number, || {
                // SAFETY: the channel's buffer.
                header = unsafe { input.load_header() };
                input.behind(header)
            });
            let [a, b, c, d] = header.words();
            let word = |low, high| u64::from(low) | u64::from(high) << 32;
            if fault.kind != 0 {
                return fault;
            }
            let Fault { kind, operation, expected, seen, .. } =
                self.call.compare(number, word(a, b), word(c, d));
            if kind != 0 {
                // At once: the other threads may wait for packs that never come.
                self.watch.give_up(self.site.ops, kind, self.about(peer, operation), expected, seen, 0);
                return Fault { kind: ABORTED, ..fault };
            }
        }
        let (packs, lanes) = (self.share.packs, Block.lanes());
        let mut s = Block.lane();
        while s < packs {
            let look = || {
                let mut found = [Loaded::NONE; AT_ONCE];
                unroll!(AT_ONCE = 4, |K| {
                    // SAFETY: the channel's buffer; those past the end are the last one again.
                    found[K] = unsafe { input.load((s + K as u32 * lanes).min(packs - 1)) };
                });
                let mut behind = 0;
                unroll!(AT_ONCE = 4, |K| behind = input.behind(found[K]).max(behind));
                behind
            };
            let fault = self.poll(number, look);
            if fault.kind != 0 {
                return fault;
            }
            s += AT_ONCE as u32 * lanes;
        }
        Fault::NONE
    }

    /// Waits until `behind` says that what it looks at is no call behind this one, number `number`.
    #[inline(always)]
    fn poll(&self, number: u64, mut behind: impl FnMut() -> u32) -> Fault {
        let seen = || number.wrapping_sub(u64::from(behind()));
        self.watch.poll_by(seen, number, operation::RECEIVE).1
    }

    /// Hands what has arrived to `consume`.
    ///
    /// # Safety
    /// All of it has, and the block has met since.
    #[inline(always)]
    pub unsafe fn take<H: Hooks>(&self, args: &H::Args<'_>) {
        let mut number = 1;
        while number < self.receives() + 1 {
            let leg = self.schedule.from(self.site.me, number);
            let input = self.input(leg.peer);
            tile::consume_by::<tile::FourOrOne<H>, _, _>(
                Team::all(&Block),
                &self.site.at(leg, self.part),
                self.share.first,
                self.share.packs,
                &tile::Module::<H>(args),
                // SAFETY: the caller's contract.
                |s| Pack::from_words(unsafe { input.load(s) }.words()),
            );
            if const { S::MOST_LEGS == 1 } {
                break;
            }
            number += 1;
        }
    }

    /// Folds what has arrived with what this rank produces, and takes it.
    ///
    /// # Safety
    /// As for [`End::take`].
    #[inline(always)]
    pub unsafe fn fold<H: Hooks>(&self, args: &H::Args<'_>) {
        let (team, me) = (Team::all(&Block), self.site.me);
        let (place, kept) = (self.site.own(self.schedule, self.part), self.site.kept(self.schedule));
        let Share { first, packs } = self.share;
        // SAFETY: the caller's contract.
        let load = |rank: u32, s: u32| Pack::from_words(unsafe { self.input(rank).load(s) }.words());
        if const { H::COLS == 0 } {
            let whole = tile::whole_until(&place, Pack::<H::Wire>::LANES, first, packs);
            let span = Packs { place: &place, first, payload: 0, count: packs, whole };
            return fold_packs::<H>((&span, team.lane), team, kept, me, args, &Take, load);
        }
        let at = (&place, kept);
        let ranks = (Some(me.rank), me.world);
        // Of a constant number of ranks the others are counted.
        let other = |other: u32, s| load(other + u32::from(other >= me.rank), s);
        match me.world {
            1 => walk::fold::<H, 1>(team, at, (first, packs), args, ranks, &Take, other),
            2 => walk::fold::<H, 2>(team, at, (first, packs), args, ranks, &Take, other),
            4 => walk::fold::<H, 4>(team, at, (first, packs), args, ranks, &Take, other),
            _ => walk::fold::<H, 0>(team, at, (first, packs), args, ranks, &Take, load),
        }
    }

    /// Counts this call, and tells peers that go one way that what they sent has been read.
    ///
    /// # Safety
    /// Called by one thread, behind the block's sync; `count` writes the calls of this end with a peer.
    #[inline(always)]
    pub unsafe fn done(&self, count: impl Fn(u32, u64), takes: bool) {
        if S::MUTUAL {
            let me = self.site.me.rank;
            return count(me, (self.number)(me));
        }
        let mut leg = 1;
        while leg < if takes { self.receives() } else { self.sends() } + 1 {
            let schedule = self.schedule;
            let peer =
                if takes { schedule.from(self.site.me, leg) } else { schedule.to(self.site.me, leg) }.peer;
            let number = (self.number)(peer);
            if takes {
                let ops = self.site.ops;
                // SAFETY: the word behind the buffers that this rank fills; it alone writes it.
                unsafe {
                    let at = ops.ll_out(ops.peer_base(peer), self.channel).add(DONE).cast::<u64>();
                    // On a GPU no fence: what must come first are loads, and every thread had their values before the block's sync.
                    #[cfg(target_arch = "nvptx64")]
                    atomic::store::<System, Relaxed, u64>(at, number);
                    #[cfg(not(target_arch = "nvptx64"))]
                    atomic::store::<System, Release, u64>(at, number);
                }
            }
            count(peer, number);
            leg += 1;
        }
    }
}
