//! Rows on the wire: whole packs, so that protocols carry them as they carry elements.

use super::groups::{Narrow, Scale, check};
use super::{ConsumeRow, Groups, OCTET, Row, Scaled, each_slot, filled, octet, octet_in, team};
use crate::element::Element;
use crate::fold::{AHEAD, Fold, Settle};
use crate::pack::{Pack, unroll};

/// What `produce` may give and `consume` get, where they work by rows.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no row that can cross the wire",
    label = "not a row",
    note = "hooks of `grain = row(N)` put `Row<T>` or `Scaled<T, G>` on the wire, which the module has names for"
)]
pub trait RowWire: Sized {
    /// The type of its packs.
    type Element: Element;
    /// What stands for each of its elements, and is folded.
    type Value: Copy + Default;
    /// Elements of the row.
    const COLS: usize;
    /// Packs of a row.
    const PACKS: usize;
    /// Hands each of its packs to `put`, with its number. Called by all threads that share the row.
    fn hand(&self, put: &impl Fn(u32, Pack<Self::Element>));
    /// The row of which `get` gives the packs, as often as it is asked.
    fn take(get: &impl Fn(u32) -> Pack<Self::Element>) -> Self;
    /// Octet `octet` of that row.
    #[doc(hidden)]
    fn octet(octet: usize, get: &impl Fn(u32) -> Pack<Self::Element>) -> [Self::Value; OCTET];
    /// The octet in slot `slot` of this one.
    #[doc(hidden)]
    fn slot(&self, slot: usize) -> [Self::Value; OCTET];
}

impl<T: Element, const N: usize, const S: usize> RowWire for Row<T, N, S> {
    type Element = T;
    type Value = T;
    const COLS: usize = N;
    const PACKS: usize = N * T::SIZE / 16;

    #[inline(always)]
    fn hand(&self, put: &impl Fn(u32, Pack<T>)) {
        if const { T::SIZE == 1 } {
            return halves(self, put);
        }
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
            octet::each_pack(&self.octets[K], |pack, value| {
                put((octet * const { octet::packs::<T>() } + pack) as u32, value);
            });
        });
    }

    #[inline(always)]
    fn take(get: &impl Fn(u32) -> Pack<T>) -> Self {
        Row::of_slots(|_, octet| Self::octet(octet, get))
    }

    #[inline(always)]
    fn octet(octet: usize, get: &impl Fn(u32) -> Pack<T>) -> [T; OCTET] {
        if const { T::SIZE == 1 } {
            let [a, b, c, d] = get((octet / 2) as u32).words();
            let [low, high] = if octet.is_multiple_of(2) { [a, b] } else { [c, d] };
            return octet::of_bytes(u64::from(low) | u64::from(high) << 32);
        }
        octet::of_packs(|pack| get((octet * const { octet::packs::<T>() } + pack) as u32))
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> [T; OCTET] {
        self.octets[slot]
    }
}

/// Hands on elements of one byte, of which two octets are a pack.
#[inline(always)]
fn halves<T: Element, const N: usize, const S: usize>(row: &Row<T, N, S>, put: &impl Fn(u32, Pack<T>)) {
    let words = |octet: &[T; OCTET]| {
        let bytes = octet::bytes(octet);
        [bytes as u32, (bytes >> 32) as u32]
    };
    #[cfg(target_arch = "nvptx64")]
    each_slot!(S, |K| {
        // By all lanes of the warp; neighbours are both there or both not.
        let [low, high] = words(&row.octets[K]);
        let others = [low, high].map(|word| crate::arch::exchange(word, 1));
        if let Some(octet) = octet_in::<N>(K)
            && octet.is_multiple_of(2)
        {
            put((octet / 2) as u32, Pack::from_words([low, high, others[0], others[1]]));
        }
    });
    #[cfg(not(target_arch = "nvptx64"))]
    for (k, both) in row.octets.chunks_exact(2).enumerate() {
        let [[a, b], [c, d]] = [&both[0], &both[1]].map(words);
        put(k as u32, Pack::from_words([a, b, c, d]));
    }
}

impl<T: Narrow, F: Scale, const G: usize, const N: usize, const S: usize> Scaled<T, F, G, N, S> {
    /// Packs of the scales, behind those of the values.
    const TAIL: usize = {
        check::<G, N>();
        (N / G * F::SIZE).div_ceil(16)
    };

    /// The scale of octet `octet`.
    #[inline(always)]
    fn scale(octet: usize, get: &impl Fn(u32) -> Pack<T>) -> F {
        let at = octet / (G / OCTET) * F::SIZE;
        let [a, b, c, d] = get((Row::<T, N, S>::PACKS + at / 16) as u32).words();
        // No index, which would keep them in memory.
        let [low, high] = if at % 8 < 4 { [a, c] } else { [b, d] };
        let word = if at % 16 < 8 { low } else { high };
        F::from_bits(if F::SIZE == 1 { word >> (8 * (at % 4)) & 0xff } else { word })
    }
}

impl<T: Narrow, F: Scale, const G: usize, const N: usize, const S: usize> RowWire for Scaled<T, F, G, N, S> {
    type Element = T;
    type Value = f32;
    const COLS: usize = N;
    const PACKS: usize = Row::<T, N, S>::PACKS + Self::TAIL;

