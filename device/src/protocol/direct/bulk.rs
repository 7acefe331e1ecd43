//! The same by bulk copies: one thread of a block has the hardware carry whole pieces from the input through the block's shared memory into
//! the peers' outputs, many at a time. For hooks that only copy, where chunks are whole packs, on GPUs of compute capability 9.0 and later.
//!
//! Few instructions run, by one warp of a block, so kernels begin and end sooner, and NVLink carries larger packets: 357 GB/s
//! where stores of threads give 348 (H200).
//!
//! Blocks take pieces in turn: what is under way at a time lies close together. With a share of its own for each block, times vary by up to
//! 12% with the chunk's size (4 H200s).
//!
//! What a chunk of a mutual schedule begins with may go by [LL128](ll128), which waits for nobody to be ready: other warps of the self-copy
//! blocks send it while the channels' blocks still wait.

use super::base;
use super::handshake::{Channel, Lanes};
use crate::arch::{self, SharedStages};
use crate::element::Element;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Shape, Unpack};
use crate::ops::Direct;
use crate::protocol::{Protocol, Site, arguments, ll128, packs_of};
use crate::schedule::{Leg, Schedule, has_own, legs};
use crate::wait::{Armed, Flow};
use core::ops::Range;

/// Pieces that a block has under way.
pub const STAGES: u32 = 8;
/// Bytes of a piece at most.
pub const MOST: u64 = 16 << 10;
/// Bytes of shared memory before the pieces: their barriers.
pub const BARRIERS: u32 = 128;
/// Stores that may still read their stage when it is another's turn to be loaded.
const BEHIND: u32 = 2;
/// Pieces that are asked for before anything waits: what one thread does until it looks whether a peer is ready counts. The first
/// [`BEHIND`] stores ask for two each, which makes [`STAGES`].
const FIRST: u32 = STAGES - 2 * BEHIND;

/// Shared memory of a block whose pieces are of `chunk` bytes.
pub const fn shared_bytes(chunk: u64) -> u32 {
    BARRIERS + STAGES * chunk as u32
}

/// Where pieces are between memory and memory.
pub trait Stages {
    /// Begins to load `bytes` bytes into `stage`.
    ///
    /// # Safety
    /// `from` is aligned to 16 bytes, of which `bytes` is a multiple, and may be read; the stage holds as many, and no load or store of it
    /// is under way.
    unsafe fn load(&mut self, stage: u32, from: u64, bytes: u32);
    /// Waits for the load of `stage` number `turn`, from 0 on.
    fn await_load(&mut self, stage: u32, turn: u32);
    /// Begins to store `bytes` bytes of `stage`.
    ///
    /// # Safety
    /// As for [`Stages::load`]: `to` may be written; the stage's load was awaited.
    unsafe fn store(&mut self, stage: u32, to: u64, bytes: u32);
    /// Waits until all stores but the last two have read their stage.
    fn await_reads(&mut self);
    /// Waits until all stores have arrived.
    fn await_stores(&mut self);
}

/// Where one end of a pipe is: what is to be loaded next, or stored next. Few instructions from piece to piece: they are one thread's, and
/// a piece leaves every third of a microsecond.
#[derive(Clone, Copy)]
struct Cursor {
    /// Its address.
    at: u64,
    /// Packs from there to the end of the step's chunk; 0 behind the last step.
    left: u32,
    step: u32,
    /// Pieces before it: which stage holds it, and in which turn.
    count: u32,
}

impl Cursor {
    #[inline(always)]
    fn stage(&self) -> u32 {
        self.count % STAGES
    }

    #[inline(always)]
    fn turn(&self) -> u32 {
        self.count / STAGES
    }
}

/// Which pieces of a chunk a block copies, in packs.
#[derive(Clone, Copy)]
struct Pieces {
    /// From the chunk's beginning to the first.
    first: u32,
    /// From there to the chunk's end; 0 if there is none.
    packs: u32,
    /// A piece; the last may have fewer.
    piece: u32,
    /// From one to the next.
    stride: u32,
}

