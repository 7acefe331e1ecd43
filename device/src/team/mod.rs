//! What the threads of a block, or of some of its warps, work out together in a schedule of one's own.
//!
//! A schedule is run by every thread of a block. A [`Team`] spreads work over indices: a closure is called for each index, on one of the threads, and
//! nobody sees which. So the same schedule is right on a GPU, where a block has up to 512 threads, and on the host, where it has one, and gives the
//! same bits there.
//!
//! ```
//! # use fusewire_device::prelude::*;
//! /// Sends the tokens of each rank in their own order: `owner[i]` is the rank that token `i` goes to.
//! fn route<O: Ops>(kernel: &Kernel<O>, owner: &[u32], slot: Out<u32>) -> Flow {
//!     let team = kernel.team();
//!     let mut peer = kernel.block();
//!     while peer < kernel.world() {
//!         let own = |i: usize| u32::from(owner[i] == peer as u32);
//!         // SAFETY: a token goes to one rank, so one block writes its slot, once.
//!         team.scan(owner.len(), 0, own, |a, b| a + b, |i, before| unsafe {
//!             if owner[i] == peer as u32 {
//!                 slot.write(i, before)
//!             }
//!         });
//!         peer += kernel.blocks();
//!     }
//!     Ok(())
//! }
//! ```
//!
//! | | what |
//! |---|---|
//! | [`Kernel::team`] | all threads of the block |
//! | [`Kernel::teams`] | the block cut into teams of `W` warps, which share items |
//! | [`Team::each`] | calls a closure for each index |
//! | [`Team::reduce`], `sum`, `max`, `min` | folds a value of each index |
//! | [`Team::scan`] | gives each index the fold of those before it |
//! | [`Team::count`], `any`, `all`, `find` | votes |
//! | [`Team::once`] | one thread's value, for all |
//! | [`Kernel::shared`] | memory that the block's threads share |
//!
//! A warp's shuffles are not there, since they name lanes: what goes from index to index goes through [`Shared`].
//!
//! # Order
//! [`Team::reduce`] folds by a tree that depends on the number of values and on the kind of team, not on the number of threads. A team of `W` warps
//! has 32 `W` *places*, and a block's team 512 on every machine. Value `i` belongs to place `i % places`. A place folds its own in their order, and
//! the places are folded by a balanced tree over their numbers, whose right side is left out where there is nothing. [`Team::scan`] goes by groups of
//! 32 values for every team: within a group as Kogge and Stone do, and from group to group in their order.
//!
//! # What closures may not do
//! Each method is called by all threads of the team. A closure is called on one thread at a time, where a method of the team would wait for ever.
//! The compiler refuses that: closures are `Sync`, and kernels and teams are not. What a closure needs of the kernel, its rank say, is asked before.
//! What closures stored is seen by the team's threads once the method has returned.

mod shared;
mod sides;

pub use shared::Shared;

use crate::element::Element;
use crate::fold::Number;
use crate::group::{Block, Group, Warps};
use crate::kernel::{Kernel, KernelsAndTeamsStandOutsideClosures, Own, State};
use crate::ops::Ops;
use crate::wait::{Flow, Stopped};
use core::marker::PhantomData;

/// Warps of the largest block.
pub const MOST_WARPS: u32 = 16;

/// Bytes that [`Kernel::shared`] hands out at most.
pub const SHARED_BYTES: u32 = 32 << 10;

/// Groups that teams can be of: [`Block`] and [`Warps`].
///
/// Sealed: teams have memory for these.
pub trait Wide: Group + sealed::Sealed {
    /// Warps, which have 32 places each. On every machine, and whatever there are of a block's.
    const WARPS: u32;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Block {}
    impl<const W: u32> Sealed for super::Warps<W> {}
}

impl Wide for Block {
    const WARPS: u32 = MOST_WARPS;
}

impl<const W: u32> Wide for Warps<W> {
    const WARPS: u32 = W;
}

