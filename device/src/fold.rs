//! Folds: what all ranks contribute to an element becomes one value.
//!
//! `#[comm_kernel(reduce(sum, f32))]` names one. Each contribution is lifted from its wire type to the accumulator's, the accumulators are folded in
//! the order that the fold declares, and `consume` gets the result, once. The order follows the numbers of the ranks, so the bits of the result
//! depend on the contributions and on nothing else: not on the size, the protocol, the number of blocks, the transport, nor on who arrives first.

mod partial;
#[cfg(not(target_arch = "nvptx64"))]
mod runs;
mod tree;

pub use partial::{Partials, join, partial, partials};

#[cfg(not(target_arch = "nvptx64"))]
pub use runs::run;
pub use tree::{AHEAD, MOST_RANKS};
pub(crate) use tree::{TOGETHER, octet};

use crate::args::Out;
use crate::ctx::Consume;
use crate::element::{Bf16, Element, F8E4M3, F8E5M2, F16, Float};
use crate::math;
use crate::pack::{Pack, together, unroll};
use core::marker::PhantomData;

/// In which order contributions are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A tree over the numbers of the ranks. The ranks `a..b` are split behind the largest power of two that is less than their number:
    /// `fold(fold(0, 1), fold(2, 3))`, and `fold(fold(fold(0, 1), fold(2, 3)), 4)` of five.
    Tree,
    /// From rank 0 up: `fold(fold(fold(0, 1), 2), 3)`.
    Ranks,
}

/// How contributions become one value. `W` is the wire type.
///
/// A module may have one of its own, and name it in the attribute:
///
/// ```
/// use fusewire_device::fold::Fold;
///
/// /// The value that is farthest from zero.
/// pub struct Farthest;
///
/// impl Fold<f32> for Farthest {
///     type Acc = f32;
///     fn lift(value: f32) -> f32 {
///         value
///     }
///     fn fold(left: f32, right: f32) -> f32 {
///         if right.abs() > left.abs() { right } else { left }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not fold values of `{W}`",
    label = "no fold of `{W}`",
    note = "a fold of your own has an `impl Fold<{W}> for` it: what `lift` makes of a value, and `fold` of two"
)]
pub trait Fold<W>: 'static {
    /// What is folded, and what `consume` gets.
    type Acc: Element;
    /// In which order.
    const ORDER: Order = Order::Tree;

    /// A contribution as it arrived.
    fn lift(value: W) -> Self::Acc;
    /// Two accumulators, of which the contributions of `left` are of lower ranks.
    fn fold(left: Self::Acc, right: Self::Acc) -> Self::Acc;
    /// What `consume` gets, of the accumulator of `ranks` contributions.
    #[inline(always)]
    fn finish(folded: Self::Acc, ranks: u32) -> Self::Acc {
        let _ = ranks;
        folded
    }
}

/// A wire type that the accumulator `A` holds exactly.
#[diagnostic::on_unimplemented(
    message = "an accumulator `{A}` does not hold every `{Self}`",
    label = "`{Self}` cannot be lifted to `{A}`",
    note = "name an accumulator that does: f32 for F16, Bf16, F8E4M3, F8E5M2; f64 for f32; a wider integer of the same sign; or the wire type itself"
)]
pub trait Lift<A>: Element {
    /// The same value.
    fn lift(self) -> A;
}

/// An accumulator that becomes a `result`, or an output's element where a module has no `consume`.
#[diagnostic::on_unimplemented(
    message = "an accumulator `{A}` does not become an element `{Self}`",
    label = "not made of `{A}`",
    note = "a result or an output may be `{A}`; of f32 also a narrow float, of f64 also f32. Or write a `consume` of `{A}`, which converts as you say"
)]
pub trait Settle<A>: Element {
    /// The nearest value.
    fn settle(folded: A) -> Self;
}

