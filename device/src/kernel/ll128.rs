//! Short tiles by LL128.

use super::{Grain, Kernel, Tile, packs_in};
use crate::ctx::{Consume, Produce};
use crate::element::Element;
use crate::group::{Block, Group};
use crate::ops::{Direct, Ops, WithDirect};
use crate::pack::Pack;
use crate::protocol::ll128::{Line, Load, PACKS, Single, leave};
use crate::tile::{Each, Pass, Sink, Source, Team, Unroll};
use crate::wait::{Flow, kind, operation};
use core::marker::PhantomData;

/// Tiles that travel in 128-byte lines which carry their flags: see [`Kernel::ll128`].
pub struct Ll128Tiles<'k, O>(&'k Kernel<O>);

impl<O: Ops> Kernel<O> {
    /// Tiles for which latency counts: [`Ll128Tiles::send_tile`] and [`Ll128Tiles::recv_tile`] are [`Kernel::send_tile`] and [`Kernel::recv_tile`] by
    /// [LL128](crate::protocol::ll128). Each `send_tile` by LL128 has a `recv_tile` by LL128.
    ///
    /// A channel holds two tiles, each of up to [`Ll128Tiles::most`] elements. A third waits until the first has been received; a longer one ends the
    /// kernel on all ranks, and one of no elements is none.
    ///
    /// Tiles go through staging, as [`Kernel::send_tile`]'s do, on transports whose kernels do not store to peers' memory, between GPUs without NVLink,
    /// and on channels beyond the transport's `ll128_channels`.
    #[inline(always)]
    pub fn ll128(&self) -> Ll128Tiles<'_, O> {
        Ll128Tiles(self)
    }
}

impl<O: Ops> Ll128Tiles<'_, O> {
    /// Elements of the longest tile that travels at once.
    #[inline(always)]
    pub fn most<W: Element>(&self) -> usize {
        match self.there_are() {
            true => PACKS as usize * Pack::<W>::LANES,
            // Two are on their way.
            false => self.0.most_staged::<W>() / 2 / (8 * Pack::<W>::LANES) * (8 * Pack::<W>::LANES),
        }
    }

    /// Whether this block has an LL128 channel; the same on all ranks.
    #[inline(always)]
    fn there_are(&self) -> bool {
        self.0.ops.direct(Channels).is_some_and(|channels| self.0.channel.get() < channels)
    }

    #[inline(always)]
    #[track_caller]
    fn check<W: Element>(&self, peer: usize, tile: Tile, op: u32) -> Flow {
        self.0.check_tile::<W>(peer, tile, op)?;
        self.0.check(kind::LONG_LL128_TILE, packs_in::<W>(tile), PACKS + 1, peer, self.0.channel.get(), op)
    }

    /// Does what is to be done with a tile, where there are LL128 channels.
    #[inline(always)]
    #[track_caller]
    fn run(&self, tile: Tile, then: impl WithDirect<Out = Flow>) -> Flow {
        if tile.len == 0 {
            return Ok(());
        }
        self.0.enter();
        self.0.leave(self.0.ops.direct(then).unwrap_or(Ok(())))
    }

    /// As [`Kernel::send_tile`]; waits until the peer has received the tile before the last.
    ///
    /// # Panics
    /// If `hook` sends or receives.
    #[inline(always)]
    #[track_caller]
    pub fn send_tile<G: Grain>(&self, peer: usize, tile: Tile, hook: impl Fn(&Produce) -> G) -> Flow {
        self.send_by::<G, G::Wire>(peer, tile, &Each::of(hook), G::BUNDLES)
    }

    /// [`Ll128Tiles::send_tile`] of what `source` gives; `bundles`: whether it leaves registers for several rows at a time.
    #[inline(always)]
    #[track_caller]
    pub(super) fn send_by<U: Unroll, W: Element>(
        &self,
        peer: usize,
        tile: Tile,
        source: &impl Source<W>,
        bundles: bool,
    ) -> Flow {
        if !self.there_are() {
            return self.0.send_by::<U, W>(peer, tile, source);
        }
        self.check::<W>(peer, tile, operation::SEND)?;
        let end = End { kernel: self.0, peer, tile, wire: PhantomData::<W> };
        self.run(tile, Sends { end, source, bundles })
    }

    /// As [`Kernel::recv_tile`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Panics
    /// If `hook` sends or receives.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn recv_tile<G: Grain>(&self, peer: usize, tile: Tile, hook: impl Fn(&Consume, G)) -> Flow {
        // SAFETY: the caller's contract.
        unsafe { self.recv_by::<G, G::Wire>(peer, tile, &Each::of(hook), G::BUNDLES) }
    }

    /// [`Ll128Tiles::recv_tile`] to `sink`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn recv_by<U: Unroll, W: Element>(
        &self,
        peer: usize,
        tile: Tile,
        sink: &impl Sink<W>,
        bundles: bool,
    ) -> Flow {
        if !self.there_are() {
            // SAFETY: the caller's contract.
            return unsafe { self.0.recv_by::<U, W>(peer, tile, sink) };
        }
        self.check::<W>(peer, tile, operation::RECEIVE)?;
        let end = End { kernel: self.0, peer, tile, wire: PhantomData::<W> };
        self.run(tile, Receives { end, sink, bundles })
    }

    /// As [`Kernel::forward_tile`]; waits until the next peer has received the tile before the last.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Panics
    /// If `hook` sends or receives.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn forward_tile<G: Grain>(
        &self,
        from: usize,
        to: usize,
        tile: Tile,
        hook: impl Fn(&Consume, G) -> G,
    ) -> Flow {
        if !self.there_are() {
            // SAFETY: the caller's contract.
            return unsafe { self.0.forward_tile(from, to, tile, hook) };
        }
        self.check::<G::Wire>(from, tile, operation::RECEIVE)?;
        self.check::<G::Wire>(to, tile, operation::SEND)?;
        let end = End { kernel: self.0, peer: from, tile, wire: PhantomData::<G::Wire> };
        self.run(tile, Forwards { end, onward: to, pass: &Each::of(hook) })
    }
}

