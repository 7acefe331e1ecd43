//! What arrives from one peer goes on to another.

use super::channel::{HEADER, Receiving, Sending, payload_packs};
use super::{Stream, give_back, late};
use crate::arch;
use crate::ctx::Consume;
use crate::element::Element;
use crate::group::Group;
use crate::ops::Ops;
use crate::pack::Pack;
use crate::tile::{self, Pass, Sink, Team};
use crate::wait::Flow;

impl<O: Ops> Stream<'_, O> {
    /// Receives from the peer of `place`, and sends what `hook` makes of each pack to the peer `onward`, on the same channel, in the same pieces.
    ///
    /// # Safety
    /// This group alone works the receiving end of the channel from the one peer and its sending end to the other; all its threads call.
    #[inline(always)]
    pub unsafe fn forward<W: Element, G: Group, F: Pass<W>>(&self, group: &G, onward: u32, hook: &F) -> Flow {
        let Stream { ops, watch, place, call, .. } = *self;
        let (peer, channel) = (place.peer as u32, place.channel as u32);
        // SAFETY: the caller's contract.
        let (input, out) = unsafe {
            (
                Receiving::begin(ops, watch, peer, channel, call),
                Sending::begin(ops, watch, onward, channel, call),
            )
        };
        let sink = Passes { out: &out, hook };
        let (mut before, mut from, mut to) = (0, 0, self.end(0));
        out.reserve(group, from, to)?;
        input.await_bytes(group, from, to)?;
        loop {
            let next = self.end(to);
            if from > 0 {
                out.hand_over(group, before, from);
                give_back::<Passes<'_, '_, O, F>, W, G, O>(&input, group, from);
            }
            let looks = next > to && group.leads();
            let wait = || if looks { [input.await_more(next), out.await_room(next)] } else { [0; 2] };
            let ahead = if late(0) { [0; 2] } else { wait() };
            let (s0, count) = payload_packs(from, to, self.packs);
            let payload = HEADER + 16 * s0 as u64;
            if let Some(team) = Team::at_work(group, 0) {
                tile::consume::<tile::Two, W, _>(team, place, self.first + s0, count, &sink, |s| {
                    input.at(payload + 16 * u64::from(s))
                });
            }
            let found = if late(0) { wait() } else { ahead };
            if next == to {
                input.finish(group);
                out.finish(group);
            }
            input.settle(group, found[0], next)?;
            out.settle(group, found[1], next)?;
            watch.check_panic(ops)?;
            (before, from, to) = (from, to, next);
            if from == to {
                break;
            }
        }
        out.hand_over(group, before, from);
        give_back::<Passes<'_, '_, O, F>, W, G, O>(&input, group, from);
        Ok(())
    }
}

/// Takes what arrives, and stores what comes of it for the next peer.
struct Passes<'k, 'o, O, F> {
    out: &'k Sending<'o, O>,
    hook: &'k F,
}

impl<O: Ops, W: Element, F: Pass<W>> Sink<W> for Passes<'_, '_, O, F> {
    const KEEPS: bool = true;
    #[inline(always)]
    fn take(&self, ctx: &Consume, pack: Pack<W>) {
        let passed = self.hook.pass(ctx, pack);
        let at = HEADER + 16 * (ctx.pos / Pack::<W>::LANES) as u64;
        // SAFETY: the ring's place of that pack, reserved for this group; each pack is one thread's.
        unsafe { arch::store_16(self.out.at(at), passed.words()) };
    }
}