macro_rules! same {
    ($($t:ty)*) => {$(
        impl Lift<$t> for $t {
            #[inline(always)]
            fn lift(self) -> $t {
                self
            }
        }
        impl Settle<$t> for $t {
            #[inline(always)]
            fn settle(folded: $t) -> $t {
                folded
            }
        }
    )*};
}
same! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

macro_rules! wider {
    ($($from:ty => $($to:ty)*;)*) => {$($(
        impl Lift<$to> for $from {
            #[inline(always)]
            fn lift(self) -> $to {
                self.into()
            }
        }
    )*)*};
}
wider! {
    u8 => u16 u32 u64;
    u16 => u32 u64;
    u32 => u64;
    i8 => i16 i32 i64;
    i16 => i32 i64;
    i32 => i64;
    f32 => f64;
}

macro_rules! narrow {
    ($($t:ty)*) => {$(
        impl Lift<f32> for $t {
            #[inline(always)]
            fn lift(self) -> f32 {
                self.to_f32()
            }
        }
        impl Settle<f32> for $t {
            #[inline(always)]
            fn settle(folded: f32) -> $t {
                <$t>::from_f32(folded)
            }
        }
    )*};
}
narrow! { F16 Bf16 F8E4M3 F8E5M2 }

impl Settle<f64> for f32 {
    #[inline(always)]
    fn settle(folded: f64) -> f32 {
        folded.to_f32()
    }
}

/// An accumulator that can be added, multiplied and compared.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no accumulator of `sum`, `product`, `min`, `max` or `average`",
    label = "name f32, f64 or an integer type",
    note = "narrow floats are added up in f32: `reduce(sum, f32)`"
)]
pub trait Number: Element + crate::print::printed::Printed {
    /// The sum; of integers modulo their range.
    fn plus(self, other: Self) -> Self;
    /// The product; of integers modulo their range.
    fn times(self, other: Self) -> Self;
    /// The neutral element of `plus`: -0 of floating-point numbers.
    const NOTHING: Self;
    /// The least of all values.
    const LEAST: Self;
    /// The greatest of all values.
    const GREATEST: Self;
    /// The lesser; NaN if either is, and -0 is less than +0.
    fn lesser(self, other: Self) -> Self;
    /// The greater; NaN if either is, and -0 is less than +0.
    fn greater(self, other: Self) -> Self;
}

/// An accumulator of bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no accumulator of `and`, `or` or `xor`",
    label = "name an integer type"
)]
pub trait Bits: Element {
    /// Bits of both.
    fn and(self, other: Self) -> Self;
    /// Bits of either.
    fn or(self, other: Self) -> Self;
    /// Bits of one.
    fn xor(self, other: Self) -> Self;
}

/// An accumulator that can be divided by the number of ranks.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no accumulator of `average`",
    label = "name f32 or f64",
    note = "of integers take the `sum`, and divide it in `consume`"
)]
pub trait Mean: Number {
    /// Divided by `ranks`, rounded to nearest.
    fn over(self, ranks: u32) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            const NOTHING: Self = 0;
            const LEAST: Self = <$t>::MIN;
            const GREATEST: Self = <$t>::MAX;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                self.max(other)
            }
        }
        impl Bits for $t {
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}
integers! { u8 u16 u32 u64 i8 i16 i32 i64 }

macro_rules! floats {
    ($($t:ty)*) => {$(
        impl Number for $t {
            const NOTHING: Self = -0.0;
            const LEAST: Self = <$t>::NEG_INFINITY;
            const GREATEST: Self = <$t>::INFINITY;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                math::min_nan(self, other)
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                math::max_nan(self, other)
            }
        }
        impl Mean for $t {
            #[inline(always)]
            fn over(self, ranks: u32) -> Self {
                self / ranks as $t
            }
        }
    )*};
}
floats! { f32 f64 }

macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident: $bound:ident, $fold:ident $(, $finish:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<A>(PhantomData<A>);

        impl<A: $bound, W: Lift<A>> Fold<W> for $name<A> {
            type Acc = A;
            #[inline(always)]
            fn lift(value: W) -> A {
                value.lift()
            }
            #[inline(always)]
            fn fold(left: A, right: A) -> A {
                left.$fold(right)
            }
            $(
                #[inline(always)]
                fn finish(folded: A, ranks: u32) -> A {
                    folded.$finish(ranks)
                }
            )?
        }
    )*};
}
folds! {
    /// `reduce(sum, A)`.
    Sum: Number, plus;
    /// `reduce(product, A)`.
    Product: Number, times;
    /// `reduce(min, A)`: NaN if any is, and -0 is less than +0.
    Min: Number, lesser;
    /// `reduce(max, A)`: NaN if any is, and -0 is less than +0.
    Max: Number, greater;
    /// `reduce(and, A)`.
    And: Bits, and;
    /// `reduce(or, A)`.
    Or: Bits, or;
    /// `reduce(xor, A)`.
    Xor: Bits, xor;
    /// `reduce(average, A)`: the sum, divided by the number of ranks.
    Average: Mean, plus, over;
}

/// `F` from rank 0 up: `order = ranks`.
#[derive(Debug)]
pub struct FromRankZero<F>(PhantomData<F>);

impl<W, F: Fold<W>> Fold<W> for FromRankZero<F> {
    type Acc = F::Acc;
    const ORDER: Order = Order::Ranks;
    #[inline(always)]
    fn lift(value: W) -> F::Acc {
        F::lift(value)
    }
    #[inline(always)]
    fn fold(left: F::Acc, right: F::Acc) -> F::Acc {
        F::fold(left, right)
    }
    #[inline(always)]
    fn finish(folded: F::Acc, ranks: u32) -> F::Acc {
        F::finish(folded, ranks)
    }
}

/// What ranks contribute to one pack. A trait and not a closure, since only a method can be made to be inlined however long it is.
pub trait Contributions<W> {
    /// The packs of the `some` ranks from `first` on, at most [`AHEAD`]; behind these anything. Nothing if they do not come. May be asked for again.
    fn of(&self, first: u32, some: u32) -> Option<[Pack<W>; AHEAD]>;
}

impl<W, F: Fn(u32, u32) -> Option<[Pack<W>; AHEAD]>> Contributions<W> for F {
    #[inline(always)]
    fn of(&self, first: u32, some: u32) -> Option<[Pack<W>; AHEAD]> {
        self(first, some)
    }
}

/// Folds what `ranks` ranks contribute, at least one, and hands each element of `ctx` to `take`, with what was folded; whether all came. If not,
/// what was taken before is the first eight elements of more, or nothing. Threads that call this together ask for contributions together.
#[inline(always)]
pub fn each<F: Fold<W>, W: Element>(
    ctx: &Consume,
    ranks: u32,
    of: &impl Contributions<W>,
    take: impl Fn(&Consume, F::Acc),
) -> bool {
    parts::<F, W>(ctx, ranks, of, |part, values| {
        unroll!(TOGETHER = 8, |K| if K < part.valid {
            take(&Consume(part.at(part.pos + K, 1, false)), values[K]);
        });
    })
}

/// As [`each`], for what settles in `out` at the element's own place, as `as_element` makes it one.
#[inline(always)]
pub fn settle<F: Fold<W>, W: Element, T: Element>(
    ctx: &Consume,
    ranks: u32,
    of: &impl Contributions<W>,
    out: Out<'_, T>,
    as_element: impl Fn(F::Acc) -> T,
) -> bool {
    parts::<F, W>(ctx, ranks, of, |part, values| out.at(part).set_first(values.map(&as_element)))
}

/// Packs of `L` for one of `W`, if what was folded is passed on so: as many or more. Else 0.
pub const fn relays<W: Element, L: Element>() -> usize {
    if Pack::<L>::LANES == 0 { 0 } else { L::SIZE / W::SIZE }
}