/// How many LL128 channels there are.
struct Channels;

impl WithDirect for Channels {
    type Out = u32;
    #[inline(always)]
    fn with<D: Direct>(self, ops: &D) -> u32 {
        ops.ll128_channels()
    }
}

struct Sends<'k, O, W, F> {
    end: End<'k, O, W>,
    source: &'k F,
    bundles: bool,
}

impl<O: Ops, W: Element, F: Source<W>> WithDirect for Sends<'_, O, W, F> {
    type Out = Flow;
    #[inline(always)]
    fn with<D: Direct>(self, ops: &D) -> Flow {
        let (line, count) = self.end.line::<D, true>(ops, self.end.peer);
        // SAFETY: this block alone works its channel; all its threads are here.
        let free = unsafe { line.credit() };
        if free {
            // SAFETY: the peer is done with the tile before the last.
            unsafe { line.send_rows(&to(&line), self.source, self.bundles) };
        }
        leave(ops, line.watch, free)?;
        // SAFETY: counts of this end; all threads have read them before they left.
        unsafe { finish([(count, line.calls)]) };
        Ok(())
    }
}

struct Receives<'k, O, W, F> {
    end: End<'k, O, W>,
    sink: &'k F,
    bundles: bool,
}

impl<O: Ops, W: Element, F: Sink<W>> WithDirect for Receives<'_, O, W, F> {
    type Out = Flow;
    #[inline(always)]
    fn with<D: Direct>(self, ops: &D) -> Flow {
        let (line, count) = self.end.line::<D, false>(ops, self.end.peer);
        // SAFETY: this block alone works its channel; all its threads are here.
        let whole = unsafe { line.receive_rows(self.sink, self.bundles) };
        leave(ops, line.watch, whole)?;
        if Block.leads() {
            // SAFETY: a channel with credits; all threads have what arrived.
            unsafe { line.give_credit() };
        }
        // SAFETY: counts of this end; all threads have read them before they left.
        unsafe { finish([(count, line.calls)]) };
        Ok(())
    }
}

struct Forwards<'k, O, W, F> {
    end: End<'k, O, W>,
    onward: usize,
    pass: &'k F,
}

impl<O: Ops, W: Element, F: Pass<W>> WithDirect for Forwards<'_, O, W, F> {
    type Out = Flow;
    #[inline(always)]
    fn with<D: Direct>(self, ops: &D) -> Flow {
        let (line, received) = self.end.line::<D, false>(ops, self.end.peer);
        let (onward, sent) = self.end.line::<D, true>(ops, self.onward);
        let pass = |ctx: &Consume, pack: Pack<W>| self.pass.pass(ctx, pack);
        // SAFETY: this block alone works its channel; all its threads are here. The next peer is done with the tile before the last.
        let whole = unsafe { onward.credit() && line.forward_rows(&onward, &to(&onward), pass) };
        leave(ops, line.watch, whole)?;
        if Block.leads() {
            // SAFETY: a channel with credits; all threads have what arrived.
            unsafe { line.give_credit() };
        }
        // SAFETY: counts of both ends; all threads have read them before they left.
        unsafe { finish([(received, line.calls), (sent, onward.calls)]) };
        Ok(())
    }
}

/// This block's end of a tile, sent to or received from a peer.
struct End<'k, O, W> {
    kernel: &'k Kernel<O>,
    peer: usize,
    tile: Tile,
    wire: PhantomData<W>,
}

impl<'k, O: Ops, W: Element> End<'k, O, W> {
    /// This block's LL128 channel, to send to `peer` or to receive from it, and where its calls are counted.
    #[inline(always)]
    fn line<'l, D: Direct, const SENDS: bool>(&self, ops: &'l D, peer: usize) -> (Line<'l, D>, *mut u64)
    where
        'k: 'l,
    {
        let kernel = self.kernel;
        let (watch, channel) = (&kernel.watch, ops.ll128_channels() + kernel.channel.get());
        let place = kernel.tile_place(peer, self.tile);
        let (call, team) = (kernel.stream::<W>(&place).call, Team::all(&Block));
        let load = Load::of_packs(0, packs_in::<W>(self.tile) as u32);
        let state = ops.line_state(peer as u32, channel);
        // SAFETY: live state of this end, which this block alone works; a sync stands behind every store to it.
        let (count, calls) = unsafe {
            let count = if SENDS { &raw mut (*state).sent } else { &raw mut (*state).received };
            (count, count.read_volatile())
        };
        (Line { ops, watch, team, place, load, channel, calls, call }, count)
    }
}

/// The peer of a line that sends.
#[inline(always)]
fn to<D: Direct>(line: &Line<'_, D>) -> Single {
    Single { base: line.ops.peer_base(line.peer()), calls: line.calls }
}

/// Counts the calls that end here.
///
/// # Safety
/// Live counts of this block's ends; a sync of the block stands behind its threads' reads.
#[inline(always)]
unsafe fn finish<const N: usize>(counts: [(*mut u64, u64); N]) {
    if Block.leads() {
        for (count, calls) in counts {
            // SAFETY: the caller's contract.
            unsafe { count.write_volatile(calls + 1) };
        }
    }
    Block.sync();
}
