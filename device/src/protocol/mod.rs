//! Protocols: how the bytes of a transfer travel.
//!
//! | protocol | module | bytes go | grid |
//! |---|---|---|---|
//! | [`Simple`] | [`simple`] | through rings of staging, with credits | senders, receivers, then the self copy |
//! | [`TwoShot`] | `simple::relay` | the same, twice: a part to each rank, and from there, folded, to whoever takes it | those that produce, pass on, and take |
//! | [`Hierarchical`] | `simple::domains`, `simple::homes`, `simple::chunks` | the same: within domains, across them, and within them | as by [`TwoShot`]; of a chunk for each rank four kinds |
//! | [`Host`], [`HostTwoShot`] and [`HostHierarchical`] | `host` | the same, on CPU threads, each of which works both ends of a channel | `channels` blocks |
//! | [`Ll`] | [`ll`] | in words of 8 bytes, of which half is a flag | as by LL128 |
//! | [`Ll128`] | [`ll128`] | in 128-byte lines that carry their flags | mutual schedules: `channels` blocks, then the self copy; others: senders, receivers |
//! | [`Ll128TwoShot`] | `ll128::relay` | the same, twice, as by [`TwoShot`] | `channels` blocks |
//! | [`Local`] | `local` | nowhere: of a rank alone | any number of blocks |
//! | [`Store`] | [`direct`] | straight into the peers' outputs, by stores of threads | `channels` blocks, then the self copy |
//! | [`Bulk`] | [`direct::bulk`] | the same, by bulk copies | the same |
//! | [`CopyEngine`] | [`direct::copy_engine`] | the same, by the copy engine | one block before its work and one behind it |
//!
//! Where a schedule [folds](Schedule::FOLDS), blocks that receive take a part from every peer, produce their own, and do what the self copy does;
//! simple and LL have that, and LL128 where the schedule is mutual.
//!
//! Where a schedule produces [once](Schedule::ONCE), blocks that send do the self copy as well, but with bulk copies and the copy engine.
//!
//! A protocol is written once, over the legs of any [`Schedule`], the operations of a transport and the hooks of a module; [`exchange`] is
//! the one entry behind every kernel. Hooks of `layout(transposed)` are called by [`tile::transpose`] in all of them.
//!
//! A chunk is cut into one share a channel. A block works its channel towards all peers in turn, each rank beginning with its next
//! neighbour, so that at any time a rank's links carry one peer's data each way: few blocks then fill them. Blocks that wait for each
//! other must be resident together: the host refuses a grid that the device cannot hold.

pub mod direct;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
pub mod ll;
pub mod ll128;
mod local;
pub mod simple;

pub use direct::Store;
pub use direct::bulk::Bulk;
pub use direct::copy_engine::CopyEngine;
#[cfg(not(target_arch = "nvptx64"))]
pub use host::{Host, HostHierarchical, HostTwoShot};
pub use ll::Ll;
pub use ll128::{Ll128, Ll128TwoShot};
pub use local::Local;
pub use simple::{Hierarchical, Simple, TwoShot};

use crate::arch;
use crate::ctx::Ctx;
use crate::group::{Block, Group};
use crate::hooks::Hooks;
use crate::launch::{Grid, Params, Shape, UNALIGNED, Unpack, cut};
use crate::ops::Ops;
use crate::pack::Pack;
use crate::row;
use crate::schedule::{Leg, Legs, Member, Schedule, has_own};
use crate::tile::{self, Kept, Team};
use crate::wait::{Ahead, Armed, Flow, Watch};
use simple::channel::Call;

/// How bytes travel, over the operations `O`.
///
/// # Safety
/// [`Protocol::exchange`] brings every chunk where the schedule says, once, and accesses no other memory of peers. When it has returned on all
/// ranks, nobody accesses what the launch was lent.
pub unsafe trait Protocol<O: Ops> {
    /// One block's part of a launch.
    ///
    /// # Safety
    /// `params` was made by a checked launch by this protocol, on all ranks of the schedule; called by all threads of every block of the grid.
    unsafe fn exchange<S: Schedule, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Flow;
}

/// One block of a kernel: schedule `S` by protocol `P`, with the hooks `H`. All of it is resolved when it is compiled.
///
/// # Safety
/// As for [`Protocol::exchange`].
#[inline(always)]
pub unsafe fn exchange<S: Schedule, P: Protocol<O>, O: Ops, H: Unpack>(
    grid: Grid,
    params: &Params<O, S, H::Raw>,
) -> Flow {
    const {
        assert!(S::FOLDS == H::FOLDS, "a schedule that folds is for hooks that name a fold, and no other is");
        in_place::<S, H>(true);
    }
    // SAFETY: the caller's contract.
    unsafe { P::exchange::<S, H>(grid, params) }
}

