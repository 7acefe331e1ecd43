//! The tree of what ranks contribute: eight elements at a time, in registers or in memory.

use super::{Fold, Order};
use crate::pack::unroll;
use core::marker::PhantomData;

/// Levels of a tree above those of [`AHEAD`] contributions: on GPUs they stay in registers.
const LEVELS: usize = if cfg!(target_arch = "nvptx64") { 5 } else { 14 };

/// Ranks whose contributions a GPU folds at most: a thread keeps an accumulator for each level of the tree.
pub const MOST_RANKS: u32 = ((AHEAD as u32) << 5) - 1;

/// Elements that are folded together.
pub(crate) const TOGETHER: usize = 8;

/// Contributions that are asked for together.
pub const AHEAD: usize = 4;

/// Folds what `ranks` ranks contribute to eight elements. `of` gives those of the ranks that it is asked for, as [`Contributions::of`](super::Contributions::of)
/// does:
/// what each of them is, lifted. `FAR`: of more than [`AHEAD`] ranks, what is folded is kept in memory: for those who have no registers to spare.
#[inline(always)]
pub(crate) fn octet<F: Fold<V>, V, L: Fn(usize) -> [F::Acc; TOGETHER], const FAR: bool>(
    ranks: u32,
    of: impl Fn(u32, u32) -> Option<L>,
) -> Option<[F::Acc; TOGETHER]> {
    let mut tree = Tree::<F, V, FAR>::new();
    let mut last = [F::Acc::default(); TOGETHER];
    let mut rank = 0;
    while rank < ranks {
        let left = ranks - rank;
        let lifted = of(rank, left.min(AHEAD as u32))?;
        if const { matches!(F::ORDER, Order::Ranks) } {
            unroll!(AHEAD = 4, |K| if (K as u32) < left {
                let next = lifted(K);
                last = if rank + K as u32 == 0 { next } else { both::<F, V>(last, next) };
            });
        } else {
            last = lifted(0);
            if left > 1 {
                last = both::<F, V>(last, lifted(1));
            }
            if left > 2 {
                let right = if left > 3 { both::<F, V>(lifted(2), lifted(3)) } else { lifted(2) };
                last = both::<F, V>(last, right);
            }
            if left >= AHEAD as u32 {
                tree.add(rank / AHEAD as u32, last);
            }
        }
        rank += AHEAD as u32;
    }
    let bundle = AHEAD as u32;
    Some(match F::ORDER {
        Order::Ranks => last,
        Order::Tree => tree.whole(ranks / bundle, (!ranks.is_multiple_of(bundle)).then_some(last)),
    })
}

/// A tree that grows from the left, of whole bundles of [`AHEAD`] contributions. Level `l` holds `2^l` of them where bit `l` of their number is
/// set, the lower ranks above.
struct Tree<F: Fold<W>, W, const FAR: bool> {
    levels: [[F::Acc; TOGETHER]; LEVELS],
    wire: PhantomData<W>,
}

impl<F: Fold<W>, W, const FAR: bool> Tree<F, W, FAR> {
    #[inline(always)]
    fn new() -> Self {
        Tree { levels: [[F::Acc::default(); TOGETHER]; LEVELS], wire: PhantomData }
    }

    /// Adds the fold of one bundle behind `before` others.
    #[inline(always)]
    #[allow(unused_assignments)] // by the last of the levels
    fn add(&mut self, before: u32, mut carry: [F::Acc; TOGETHER]) {
        if FAR {
            let mut level = 0;
            while before >> level & 1 == 1 {
                carry = both::<F, W>(self.levels[far(level)], carry);
                level += 1;
            }
            self.levels[far(level)] = carry;
            return;
        }
        // Indices are constants, so that the levels stay in registers.
        let mut placed = false;
        unroll!(LEVELS, |L| if !placed {
            if before >> L & 1 == 1 {
                carry = both::<F, W>(self.levels[L], carry);
            } else {
                self.levels[L] = carry;
                placed = true;
            }
        });
    }

    /// The fold of all `bundles`, and of what comes behind them.
    #[inline(always)]
    #[allow(unused_assignments)] // as above
    fn whole(&self, bundles: u32, behind: Option<[F::Acc; TOGETHER]>) -> [F::Acc; TOGETHER] {
        let (mut right, mut some) = (behind.unwrap_or_default(), behind.is_some());
        if FAR {
            let mut level = 0;
            while bundles >> level > 0 {
                if bundles >> level & 1 == 1 {
                    let left = self.levels[far(level)];
                    right = if some { both::<F, W>(left, right) } else { left };
                    some = true;
                }
                level += 1;
            }
            return right;
        }
        unroll!(LEVELS, |L| if bundles >> L & 1 == 1 {
            right = if some { both::<F, W>(self.levels[L], right) } else { self.levels[L] };
            some = true;
        });
        right
    }
}

/// A level's index that the compiler takes for no constant, so that it lets the levels be in memory.
#[inline(always)]
fn far(level: usize) -> usize {
    crate::arch::opaque(level).min(LEVELS - 1)
}

#[inline(always)]
fn both<F: Fold<W>, W>(left: [F::Acc; TOGETHER], right: [F::Acc; TOGETHER]) -> [F::Acc; TOGETHER] {
    const { assert!(TOGETHER == 8) };
    let f = |k: usize| F::fold(left[k], right[k]);
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}