impl Pieces {
    /// Every piece number `part`, `part + parts`, .. behind the first `skipped` packs of a chunk.
    #[inline(always)]
    fn of<H: Hooks>(shape: &Shape, skipped: u64, part: u32, parts: u32) -> Self {
        let packs = packs_of::<H>(shape.elements).saturating_sub(skipped);
        let pieces = Self::among(packs as u32, shape.chunk as u32 / 16, part, parts);
        Pieces { first: skipped as u32 + pieces.first, ..pieces }
    }

    #[inline(always)]
    fn among(packs: u32, piece: u32, part: u32, parts: u32) -> Self {
        let first = u64::from(part) * u64::from(piece);
        let packs = u64::from(packs).saturating_sub(first) as u32;
        // More than a chunk has would do as well.
        Pieces { first: first as u32, packs, piece, stride: parts.saturating_mul(piece) }
    }

    /// Bytes from the chunk's beginning to the first.
    #[inline(always)]
    fn begin(&self) -> u64 {
        16 * u64::from(self.first)
    }
}

/// What a block copies to one peer after another, piece by piece; `from` and `to` give where its first piece is for each step.
struct Pipe<S, F, T> {
    stages: S,
    pieces: Pieces,
    end: u32,
    from: F,
    to: T,
    load: Cursor,
    store: Cursor,
}

impl<S: Stages, F: Fn(u32) -> u64, T: Fn(u32) -> u64> Pipe<S, F, T> {
    /// # Safety
    /// `pieces` of the chunk around `from` may be read in each of `steps`; once [`Pipe::run`] is called, as many around `to` may be written.
    /// All are multiples of 16. A block has one pipe.
    #[inline(always)]
    unsafe fn new(stages: S, steps: Range<u32>, pieces: Pieces, from: F, to: T) -> Self {
        let left = if steps.is_empty() { 0 } else { pieces.packs };
        let first = Cursor { at: 0, left, step: steps.start, count: 0 };
        let (mut load, mut store) = (first, first);
        if left > 0 {
            // The second is asked for now, and needed when the peer says go.
            (load.at, store.at) = (from(steps.start), to(steps.start));
        }
        Pipe { stages, pieces, end: steps.end, from, to, load, store }
    }

    /// Loads the first pieces.
    #[inline(always)]
    fn fill(&mut self) {
        // No bound that the compiler knows: it would write the loop's body as often.
        let first = arch::opaque(FIRST as usize) as u32;
        while self.load.left > 0 && self.load.count < first {
            self.load_next();
        }
    }

    #[inline(always)]
    fn load_next(&mut self) {
        let packs = self.load.left.min(self.pieces.piece);
        // SAFETY: inside what `new` was promised; the stage was stored from before, and read.
        unsafe { self.stages.load(self.load.stage(), self.load.at, 16 * packs) };
        self.load = self.next(self.load, &self.from);
    }

    /// The cursor of the piece behind another's.
    #[inline(always)]
    fn next(&self, cursor: Cursor, begin: &impl Fn(u32) -> u64) -> Cursor {
        let (Cursor { at, left, step, count }, stride) = (cursor, self.pieces.stride);
        if left > stride {
            return Cursor { at: at + 16 * u64::from(stride), left: left - stride, step, count: count + 1 };
        }
        let (step, count) = (step + 1, count + 1);
        if step < self.end {
            Cursor { at: begin(step), left: self.pieces.packs, step, count }
        } else {
            Cursor { at, left: 0, step, count }
        }
    }

    /// Stores every piece, and loads those that are left; all have arrived then. Behind [`Pipe::fill`].
    #[inline(always)]
    fn run(mut self) {
        while self.store.left > 0 {
            let packs = self.store.left.min(self.pieces.piece);
            self.stages.await_load(self.store.stage(), self.store.turn());
            // SAFETY: inside what `new` was promised.
            unsafe { self.stages.store(self.store.stage(), self.store.at, 16 * packs) };
            self.store = self.next(self.store, &self.to);
            if self.load.left > 0 {
                if self.store.count > BEHIND {
                    self.stages.await_reads();
                } else {
                    // Into a stage that was never used, as the next is.
                    self.load_next();
                }
            }
            if self.load.left > 0 {
                self.load_next();
            }
        }
        self.stages.await_stores();
    }