/// Threads that work together on indices: see [the module](self).
#[derive(Debug)]
pub struct Team<'k, G> {
    group: G,
    state: &'k Own<State>,
    /// How often words have gone from warp to warp in the memory that this team has: two halves of it take turns.
    turn: &'k Own<u32>,
    thread: PhantomData<*mut KernelsAndTeamsStandOutsideClosures>,
}

impl<O: Ops> Kernel<O> {
    /// The threads of the block as a team. Its closures see what the block stored before.
    ///
    /// # Panics
    /// Within a tile's hook, or within [`Kernel::teams`].
    #[inline(always)]
    #[track_caller]
    pub fn team(&self) -> Team<'_, Block> {
        self.whole();
        // What was stored before is seen by the team's closures.
        Block.sync();
        Team { group: Block, state: self.state(), turn: self.turn(), thread: PhantomData }
    }

    /// Cuts the block into teams of `W` warps, 1 to 16, which share the items `0..n`: `work` is called for each of them, by the threads of one team.
    /// A block of fewer warps is one team; on the host the one thread of a block is.
    ///
    /// Window operations in `work` take [`Team::group`]; other methods of the kernel are for the whole block and panic there. If a call of `work`
    /// returns [`Stopped`] its team goes no further, and the whole block gets that.
    ///
    /// # Panics
    /// Within a tile's hook, or within itself.
    #[inline(always)]
    #[track_caller]
    pub fn teams<const W: u32>(&self, n: usize, work: impl Fn(&Team<'_, Warps<W>>, usize) -> Flow) -> Flow {
        const { assert!(W >= 1 && W <= MOST_WARPS, "a team has 1 to 16 warps") };
        self.whole();
        if self.state().get() == State::Stopped {
            return Err(Stopped);
        }
        Block.sync();
        crate::arch::teams::arm();
        Block.sync();
        self.state().set(State::Teams);
        let (number, teams) = sides::share(W);
        let (mut flow, mut item) = (Ok(()), number);
        if number < teams {
            // SAFETY: armed; warps behind the last whole team have numbers from `teams` on.
            let group = unsafe { Warps::new() };
            let turn = Own::new(0);
            let team = Team { group, state: self.state(), turn: &turn, thread: PhantomData };
            while item < n && flow.is_ok() {
                flow = work(&team, item);
                item += teams;
            }
        }
        let stopped = Block.any(flow.is_err() || self.state().get() == State::Stopped);
        self.state().set(if stopped { State::Stopped } else { State::Ready });
        if stopped { Err(Stopped) } else { Ok(()) }
    }
}

