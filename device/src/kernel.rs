//! Schedules of one's own: tiles with flow control, or raw operations on the symmetric heap.

mod channels;
mod heap;
mod hooks;
mod ll128;
mod local;
mod state;

use crate::atomic::{self, Device, Relaxed};
use crate::ctx::{Consume, Ctx, Produce};
use crate::element::Element;
pub use crate::grain::Grain;
use crate::group::{Block, Group};
use crate::launch::{Grid, Shape, cut, share_packs};
use crate::ops::{Line, Ops};
use crate::pack::Pack;
use crate::protocol::place;
use crate::protocol::simple::Stream;
use crate::protocol::simple::channel::{Call, HEADER};
use crate::tile::{Each, Sink, Source, Unroll};
use crate::wait::{About, Control, Flow, Stopped, Watch, kind, operation};
use core::marker::PhantomData;
pub use hooks::{HookArgs, HookTiles};
pub use ll128::Ll128Tiles;
pub(crate) use state::{KernelsAndTeamsStandOutsideClosures, Own, State};

/// A tile has fewer packs of its wire type: 64 GiB.
pub const MOST_PACKS: u64 = 1 << 32;

/// Packs of a tile.
#[inline(always)]
const fn packs_in<W: Element>(tile: Tile) -> u64 {
    const { crate::element::on_the_wire::<W>(false) };
    tile.len.div_ceil(Pack::<W>::LANES) as u64
}

/// Where tiles as long as this one begin at most: all indices of one, and the sum of start and length, are numbers.
#[inline(always)]
const fn last_start(tile: Tile) -> u64 {
    u64::MAX - tile.len as u64
}

/// A run of elements of a flat buffer that travels as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Index of the first element.
    pub start: usize,
    /// Elements.
    pub len: usize,
}

/// What a schedule of one's own has in its parameters where others have who exchanges what with whom.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Custom;

/// A running kernel, as one block of a user's schedule sees it.
///
/// Every method is called by all threads of the block with the same arguments. Methods that may wait return [`Flow`]: pass it on with `?`.
pub struct Kernel<O> {
    ops: O,
    watch: Watch,
    grid: Grid,
    shape: Shape,
    state: Own<State>,
    /// On which this block's tiles travel.
    channel: Own<u32>,
    /// Bytes of shared memory that are lent.
    lent: Own<u32>,
    /// How often the block's teams have passed words from warp to warp: two halves of memory take turns, whichever of them it is.
    turn: Own<u32>,
    /// Two threads would work one channel end, and a team's closures are called on one of many: a name for what the compiler then says.
    thread: PhantomData<*mut KernelsAndTeamsStandOutsideClosures>,
}

impl<O: Ops> Kernel<O> {
    /// This rank.
    #[inline(always)]
    pub fn rank(&self) -> usize {
        self.ops.rank() as usize
    }

    /// Ranks in the world.
    #[inline(always)]
    pub fn world(&self) -> usize {
        self.ops.world() as usize
    }

    /// The rank `distance` steps up the ring.
    #[inline(always)]
    pub fn next(&self, distance: usize) -> usize {
        (self.rank() + distance % self.world()) % self.world()
    }

    /// The rank `distance` steps down the ring.
    #[inline(always)]
    pub fn previous(&self, distance: usize) -> usize {
        (self.rank() + self.world() - distance % self.world()) % self.world()
    }

    /// This block's index.
    #[inline(always)]
    pub fn block(&self) -> usize {
        self.grid.block as usize
    }

    /// Blocks in the grid.
    #[inline(always)]
    pub fn blocks(&self) -> usize {
        self.grid.blocks as usize
    }

    /// This block's part of `0..n`, in whole packs of 16 elements but for the end.
    #[inline(always)]
    pub fn share(&self, n: usize) -> Tile {
        let packs = (n as u64).div_ceil(16);
        let (first, packs) = cut(packs, share_packs(packs, self.grid.blocks), self.grid.block);
        let start = (first as usize * 16).min(n);
        Tile { start, len: (packs as usize * 16).min(n - start) }
    }

    /// All threads of the block wait for each other.
    ///
    /// # Panics
    /// Within a tile's hook, or within [`Kernel::teams`].
    #[inline(always)]
    #[track_caller]
    pub fn sync(&self) {
        self.whole();
        Block.sync();
    }