/// Folds as [`each`] does, makes an `L` of each value, and hands them to `put` pack by pack, with their numbers.
#[inline(always)]
pub fn relay<F: Fold<W>, W: Element, L: Element>(
    ranks: u32,
    of: &impl Contributions<W>,
    as_sent: impl Fn(F::Acc) -> L,
    put: &impl Fn(usize, Pack<L>),
) -> bool {
    passed::<F, W, L>(ranks, of, |folded| as_sent(F::finish(folded, ranks)), put)
}

/// The same of what is not finished.
#[inline(always)]
fn passed<F: Fold<W>, W: Element, L: Element>(
    ranks: u32,
    of: &impl Contributions<W>,
    as_sent: impl Fn(F::Acc) -> L,
    put: &impl Fn(usize, Pack<L>),
) -> bool {
    let mut values = [L::default(); MOST_LANES];
    let Some(low) = some::<F, W, 0>(ranks, of) else { return false };
    unroll!(TOGETHER = 8, |K| values[K] = as_sent(low[K]));
    if Pack::<W>::LANES > TOGETHER {
        let Some(high) = some::<F, W, TOGETHER>(ranks, of) else { return false };
        unroll!(TOGETHER = 8, |K| values[TOGETHER + K] = as_sent(high[K]));
    }
    spread::<W, L>(values, put);
    true
}

/// Elements of a pack at most.
const MOST_LANES: usize = 16;

/// Hands what became of a pack of `W` to `put`, pack by pack.
#[inline(always)]
fn spread<W: Element, L: Element>(values: [L; MOST_LANES], put: &impl Fn(usize, Pack<L>)) {
    unroll!(TOGETHER = 8, |P| if P < relays::<W, L>() {
        let mut some = [L::default(); MOST_LANES];
        unroll!(MOST_LANES = 16, |K| if K < Pack::<L>::LANES {
            some[K] = values[P * Pack::<L>::LANES + K];
        });
        put(P, together(some));
    });
}

/// As [`each`], by up to eight elements.
#[inline(always)]
fn parts<F: Fold<W>, W: Element>(
    ctx: &Consume,
    ranks: u32,
    of: &impl Contributions<W>,
    take: impl Fn(&Consume, [F::Acc; TOGETHER]),
) -> bool {
    let Some(low) = some::<F, W, 0>(ranks, of) else { return false };
    let finish = |folded: [F::Acc; TOGETHER]| folded.map(|value| F::finish(value, ranks));
    if Pack::<W>::LANES <= TOGETHER {
        take(ctx, finish(low));
        return true;
    }
    take(&Consume(ctx.at(ctx.pos, ctx.valid.min(TOGETHER), ctx.whole)), finish(low));
    let Some(high) = some::<F, W, TOGETHER>(ranks, of) else { return false };
    if ctx.valid > TOGETHER {
        take(&Consume(ctx.at(ctx.pos + TOGETHER, ctx.valid - TOGETHER, ctx.whole)), finish(high));
    }
    true
}

/// Those of the elements from `FROM` on.
#[inline(always)]
fn some<F: Fold<W>, W: Element, const FROM: usize>(
    ranks: u32,
    of: &impl Contributions<W>,
) -> Option<[F::Acc; TOGETHER]> {
    octet::<F, W, _, false>(ranks, |first, some| {
        let packs = of.of(first, some)?;
        Some(move |k: usize| lift::<F, W, FROM>(packs[k]))
    })
}

#[inline(always)]
fn lift<F: Fold<W>, W: Element, const FROM: usize>(pack: Pack<W>) -> [F::Acc; TOGETHER] {
    let mut out = [F::Acc::default(); TOGETHER];
    unroll!(TOGETHER = 8, |K| if FROM + K < Pack::<W>::LANES {
        out[K] = F::lift(pack.get(FROM + K));
    });
    out
}

#[cfg(test)]
mod tests;