    #[inline(always)]
    fn hand(&self, put: &impl Fn(u32, Pack<T>)) {
        self.values.hand(put);
        let behind = Row::<T, N, S>::PACKS as u32;
        let meeting = team::Meeting::<N>::new();
        let scratch = meeting.scales();
        self.scales.each_first(|group, scale| {
            let at = (group * F::SIZE) as u32;
            // SAFETY: each group's bytes are one thread's.
            unsafe {
                match F::SIZE {
                    1 => scratch.store_1(at, scale.to_bits() as u8),
                    _ => scratch.store_4(at, scale.to_bits()),
                }
            }
        });
        meeting.meet();
        let mut pack = team::lane::<N>();
        while pack < Self::TAIL as u32 {
            // SAFETY: stored before the threads met, and stored to again when they have met once more.
            put(behind + pack, Pack::from_words(unsafe { scratch.load_16(16 * pack) }));
            pack += if cfg!(target_arch = "nvptx64") { const { super::lanes(N) } } else { 1 };
        }
        meeting.end();
    }

    #[inline(always)]
    fn take(get: &impl Fn(u32) -> Pack<T>) -> Self {
        let mut scales = filled::<_, S>(F::default());
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
            scales[K] = Self::scale(octet, get);
        });
        Scaled { values: Row::take(get), scales: Groups { values: scales } }
    }

    #[inline(always)]
    fn octet(octet: usize, get: &impl Fn(u32) -> Pack<T>) -> [f32; OCTET] {
        let scale = Self::scale(octet, get).to_f32();
        let mut out = octet::widened(&Row::<T, N, S>::octet(octet, get));
        unroll!(OCTET = 8, |K| out[K] *= scale);
        out
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> [f32; OCTET] {
        let scale = self.scales.values[slot].to_f32();
        let mut out = octet::widened(&self.values.octets[slot]);
        unroll!(OCTET = 8, |K| out[K] *= scale);
        out
    }
}

/// What becomes of a row that was folded in `A`, for `consume` and for other ranks: `reduce(.., result = ..)` names it.
#[diagnostic::on_unimplemented(
    message = "a row that was folded in `{A}` does not become `{Self}`",
    label = "not made of a row of `{A}`",
    note = "a result is `Row<T>`, where a `T` is made of one `{A}`, or, of rows that are folded in f32, `Scaled<T, G>`"
)]
pub trait SettledRow<A, const N: usize, const S: usize>: RowWire {
    /// Each element rounded once. Called by all threads that share the row.
    fn settled(folded: Row<A, N, S>, ctx: &ConsumeRow<N, S>) -> Self;
}

impl<A: Element, T: Settle<A>, const N: usize, const S: usize> SettledRow<A, N, S> for Row<T, N, S> {
    #[inline(always)]
    fn settled(folded: Row<A, N, S>, ctx: &ConsumeRow<N, S>) -> Self {
        let _ = ctx;
        folded.map(T::settle)
    }
}

impl<T: Narrow, F: Scale, const G: usize, const N: usize, const S: usize> SettledRow<f32, N, S>
    for Scaled<T, F, G, N, S>
{
    #[inline(always)]
    fn settled(folded: Row<f32, N, S>, ctx: &ConsumeRow<N, S>) -> Self {
        folded.quantise(ctx)
    }
}

/// How much room a row `L` takes that was folded of rows `W`, in those: [`Hooks::RELAYS`](crate::hooks::Hooks::RELAYS).
pub const fn relays<W: RowWire, L: RowWire>() -> usize {
    L::PACKS.div_ceil(W::PACKS)
}

/// Folds a row that every rank contributes: `of` gives the packs of each rank's, and `own` is this rank's, and its number, where it is at hand.
/// `RANKS`: as [`Hooks::fold_row`](crate::hooks::Hooks::fold_row) says.
#[doc(hidden)]
#[inline(always)]
pub fn fold<F, R, const N: usize, const S: usize, const RANKS: usize>(
    ranks: u32,
    own: Option<(u32, R)>,
    of: &impl Fn(u32, u32) -> Pack<R::Element>,
) -> Row<F::Acc, N, S>
where
    F: Fold<R::Value>,
    R: RowWire,
{
    let mut octets = filled::<_, S>([F::Acc::default(); OCTET]);
    if const { RANKS > 0 } {
        // Said where there are so many.
        let Some((me, row)) = &own else { return Row { octets } };
        // All is loaded before any is folded, and nothing between branches: which rank is this one selects between registers.
        each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
            let mut others = [[R::Value::default(); OCTET]; AHEAD];
            unroll!(AHEAD = 4, |P| if const { P + 1 < RANKS } {
                others[P] = R::octet(octet, &|pack| of(P as u32, pack));
            });
            let own = row.slot(K);
            // Values, not closures over them: what those refer to would go to local memory, and each slot would wait for it.
            let mut all = [own; AHEAD];
            unroll!(AHEAD = 4, |P| if const { P < RANKS } {
                let other = if (P as u32) < *me { others[P] } else { others[P.saturating_sub(1)] };
                all[P] = if P as u32 == *me { own } else { other };
            });
            let of_rank = |rank: usize| octet::of(|e| F::lift(all[rank][e]));
            octets[K] = crate::fold::octet::<F, R::Value, _, false>(RANKS as u32, |_, _| Some(of_rank))
                .unwrap_or_default();
        });
        return Row { octets };
    }
    each_slot!(S, |K| if let Some(octet) = octet_in::<N>(K) {
        let contributed = |first: u32, some: u32| {
            let mut all = [[R::Value::default(); OCTET]; AHEAD];
            unroll!(AHEAD = 4, |P| if (P as u32) < some {
                let rank = first + P as u32;
                all[P] = match &own {
                    Some((me, row)) if *me == rank => row.slot(K),
                    _ => R::octet(octet, &|pack| of(rank, pack)),
                };
            });
            Some(move |k: usize| octet::of(|e| F::lift(all[k][e])))
        };
        octets[K] = crate::fold::octet::<F, R::Value, _, true>(ranks, contributed).unwrap_or_default();
    });
    Row { octets }
}