    /// What is for all threads of the block would wait for some that are elsewhere.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn whole(&self) {
        let state = self.state.get();
        assert!(
            !matches!(state, State::Busy | State::Local(_)),
            "a tile's hook may neither send nor receive, wait nor signal, nor use a team"
        );
        assert!(
            state != State::Teams,
            "within `teams` this is not for the whole block: use the team's methods"
        );
    }

    /// A window's operation by the whole block would wait for threads that are elsewhere.
    #[inline(always)]
    pub(crate) fn suits<G: Group>(&self) {
        let state = self.state.get();
        let (teams, local) = (state == State::Teams, matches!(state, State::Local(_)));
        assert!(
            !(G::WHOLE && teams),
            "within `teams` a window's operation takes the team's group, not `Block`"
        );
        assert!(!(G::WHOLE && local), "within a tile's hook a window's operation is not for the whole block");
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> &Own<State> {
        &self.state
    }

    #[inline(always)]
    pub(crate) fn lent(&self) -> &Own<u32> {
        &self.lent
    }

    #[inline(always)]
    pub(crate) fn turn(&self) -> &Own<u32> {
        &self.turn
    }

    #[inline(always)]
    #[track_caller]
    fn check(&self, kind: u32, value: u64, limit: u64, peer: usize, channel: u32, op: u32) -> Flow {
        self.whole();
        if self.state.get() == State::Stopped {
            return Err(Stopped);
        }
        if value < limit {
            return Ok(());
        }
        self.state.set(State::Stopped);
        let about = About { peer: peer as u32, channel, operation: op };
        Err(self.watch.out_of_range(&self.ops, kind, about, limit, value))
    }

    #[inline(always)]
    #[track_caller]
    fn check_peer(&self, peer: usize, channel: u32, op: u32) -> Flow {
        self.check(kind::RANGE, peer as u64, u64::from(self.ops.world()), peer, channel, op)
    }

    #[inline(always)]
    #[track_caller]
    fn check_signal(&self, peer: usize, id: usize, op: u32) -> Flow {
        self.check_peer(peer, id as u32, op)?;
        self.check(kind::RANGE, id as u64, u64::from(self.ops.signals()), peer, id as u32, op)
    }

    /// A block's tiles travel on a channel that there is.
    #[inline(always)]
    #[track_caller]
    fn check_channel(&self, peer: usize, op: u32) -> Flow {
        let channel = self.channel.get();
        self.check(kind::NO_CHANNEL, u64::from(channel), u64::from(self.ops.channels()), peer, channel, op)
    }

    #[inline(always)]
    #[track_caller]
    fn check_tile<W: Element>(&self, peer: usize, tile: Tile, op: u32) -> Flow {
        let channel = self.channel.get();
        self.check_peer(peer, channel, op)?;
        self.check(kind::LONG_TILE, packs_in::<W>(tile), MOST_PACKS, peer, channel, op)?;
        self.check(kind::TILE_END, tile.start as u64, last_start(tile), peer, channel, op)
    }

    /// A hook that sent or received would put its bytes between those of the tile that called it.
    #[inline(always)]
    #[track_caller]
    fn enter(&self) {
        assert!(
            self.state.replace(State::Busy) == State::Ready,
            "a tile's hook may neither send nor receive"
        );
    }

    /// Notes whether the operation that ends here stopped.
    #[inline(always)]
    fn leave(&self, flow: Flow) -> Flow {
        self.state.set(if flow.is_ok() { State::Ready } else { State::Stopped });
        flow
    }

    #[inline(always)]
    fn tile_place(&self, peer: usize, tile: Tile) -> Ctx {
        let mut at =
            place(&self.ops, self.grid, &self.shape, peer as u32, self.channel.get(), tile.start as u64);
        (at.chunk_len, at.rows, at.cols) = (tile.len, 1, tile.len);
        at
    }

    /// Elements of the longest tile that is sent before the peer receives any of it: as many as a channel stages. The rest of a longer one waits
    /// for the peer to receive, which must not itself wait for a tile of this block then. So where all ranks send a tile before they receive
    /// one, tiles have at most so many elements.
    #[inline(always)]
    pub fn most_staged<W: Element>(&self) -> usize {
        ((self.ops.window() - HEADER) / 16) as usize * Pack::<W>::LANES
    }

    /// Sends a tile to `peer` on this block's channel, which is that of its index unless it took another ([`Kernel::take_channel`]): element `pos` of it is
    /// `hook`'s value, which gives an element a call or a pack ([`Grain`]). The peer's block on that channel receives it with a tile of the same length and wire
    /// type. Waits only for staging: see [`Kernel::most_staged`]. A peer or a channel that there is not, or a tile of [`MOST_PACKS`] or whose end is no index, ends
    /// the kernel on all ranks.
    ///
    /// # Panics
    /// If `hook` sends or receives.
    #[inline(always)]
    #[track_caller]
    pub fn send_tile<G: Grain>(&self, peer: usize, tile: Tile, hook: impl Fn(&Produce) -> G) -> Flow {
        self.send_by::<G, G::Wire>(peer, tile, &Each::of(hook))
    }

    /// [`Kernel::send_tile`] of what `source` gives.
    #[inline(always)]
    #[track_caller]
    fn send_by<U: Unroll, W: Element>(&self, peer: usize, tile: Tile, source: &impl Source<W>) -> Flow {
        self.check_tile::<W>(peer, tile, operation::SEND)?;
        self.check_channel(peer, operation::SEND)?;
        self.enter();
        let place = self.tile_place(peer, tile);
        // SAFETY: this block alone works its channel; all its threads are here.
        self.leave(unsafe { self.stream::<W>(&place).send::<U, W, _, Block>(&Block, source) })
    }

    /// The stream of a tile of fewer than [`MOST_PACKS`].
    #[inline(always)]
    fn stream<'k, W: Element>(&'k self, place: &'k Ctx) -> Stream<'k, O> {
        let (lanes, elements) = (Pack::<W>::LANES, place.chunk_len);
        let packs = packs_in::<W>(Tile { start: 0, len: elements }) as u32;
        let kernel = Call::ended(self.shape.kernel ^ W::CODE, (elements % lanes) as u32);
        let call = Call { kernel, payload: 16 * u64::from(packs), cut: 0 };
        let chunk = self.shape.chunk;
        Stream { ops: &self.ops, watch: &self.watch, place, first: 0, packs, chunk, call, end: None }
    }

    /// Receives a tile from `peer`: `hook` takes each element or pack as it arrives.
    ///
    /// # Safety
    /// The `Consume` that `hook` gets is a witness for the indices from `tile.start + pos` on that it is called for: no other block, and no other tile
    /// of this block without a [`Kernel::sync`] between, may write an output at the same index.
    ///
    /// # Panics
    /// If `hook` sends or receives.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn recv_tile<G: Grain>(&self, peer: usize, tile: Tile, hook: impl Fn(&Consume, G)) -> Flow {
        // SAFETY: the caller's contract.
        unsafe { self.recv_by::<G, G::Wire>(peer, tile, &Each::of(hook)) }
    }

    /// [`Kernel::recv_tile`] to `sink`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    unsafe fn recv_by<U: Unroll, W: Element>(&self, peer: usize, tile: Tile, sink: &impl Sink<W>) -> Flow {
        self.check_tile::<W>(peer, tile, operation::RECEIVE)?;
        self.check_channel(peer, operation::RECEIVE)?;
        self.enter();
        let place = self.tile_place(peer, tile);
        // SAFETY: this block alone works its channel; all its threads are here.
        self.leave(unsafe { self.stream::<W>(&place).receive::<U, W, Block, _>(&Block, sink) })
    }

    /// Receives a tile from the peer `from`, and sends what `hook` makes of each element or pack on to the peer `to`, as it arrives: it is not written and read
    /// again in between. `hook` may store it here as well. It is a `recv_tile` and a `send_tile` of the same tile in one, and waits for what they wait for: where
    /// ranks forward around a ring, a channel's staging has to hold two tiles.
    ///
    /// # Safety
    /// As for [`Kernel::recv_tile`].
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
        self.check_tile::<G::Wire>(from, tile, operation::RECEIVE)?;
        self.check_tile::<G::Wire>(to, tile, operation::SEND)?;
        self.check_channel(from, operation::RECEIVE)?;
        self.enter();
        let (place, pass) = (self.tile_place(from, tile), Each::of(hook));
        let stream = self.stream::<G::Wire>(&place);
        // SAFETY: this block alone works its channel; all its threads are here.
        self.leave(unsafe { stream.forward::<G::Wire, Block, _>(&Block, to as u32, &pass) })
    }

    /// Operations and control words, for what is built on a kernel.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (&O, &Watch) {
        (&self.ops, &self.watch)
    }

    /// `Err` once an operation has stopped.
    ///
    /// # Panics
    /// Within a tile's hook.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn running(&self) -> Flow {
        let state = self.state.get();
        assert!(state != State::Busy, "a tile's hook may not use a window");
        if matches!(state, State::Stopped | State::Local(true)) { Err(Stopped) } else { Ok(()) }
    }

    /// Refuses whatever the schedule asks for from here on.
    #[inline(always)]
    pub(crate) fn stop(&self) -> Stopped {
        let local = matches!(self.state.get(), State::Local(_));
        self.state.set(if local { State::Local(true) } else { State::Stopped });
        Stopped
    }

    /// Raises signal `id` at `peer` by one: everything this block put there before is visible to the block that waits for it.
    /// One block uses one `id` towards one peer.
    ///
    /// # Panics
    /// Within a tile's hook, or within [`Kernel::teams`].
    #[inline(always)]
    #[track_caller]
    pub fn signal(&self, peer: usize, id: usize) -> Flow {
        self.check_signal(peer, id, operation::SIGNAL)?;
        Block.sync();
        self.leave(self.watch.check_panic(&self.ops))?;
        let state = self.ops.signal_state(peer as u32, id as u32);
        // SAFETY: live state. Atomic: blocks that share an id get wrong counts, but no data race.
        let next = unsafe { atomic::load::<Device, Relaxed, u64>(&raw const (*state).sent) }.wrapping_add(1);
        // SAFETY: the count only grows.
        unsafe { self.ops.signal(&Block, peer as u32, Line::User(id as u32), next) };
        Block.sync();
        if Block.leads() {
            // SAFETY: as above; all threads have read the old value.
            unsafe { atomic::store::<Device, Relaxed, u64>(&raw mut (*state).sent, next) };
        }
        Block.sync();
        Ok(())
    }

    /// Waits for the next signal `id` of `peer` that has not been waited for.
    ///
    /// # Panics
    /// Within a tile's hook, or within [`Kernel::teams`].
    #[inline(always)]
    #[track_caller]
    pub fn wait(&self, peer: usize, id: usize) -> Flow {
        self.check_signal(peer, id, operation::WAIT)?;
        let state = self.ops.signal_state(peer as u32, id as u32);
        // SAFETY: live state; atomic as in `signal`.
        let next =
            unsafe { atomic::load::<Device, Relaxed, u64>(&raw const (*state).awaited) }.wrapping_add(1);
        let line = Line::User(id as u32);
        self.leave(self.watch.until_line(&Block, &self.ops, peer as u32, line, next, operation::WAIT))?;
        if Block.leads() {
            // SAFETY: as above; all threads have read the old value (the wait synchronised them).
            unsafe { atomic::store::<Device, Relaxed, u64>(&raw mut (*state).awaited, next) };
        }
        Block.sync();
        Ok(())
    }
    /// Waits until the block of this index has come to its barrier `id` on every rank, by the user signal of that number. What those blocks put towards
    /// this rank before is here then. One block uses one `id`.
    ///
    /// # Panics
    /// Within a tile's hook, or within [`Kernel::teams`].
    #[inline(always)]
    #[track_caller]
    pub fn barrier(&self, id: usize) -> Flow {
        let mut distance = 1;
        while distance < self.world() {
            self.signal(self.next(distance), id)?;
            distance += 1;
        }
        distance = 1;
        while distance < self.world() {
            self.wait(self.previous(distance), id)?;
            distance += 1;
        }
        Ok(())
    }
}