/// Refuses hooks with an `InOut` where a protocol may not have read what it stores to: it does not compile. Two steps, which have, are those of `shipped` schedules.
#[doc(hidden)]
pub const fn in_place<S: Schedule, H: Hooks>(shipped: bool) {
    if H::IN_PLACE && !S::APART {
        assert!(
            shipped && S::ONCE && S::FOLDS && S::MUTUAL,
            "in place, this schedule stores what arrives where it may not have read what is to be sent: take `input: &'a [T]` and `output: Out<'a, T>` in place of `InOut`"
        );
        assert!(
            H::RELAYS > 0,
            "in place, what `produce` gives may not be wider than the elements of `InOut`: give a narrower type, write a `consume` of the accumulator, or name a wider `result`"
        );
    }
}

/// Begins a block, before it may look at memory. Where warps share rows, they meet behind the block's next sync.
///
/// # Safety
/// As for [`Armed::new`].
#[inline(always)]
unsafe fn armed<O: Ops, S, H: Unpack>(grid: Grid, params: &Params<O, S, H::Raw>) -> Armed {
    // SAFETY: the caller's contract.
    let armed = unsafe { Armed::new(&Block, params.control, params.ops.rank(), grid.block) };
    if row::shares_warps(H::COLS) {
        arch::arm_rows();
    }
    armed
}

/// What hooks have, for when the kernel in front is done.
///
/// # Safety
/// As for [`Unpack::unpack`].
#[inline(always)]
unsafe fn arguments<'a, H: Unpack>(raw: &H::Raw) -> Ahead<H::Args<'a>> {
    // SAFETY: the caller's contract.
    Ahead::new(unsafe { H::unpack(raw) })
}

/// What each protocol of two steps asks of a schedule and hooks.
const fn passes_on<S: Schedule, H: Hooks>() {
    assert!(S::TWO_STEPS, "each rank's only chunk comes of what one rank or all ranks contribute");
    assert!(
        H::COLS == 0 || S::FOLDS && S::MUTUAL,
        "rows have two steps where every rank folds a part, and takes all"
    );
}

/// What steps by domains ask of a schedule and hooks: every rank folds a part, and takes all; or each has a chunk.
const fn by_domains<S: Schedule, H: Hooks>() {
    assert!(H::COLS == 0, "rows are folded as a whole");
    if S::TWO_STEPS {
        passes_on::<S, H>();
        assert!(
            !S::MUTUAL || S::FOLDS,
            "each rank gets what all ranks contribute, folded, or one rank sends or gets"
        );
    } else {
        assert!(
            S::ALL_PAIRS && S::MUTUAL && S::OWN && S::ONCE != S::FOLDS,
            "every rank sends every other one its only chunk, or what it contributes to the other's"
        );
    }
}

/// Packs that are passed on for one of the wire; 0 where that cannot be.
const fn times<H: Hooks>() -> usize {
    if H::FOLDS { H::RELAYS } else { 1 }
}

/// Packs that travel together: a whole 128-byte line of an output, or whole rows that are such lines.
const fn unit<H: Hooks>() -> u32 {
    if H::COLS > 0 { row::whole(H::ROW_PACKS) as u32 } else { 8 }
}

/// The share of one block in a chunk: packs `first .. first + packs`.
#[derive(Clone, Copy)]
struct Share {
    first: usize,
    /// Fewer than 2^32: the host refuses larger shares.
    packs: u32,
}

impl Share {
    /// Share number `part` of `each` packs, of a chunk of `elements`.
    #[inline(always)]
    fn of<H: Hooks>(elements: u64, each: u64, part: u32) -> Self {
        let (first, packs) = cut(packs_of::<H>(elements), each, part);
        Share { first: first as usize, packs: packs as u32 }
    }

    /// The same, worked out here and now: the time before a wait is over is free.
    #[inline(always)]
    fn now(self) -> Self {
        let [first, packs] = [self.first as u64, u64::from(self.packs)].map(arch::late);
        Share { first: first as usize, packs: packs as u32 }
    }

    /// The part of rank `rank`, of which all have `each` packs, or fewer at the end.
    #[inline(always)]
    fn part(&self, each: u32, rank: u32) -> Self {
        let (first, packs) = cut(u64::from(self.packs), u64::from(each), rank);
        Share { first: self.first + first as usize, packs: packs as u32 }
    }

    /// The longest part, where so many ranks have one each: the stream of every part is as long. [`share_packs`](crate::launch::share_packs) of what
    /// 32 bits hold, which GPUs divide in fewer registers. Parts are whole [units](unit).
    #[inline(always)]
    fn longest(&self, ranks: u32, unit: u32) -> Self {
        Share { packs: self.packs.div_ceil(ranks).next_multiple_of(unit), ..*self }
    }

    #[inline(always)]
    fn call(&self, shape: &Shape) -> Call {
        Call { kernel: shape.kernel, payload: 16 * u64::from(self.packs), cut: shape.cut }
    }
}