impl<G: Wide> Team<'_, G> {
    /// The group that window operations take.
    #[inline(always)]
    pub fn group(&self) -> G {
        self.group
    }

    /// A method would wait for threads that are elsewhere.
    #[inline(always)]
    #[track_caller]
    fn together(&self) {
        let state = self.state.get();
        let hook = matches!(state, State::Busy | State::Local(_));
        assert!(!hook, "a tile's hook may not use a team");
        assert!(!(G::WHOLE && state == State::Teams), "the block's team may not work within `teams`");
    }

    #[inline(always)]
    fn turn(&self) -> u32 {
        self.turn.replace(self.turn.get().wrapping_add(1))
    }

    /// All threads of the team wait for each other: what they stored before is seen behind it.
    #[inline(always)]
    #[track_caller]
    pub fn sync(&self) {
        self.together();
        self.group.sync();
    }

    /// Calls `f` for each index below `n`.
    #[inline(always)]
    #[track_caller]
    pub fn each(&self, n: usize, f: impl Fn(usize) + Sync) {
        self.together();
        let mut i = self.group.lane() as usize;
        while i < n {
            f(i);
            i += self.group.lanes() as usize;
        }
        self.group.sync();
    }

    /// What `f` returns on one thread, for all of them.
    #[inline(always)]
    #[track_caller]
    pub fn once<T: Element>(&self, f: impl FnOnce() -> T + Sync) -> T {
        const { small::<T>() };
        self.together();
        sides::once(&self.group, self.turn(), f)
    }

    /// Folds `value(i)` of each `i` below `n` by `fold`, which is associative but for rounding, in an order that [the module](self) says. `nothing` if
    /// `n` is 0. Every thread gets the result.
    #[inline(always)]
    #[track_caller]
    pub fn reduce<T: Element>(
        &self,
        n: usize,
        nothing: T,
        value: impl Fn(usize) -> T + Sync,
        fold: impl Fn(T, T) -> T + Sync,
    ) -> T {
        const { small::<T>() };
        self.together();
        sides::reduce(&self.group, self.turn(), n, nothing, &value, &fold)
    }

    /// The sum of `value(i)` of each `i` below `n`; of integers modulo their range.
    #[inline(always)]
    #[track_caller]
    pub fn sum<T: Number>(&self, n: usize, value: impl Fn(usize) -> T + Sync) -> T {
        self.reduce(n, T::NOTHING, value, T::plus)
    }

    /// The greatest `value(i)`; NaN if any is, and the least of its type if `n` is 0.
    #[inline(always)]
    #[track_caller]
    pub fn max<T: Number>(&self, n: usize, value: impl Fn(usize) -> T + Sync) -> T {
        self.reduce(n, T::LEAST, value, T::greater)
    }

    /// The least `value(i)`; NaN if any is, and the greatest of its type if `n` is 0.
    #[inline(always)]
    #[track_caller]
    pub fn min<T: Number>(&self, n: usize, value: impl Fn(usize) -> T + Sync) -> T {
        self.reduce(n, T::GREATEST, value, T::lesser)
    }

    /// How many of the indices below `n` are as `test` says.
    #[inline(always)]
    #[track_caller]
    pub fn count(&self, n: usize, test: impl Fn(usize) -> bool + Sync) -> usize {
        self.sum(n, |i| u64::from(test(i))) as usize
    }

    /// Whether any is. Not every index is looked at once one is.
    #[inline(always)]
    #[track_caller]
    pub fn any(&self, n: usize, test: impl Fn(usize) -> bool + Sync) -> bool {
        self.together();
        let mut i = self.group.lane() as usize;
        while i < n && !test(i) {
            i += self.group.lanes() as usize;
        }
        self.group.any(i < n)
    }

    /// Whether all are.
    #[inline(always)]
    #[track_caller]
    pub fn all(&self, n: usize, test: impl Fn(usize) -> bool + Sync) -> bool {
        !self.any(n, |i| !test(i))
    }

    /// The first index below `n` that is as `test` says.
    #[inline(always)]
    #[track_caller]
    pub fn find(&self, n: usize, test: impl Fn(usize) -> bool + Sync) -> Option<usize> {
        let found = self.min(n, |i| if test(i) { i as u64 } else { u64::MAX });
        (found != u64::MAX).then_some(found as usize)
    }

    /// Calls `each(i, before)` for each index `i` below `n`, where `before` is the fold of `value(k)` of all `k` below `i`, and `nothing` for 0. Returns
    /// the fold of all of them.
    ///
    /// `fold` is associative but for rounding; the order is what [the module](self) says. `value` is called once for each index.
    #[inline(always)]
    #[track_caller]
    pub fn scan<T: Element>(
        &self,
        n: usize,
        nothing: T,
        value: impl Fn(usize) -> T + Sync,
        fold: impl Fn(T, T) -> T + Sync,
        each: impl Fn(usize, T) + Sync,
    ) -> T {
        const { small::<T>() };
        self.together();
        sides::scan(&self.group, &|| self.turn(), n, nothing, &value, &fold, &each)
    }
}

/// That an element is a word at most, as what goes from warp to warp is.
const fn small<T: Element>() {
    assert!(T::SIZE <= 8, "what a team folds or shares has at most 8 bytes");
}