impl<O: Ops> Kernel<O> {
    /// Begins a user's schedule on this block. Not a function that takes the schedule as a closure: a long one would become a function of the device, with its kernel
    /// in memory.
    ///
    /// # Safety
    /// `control` names live words; called by all threads of every block of the grid.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn begin(grid: Grid, ops: O, control: Control, shape: Shape) -> Result<Self, Stopped> {
        // SAFETY: the caller's contract.
        let watch = unsafe { Watch::begin(&Block, control, ops.rank(), grid.block) };
        watch.enter(&Block)?;
        let (state, channel) = (Own::new(State::Ready), Own::new(grid.block));
        let (lent, turn) = (Own::new(0), Own::new(0));
        Ok(Kernel { ops, watch, grid, shape, state, channel, lent, turn, thread: PhantomData })
    }

    /// Ends it as `flow` says.
    #[doc(hidden)]
    #[inline(always)]
    pub fn end(&self, flow: Flow) -> Flow {
        flow?;
        // A panic after the last operation is told too.
        Block.sync();
        self.watch.check_panic(&self.ops)
    }
}

/// Runs a schedule on this block.
///
/// # Safety
/// As for [`Kernel::begin`].
#[inline(always)]
pub unsafe fn custom<O: Ops>(
    grid: Grid,
    ops: O,
    control: Control,
    shape: Shape,
    body: impl FnOnce(&Kernel<O>) -> Flow,
) -> Flow {
    // SAFETY: the caller's contract.
    let kernel = unsafe { Kernel::begin(grid, ops, control, shape)? };
    kernel.end(body(&kernel))
}
