//! The step across domains of [`HostHierarchical`](super::HostHierarchical).

use super::super::Site;
use super::super::simple::channel::{Call, HEADER, Receiving, Sending, stream_bytes};
use super::super::simple::{Joined, Others};
use super::Part;
use super::turn::{Arrived, Partial, Passed, same_turn};
use crate::arch;
use crate::ctx::Ctx;
use crate::group::Block;
use crate::hooks::Hooks;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::schedule::{Across, Among, Legs, Member};
use crate::tile::{self, Kept};
use crate::wait::{Flow, Stopped, Watch};
use std::vec::Vec;

/// The ends of a channel to the ranks of the same place in other domains.
pub(super) struct Far<'k, O> {
    site: &'k Site<'k, O>,
    watch: &'k Watch,
    across: Across,
    channel: u32,
    /// The call of the first step.
    near: Call,
}

/// What a domain has: this rank's number in it, what this rank contributes, and what the others do.
pub(super) type Near<'n, 'k, W, O> = (Member, &'n [Pack<W>], &'n [Receiving<'k, O>]);

impl<'k, O: Ops> Far<'k, O> {
    pub(super) fn of<A: Among>(
        site: &'k Site<'k, O>,
        watch: &'k Watch,
        among: A,
        channel: u32,
        near: Call,
    ) -> Self {
        Far { site, watch, across: Across(among.size(site.me.world)), channel, near }
    }

    /// One turn of a call, which is at `turn` of the first step's streams: folds what the domain has of `part`, exchanges it, and stores what all domains' come to as
    /// `then` says.
    #[inline(always)]
    pub(super) fn cross<H: Hooks>(
        &self,
        turn: [u64; 2],
        part: &Part,
        (place, args): (&Ctx, &H::Args<'_>),
        (member, own, arrived): Near<'_, '_, H::Wire, O>,
        then: &Passed<'_, O>,
    ) -> Flow {
        let Far { site, watch, across, channel, near } = *self;
        let (group, me, times) = (Block, site.me, H::PARTIALS);
        let call = Call { payload: near.payload * times as u64, ..near };
        let [from, to] = turn.map(|at| same_turn(at, times));
        let over = turn[1] == stream_bytes(near.payload);
        let legs = || 1..=across.sends(me);
        // SAFETY: the block alone works these channels' ends; every turn goes on where the last one left off, since positions move with `finish` alone.
        let sending =
            |leg| unsafe { Sending::begin(site.ops, watch, across.to(me, leg).peer, channel, call) };
        let outs: Vec<_> = legs().map(sending).collect();
        for out in &outs {
            out.reserve(&group, from, to)?;
        }
        let payload = HEADER + (16 * part.packs.start * times) as u64;
        let partial = Partial { outs: &outs, payload };
        part.fold::<O, H>((place, Kept::HERE), member, args, (own, arrived), &partial);
        for out in &outs {
            out.publish(&group, from, to)?;
        }
        let inputs = self.inputs(call, from, to)?;
        let domain = across.member(me);
        let others = Arrived { domain, others: &inputs, payload };
        let (lanes, first) = (Pack::<H::Wire>::LANES, part.first + part.packs.start);
        let count = part.packs.len() as u32;
        let whole = tile::whole_until(place, lanes, first, count);
        for s in 0..count {
            let ctx = Kept::HERE.at::<H>(tile::any(place, lanes, first + s as usize, s < whole));
            let of = |number: u32, pack: usize| {
                let at = s * times as u32 + pack as u32;
                match number == domain.rank {
                    // SAFETY: it was stored there for the others, and not overwritten.
                    true => unsafe { arch::load_16(outs[0].at(payload + 16 * u64::from(at)).cast_const()) },
                    false => others.of(number, at),
                }
            };
            H::join((domain.world, me.world), &of, &|number, pack| {
                then.put::<H>(s, number, pack, (&ctx, args))
            });
        }
        self.give_back(&inputs, to, over)?;
        for out in &outs {
            if over {
                out.finish(&group);
            }
        }
        Ok(())
    }

    /// Ends of what the other domains send by `call`, of which bytes `from..to` have come: from the domain `k` down at `k - 1`.
    #[inline(always)]
    fn inputs(&self, call: Call, from: u64, to: u64) -> Result<Vec<Receiving<'k, O>>, Stopped> {
        let Far { site, watch, across, channel, .. } = *self;
        // SAFETY: the block alone works these channels' ends; every turn goes on where the last one left off, since positions move with `finish` alone.
        let receiving =
            |leg| unsafe { Receiving::begin(site.ops, watch, across.from(site.me, leg).peer, channel, call) };
        let inputs: Vec<_> = (1..=across.receives(site.me)).map(receiving).collect();
        for input in &inputs {
            input.await_bytes(&Block, from, to)?;
        }
        Ok(inputs)
    }

    /// Gives bytes up to `to` back; the call is `over` behind them.
    #[inline(always)]
    fn give_back(&self, inputs: &[Receiving<'k, O>], to: u64, over: bool) -> Flow {
        for input in inputs {
            input.free(&Block, to)?;
            if over {
                input.finish(&Block);
            }
        }
        Ok(())
    }

    /// The same of a call to a root, in whose domain this rank is: joins what the domain has of `part` with what the others have.
    #[inline(always)]
    pub(super) fn join<H: Hooks>(
        &self,
        turn: [u64; 2],
        part: &Part,
        (place, args): (&Ctx, &H::Args<'_>),
        (member, own, arrived): Near<'_, '_, H::Wire, O>,
        then: &Passed<'_, O>,
    ) -> Flow {
        let Far { site, across, near, .. } = *self;
        let times = H::PARTIALS;
        let call = Call { payload: near.payload * times as u64, ..near };
        let [from, to] = turn.map(|at| same_turn(at, times));
        let inputs = self.inputs(call, from, to)?;
        let payload = HEADER + (16 * part.packs.start * times) as u64;
        let (domain, ranks) = (across.member(site.me), site.me.world);
        let joined = Joined { domain, ranks, others: Arrived { domain, others: &inputs, payload }, then };
        part.fold::<O, H>((place, Kept::HERE), member, args, (own, arrived), &joined);
        self.give_back(&inputs, to, turn[1] == stream_bytes(near.payload))
    }
}
