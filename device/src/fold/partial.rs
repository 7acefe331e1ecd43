//! Folds by domains: what the ranks of a domain contribute is folded ahead of the rest, and stays an accumulator until it is folded with that of the others.
//!
//! The tree over all ranks has a node for each aligned domain, so that the bits are those of [`each`](super::each).

use super::{AHEAD, Contributions, Fold, MOST_LANES, Order, TOGETHER, octet, passed, relays, spread};
use crate::element::Element;
use crate::pack::{Pack, unroll};

/// Packs of accumulators `A` for one of `W`, if some ranks' contributions can be folded ahead of the others': the order is a tree, and accumulators take as much room
/// as what crosses the wire, or more. Else 0.
pub const fn partials<W: Element, A: Element>(order: Order) -> usize {
    match order {
        Order::Tree => relays::<W, A>(),
        Order::Ranks => 0,
    }
}

/// Folds what `ranks` ranks of a domain contribute, and hands the accumulators to `put` pack by pack, with their numbers; as [`relay`](super::relay), but nothing is
/// finished.
#[inline(always)]
pub fn partial<F: Fold<W>, W: Element>(
    ranks: u32,
    of: &impl Contributions<W>,
    put: &impl Fn(usize, Pack<F::Acc>),
) -> bool {
    passed::<F, W, F::Acc>(ranks, of, |folded| folded, put)
}

/// Folds the accumulators of `domains` domains, in which `ranks` ranks contributed: `of` gives a domain's pack of each number that [`partial`] made. What comes of
/// it goes to `put` as by [`relay`](super::relay).
#[inline(always)]
pub fn join<F: Fold<W>, W: Element, L: Element>(
    (domains, ranks): (u32, u32),
    of: &impl Partials,
    as_sent: impl Fn(F::Acc) -> L,
    put: &impl Fn(usize, Pack<L>),
) {
    let mut values = [L::default(); MOST_LANES];
    let Some(low) = joined::<F, W, 0>(domains, of) else { return };
    unroll!(TOGETHER = 8, |K| values[K] = as_sent(F::finish(low[K], ranks)));
    if Pack::<W>::LANES > TOGETHER {
        let Some(high) = joined::<F, W, TOGETHER>(domains, of) else { return };
        unroll!(TOGETHER = 8, |K| values[TOGETHER + K] = as_sent(F::finish(high[K], ranks)));
    }
    spread::<W, L>(values, put);
}

/// What domains have of one pack of the wire. A trait and not a closure, since only a method can be made to be inlined however long it is.
pub trait Partials {
    /// Pack `number` of those that [`partial`] made in `domain`.
    fn of(&self, domain: u32, number: usize) -> [u32; 4];
}

impl<F: Fn(u32, usize) -> [u32; 4]> Partials for F {
    #[inline(always)]
    fn of(&self, domain: u32, number: usize) -> [u32; 4] {
        self(domain, number)
    }
}

/// Those of the elements from `FROM` on.
#[inline(always)]
fn joined<F: Fold<W>, W: Element, const FROM: usize>(
    domains: u32,
    of: &impl Partials,
) -> Option<[F::Acc; TOGETHER]> {
    octet::<F, W, _, false>(domains, |first, some| {
        let mut all = [[F::Acc::default(); TOGETHER]; AHEAD];
        unroll!(AHEAD = 4, |K| if (K as u32) < some {
            all[K] = of_domain::<F, W, FROM>(first + K as u32, of);
        });
        Some(move |k: usize| all[k])
    })
}

/// What one domain has of them.
#[inline(always)]
fn of_domain<F: Fold<W>, W: Element, const FROM: usize>(
    domain: u32,
    of: &impl Partials,
) -> [F::Acc; TOGETHER] {
    let lanes = Pack::<F::Acc>::LANES;
    let elements = if Pack::<W>::LANES < TOGETHER { Pack::<W>::LANES } else { TOGETHER };
    let mut out = [F::Acc::default(); TOGETHER];
    unroll!(TOGETHER = 8, |P| if P * lanes < elements {
        let pack = Pack::<F::Acc>::from_words(of.of(domain, FROM / lanes + P));
        unroll!(TOGETHER = 8, |K| if K < lanes && P * lanes + K < TOGETHER {
            out[P * lanes + K] = pack.get(FROM % lanes + K);
        });
    });
    out
}