    /// Waits for what is being loaded: a block must not end before.
    #[inline(always)]
    fn abandon(mut self) {
        let mut cursor = self.store;
        while cursor.count < self.load.count {
            self.stages.await_load(cursor.stage(), cursor.turn());
            cursor.count += 1;
        }
    }
}

/// The leader's pipe, with its first loads under way; those of other threads are empty. (Not `None`: what may be none is kept in memory.)
///
/// # Safety
/// As for [`Pipe::new`]; called once by all threads of the block.
#[inline(always)]
unsafe fn filled<F: Fn(u32) -> u64, T: Fn(u32) -> u64>(
    steps: Range<u32>,
    pieces: Pieces,
    from: F,
    to: T,
) -> Pipe<SharedStages, F, T> {
    let packs = if Block.leads() { pieces.packs } else { 0 };
    // SAFETY: the leader alone, once; the rest is the caller's contract.
    let mut pipe = unsafe {
        let stages = SharedStages::of_block(16 * pieces.piece);
        if Block.leads() {
            stages.prepare();
        }
        Pipe::new(stages, steps, Pieces { packs, ..pieces }, from, to)
    };
    pipe.fill();
    pipe
}

/// The protocol of bulk copies, as a type. Grid: `channels` blocks (none without peers), then `self_copy`, of which each takes at most
/// [`PACKS`](ll128::PACKS) of the first packs.
///
/// The hooks copy from [`Shape::input`] to the output; the launch gave [`shared_bytes`]; the rest is as for [`Store`](super::Store).
#[derive(Debug)]
pub struct Bulk;

// SAFETY: as for `Store`.
unsafe impl<O: Direct> Protocol<O> for Bulk {
    #[inline(always)]
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow {
        let (ops, shape, schedule) = (&params.ops, &params.shape, &params.schedule);
        let site = Site::of(grid, params);
        let me = site.me;
        let most = legs(schedule, me);
        let blocks = if most == 0 { 0 } else { shape.channels };
        // SAFETY: the caller's contract.
        let armed = unsafe { Armed::new(&Block, params.control, ops.rank(), grid.block) };
        let (bytes, input, outputs) =
            (shape.elements * H::Wire::SIZE as u64, shape.input, shape.output_offset);
        let chunk = move |number: u32| u64::from(number) * bytes;
        // SAFETY: the launch's table.
        let output = move |peer: u32| unsafe { base(shape, peer) } + outputs;
        if S::OWN && grid.block >= blocks {
            let part = grid.block - blocks;
            let pieces = Pieces::of::<H>(shape, 0, part, shape.self_copy);
            let [from, to] = schedule.own(me).map(|number| chunk(number) + pieces.begin());
            // In place it is there.
            let steps = if has_own(schedule, me) && !H::IN_PLACE { 0..1 } else { 0..0 };
            let own = || {
                // SAFETY: the rank's own chunk, of its input and its output.
                unsafe { filled(steps, pieces, move |_| input + from, move |_| output(me.rank) + to) }.run();
            };
            if S::MUTUAL {
                // SAFETY: the caller's contract.
                let args = unsafe { arguments::<H>(&params.raw) };
                // SAFETY: the caller's contract.
                return unsafe { ll128::prefix::<O, S, H>((&site, schedule, armed), part, &args, own) };
            }
            let watch = armed.looked();
            watch.enter(&Block)?;
            own();
            return Ok(());
        }
        let channel = Channel::of::<H>(ops, shape, grid.block);
        let mut lanes = Lanes::of(schedule, me);
        lanes.begin(&channel);
        let watch = armed.looked();
        let pieces = Pieces::of::<H>(shape, shape.first, grid.block, shape.channels);
        let from = move |leg| input + chunk(schedule.to(me, leg).chunk) + pieces.begin();
        let to = move |leg| {
            let Leg { peer, theirs, .. } = schedule.to(me, leg);
            output(peer) + chunk(theirs) + pieces.begin()
        };
        // SAFETY: every chunk is in the input; a peer's output is written once it is ready, with this call's size and place.
        let pipe = unsafe { filled(1..schedule.sends(me) + 1, pieces, from, to) };
        let close = lanes.closing(&channel);
        if let Err(stopped) = lanes.await_ready(&channel, &watch) {
            pipe.abandon();
            return Err(stopped);
        }
        pipe.run();
        if most > 1 {
            // Other lanes than the leader speak of what it stored.
            Block.sync();
        }
        lanes.close(&channel, &watch, Some(close))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Stage {
        Free,
        /// The source address and the number of bytes.
        Loading(u64, u32),
        Loaded(u64, u32),
        Storing,
    }

    /// Hardware that finishes as late as it may.
    struct Fake<'k> {
        stages: [(Stage, u32); STAGES as usize],
        reading: Vec<u32>,
        copied: &'k RefCell<Vec<(u64, u64, u32)>>,
    }

