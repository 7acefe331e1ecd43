//! Folds on CPU threads of elements that lie one behind the other: plain loops, which compilers vectorise.

use super::{AHEAD, Fold, Order};
use crate::element::Element;
use std::vec::Vec;

/// Elements that are folded before the next ones, where ranks are many: what is kept of them stays in a core's own cache.
const TOGETHER: usize = 256;

/// Folds what every rank contributes to a run of elements: rank `r` has `from[r][i]`, at least as many as `to` has room for, and `as_sent` makes
/// `to[i]` of what they come to. The bits are those of [`each`](super::each).
///
/// # Panics
/// If there are no ranks, or one contributes fewer elements.
pub fn run<F: Fold<W>, W: Element, L: Element>(
    from: &[&[W]],
    to: &mut [L],
    as_sent: impl Fn(F::Acc) -> L + Copy,
) {
    match *from {
        [a] => few::<F, W, L, 1>([a], to, as_sent),
        [a, b] => few::<F, W, L, 2>([a, b], to, as_sent),
        [a, b, c] => few::<F, W, L, 3>([a, b, c], to, as_sent),
        [a, b, c, d] => few::<F, W, L, AHEAD>([a, b, c, d], to, as_sent),
        _ => {
            for (k, to) in to.chunks_mut(TOGETHER).enumerate() {
                many::<F, W, L>(from, k * TOGETHER, to, as_sent);
            }
        }
    }
}

/// Of a constant number of ranks. A function of its own, so that compilers know that nothing else is where `to` is.
#[inline(never)]
fn few<F: Fold<W>, W: Element, L: Element, const N: usize>(
    from: [&[W]; N],
    to: &mut [L],
    as_sent: impl Fn(F::Acc) -> L,
) {
    let from = from.map(|one| &one[..to.len()]);
    for (i, to) in to.iter_mut().enumerate() {
        let of = |rank: usize| F::lift(from[rank][i]);
        let mut folded = of(0);
        if N == 4 && F::ORDER == Order::Tree {
            folded = F::fold(F::fold(folded, of(1)), F::fold(of(2), of(3)));
        } else {
            for rank in 1..N {
                folded = F::fold(folded, of(rank));
            }
        }
        *to = as_sent(F::finish(folded, N as u32));
    }
}

/// Of as many ranks as there are, those elements of each from `first` on.
fn many<F: Fold<W>, W: Element, L: Element>(
    from: &[&[W]],
    first: usize,
    to: &mut [L],
    as_sent: impl Fn(F::Acc) -> L,
) {
    // Of ranks side by side; what is on top is of the last ones.
    let mut stack: Vec<Vec<F::Acc>> = Vec::new();
    let join = |stack: &mut Vec<Vec<F::Acc>>| {
        if let (Some(right), Some(left)) = (stack.pop(), stack.last_mut()) {
            left.iter_mut().zip(right).for_each(|(left, right)| *left = F::fold(*left, right));
        }
    };
    for (rank, one) in from.iter().enumerate() {
        stack.push(one[first..first + to.len()].iter().map(|value| F::lift(*value)).collect());
        // A tree that grows from the left: where the number of ranks so far ends in `n` zeros, `n` pairs are of one size.
        let joins = if F::ORDER == Order::Ranks { rank.min(1) as u32 } else { (rank + 1).trailing_zeros() };
        (0..joins).for_each(|_| join(&mut stack));
    }
    while stack.len() > 1 {
        join(&mut stack);
    }
    for (to, folded) in to.iter_mut().zip(&stack[0]) {
        *to = as_sent(F::finish(*folded, from.len() as u32));
    }
}