/// Packs of a chunk.
#[inline(always)]
fn packs_of<H: Hooks>(elements: u64) -> u64 {
    if const { H::COLS > 0 } {
        return elements / H::COLS as u64 * H::ROW_PACKS as u64;
    }
    elements.div_ceil(Pack::<H::Wire>::LANES as u64)
}

/// How a protocol that cuts no shares names a call: by the chunk's size, and by how it is cut.
#[inline(always)]
fn whole_call<H: Hooks>(shape: &Shape) -> Call {
    Call { kernel: shape.kernel, payload: 16 * packs_of::<H>(shape.elements), cut: shape.cut }
}

/// What part `part` of `parts` does of a chunk where every block may do any: a share of its own, or tiles or rows of the whole, since a share
/// may be less than one.
#[inline(always)]
fn work<H: Hooks>(elements: u64, each: u64, part: u32, parts: u32) -> (Team, Share) {
    if const { H::TRANSPOSED || H::COLS > 0 } {
        let packs = packs_of::<H>(elements);
        (Team::among(&Block, part, parts), Share { first: 0, packs: packs as u32 })
    } else {
        (Team::all(&Block), Share::of::<H>(elements, each, part))
    }
}

/// What both ends of a transfer see: the geometry of the launch, and where this block is.
#[derive(Clone, Copy)]
struct Site<'k, O> {
    ops: &'k O,
    grid: Grid,
    shape: &'k Shape,
    me: Member,
}

impl<'k, O: Ops> Site<'k, O> {
    #[inline(always)]
    fn of<S, R>(grid: Grid, params: &'k Params<O, S, R>) -> Self {
        let Params { ops, shape, .. } = params;
        Site { ops, grid, shape, me: Member::of(ops) }
    }

    /// Where hooks are, in a transfer on `channel`.
    #[inline(always)]
    fn at(&self, leg: Leg, channel: u32) -> Ctx {
        place(self.ops, self.grid, self.shape, leg.peer, channel, u64::from(leg.chunk) * self.shape.elements)
    }

    /// Where `produce` is, in the self copy.
    #[inline(always)]
    fn own<S: Legs>(&self, schedule: &S, channel: u32) -> Ctx {
        self.at(Leg { peer: self.me.rank, chunk: Legs::own(schedule, self.me)[0], theirs: 0 }, channel)
    }

    /// The number by which hooks know a channel of a call of several steps: that of the first.
    #[inline(always)]
    fn heard(&self, channel: u32) -> u32 {
        if channel < self.shape.channels { channel } else { channel - self.shape.channels }
    }

    /// Where hooks are in a chunk that is the only one of every rank, wherever the other end of the wire is.
    #[inline(always)]
    fn only<S: Legs>(&self, schedule: &S, channel: u32) -> Ctx {
        let peer = Legs::root(schedule).unwrap_or(self.me.rank);
        self.at(Leg { peer, chunk: 0, theirs: 0 }, self.heard(channel))
    }

    /// Where `consume` is, in the self copy.
    #[inline(always)]
    fn kept<S: Schedule>(&self, schedule: &S) -> Kept {
        let start = || u64::from(schedule.own(self.me)[1]) * self.shape.elements;
        Kept::from(S::OWN_MOVES.then(|| start() as usize))
    }

    /// The whole work of block number `part` of the self copy.
    #[inline(always)]
    fn self_copy<S: Schedule, H: Hooks>(
        &self,
        schedule: &S,
        watch: &Watch,
        part: u32,
        args: &H::Args<'_>,
    ) -> Flow {
        let place = self.own(schedule, 0);
        watch.enter(&Block)?;
        if !has_own(schedule, self.me) {
            return Ok(());
        }
        let (team, share) = work::<H>(self.shape.elements, self.shape.own_share, part, self.shape.self_copy);
        tile::self_copy::<H>(team, (&place, self.kept(schedule)), share.first, share.packs, args);
        Block.sync();
        watch.check_panic(self.ops)
    }
}

#[inline(always)]
pub(crate) fn place<O: Ops>(
    ops: &O,
    grid: Grid,
    shape: &Shape,
    peer: u32,
    channel: u32,
    chunk_start: u64,
) -> Ctx {
    Ctx {
        rank: ops.rank() as usize,
        peer: peer as usize,
        world: ops.world() as usize,
        block: grid.block as usize,
        channel: channel as usize,
        chunk_start: chunk_start as usize,
        chunk_len: shape.elements as usize,
        pos: 0,
        valid: 0,
        rows: shape.rows as usize,
        cols: shape.cols as usize,
        shaped: None,
        beside: 0,
        most: chunk_start as usize,
        whole: false,
        aligned: shape.flags & UNALIGNED == 0,
        prefetches: false,
        cache_policy: None,
        thread: core::marker::PhantomData,
    }
}