    impl Stages for Fake<'_> {
        unsafe fn load(&mut self, stage: u32, from: u64, bytes: u32) {
            let (state, turns) = &mut self.stages[stage as usize];
            assert_eq!(*state, Stage::Free, "stage {stage}");
            (*state, *turns) = (Stage::Loading(from, bytes), *turns + 1);
        }
        fn await_load(&mut self, stage: u32, turn: u32) {
            let (state, turns) = &mut self.stages[stage as usize];
            assert_eq!(turn + 1, *turns);
            let Stage::Loading(from, bytes) = *state else { panic!("stage {stage} is {state:?}") };
            *state = Stage::Loaded(from, bytes);
        }
        unsafe fn store(&mut self, stage: u32, to: u64, bytes: u32) {
            let (state, _) = &mut self.stages[stage as usize];
            let Stage::Loaded(from, loaded) = *state else { panic!("stage {stage} is {state:?}") };
            assert_eq!(bytes, loaded);
            *state = Stage::Storing;
            self.reading.push(stage);
            self.copied.borrow_mut().push((from, to, bytes));
        }
        fn await_reads(&mut self) {
            let done = self.reading.len().saturating_sub(BEHIND as usize);
            for stage in self.reading.drain(..done) {
                self.stages[stage as usize].0 = Stage::Free;
            }
        }
        fn await_stores(&mut self) {
            for stage in self.reading.drain(..) {
                self.stages[stage as usize].0 = Stage::Free;
            }
            assert!(self.stages.iter().all(|(state, _)| *state == Stage::Free));
        }
    }

    /// The block's end, behind which its shared memory is another's.
    impl Drop for Fake<'_> {
        fn drop(&mut self) {
            let loading = |(state, _): &(Stage, u32)| matches!(state, Stage::Loading(..));
            let quiet = !self.stages.iter().any(loading);
            assert!(quiet || std::thread::panicking(), "the block ends while {:?}", self.stages);
        }
    }

    proptest! {
        #[test]
        fn every_piece_is_copied_once_and_no_stage_is_loaded_too_early(
            packs in 0u32..400, lines in 1u32..9, parts in 1u32..5, begin in 0u32..2, steps in 0u32..5, abandoned: bool,
        ) {
            let (bytes, piece) = (16 * u64::from(packs), 128 * u64::from(lines));
            let at = |step| u64::from(step) << 32;
            let mut all = vec![];
            for part in 0..parts {
                let copied = RefCell::default();
                let stages = Fake { stages: [(Stage::Free, 0); 8], reading: vec![], copied: &copied };
                let pieces = Pieces::among(packs, 8 * lines, part, parts);
                let from = |step| at(step) + pieces.begin();
                // SAFETY: nothing is accessed.
                let mut pipe =
                    unsafe { Pipe::new(stages, begin..begin + steps, pieces, from, |step| from(step) | 1 << 60) };
                pipe.fill();
                if abandoned {
                    pipe.abandon();
                    prop_assert!(copied.borrow().is_empty());
                    continue;
                }
                pipe.run();
                let copied = copied.into_inner();
                prop_assert!(copied.is_sorted_by_key(|(from, ..)| *from));
                all.extend(copied);
            }
            if abandoned {
                return Ok(());
            }
            all.sort_unstable();
            let mut left = all.into_iter();
            for step in begin..begin + steps {
                for from in (0..bytes).step_by(piece as usize) {
                    let from = at(step) + from;
                    let length = piece.min(at(step) + bytes - from) as u32;
                    prop_assert_eq!(left.next(), Some((from, from | 1 << 60, length)));
                }
            }
            prop_assert_eq!(left.next(), None);
        }
    }
}
