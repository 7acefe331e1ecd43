//! Functions of floating-point numbers, in two tiers.
//!
//! What stands here is exact: one implementation for host and device, with the same bits on both, NaN included (the one of
//! [`element`](mod@crate::element)). [`fast`] is the GPU's own instructions. Both take `f32`, the narrow elements and packs of them, the exact
//! tier `f64` as well; narrow elements are computed as `f32` and rounded once more.
//!
//! ```
//! use fusewire_device::prelude::*;
//! let gelu = |x: f32| 0.5 * x * (1.0 + math::erf(x * core::f32::consts::FRAC_1_SQRT_2));
//! assert_eq!(gelu(1.0), 0.841_344_7);
//! let pack = Pack::<Bf16>::splat(Bf16::from_f32(4.0));
//! assert_eq!(math::sqrt(pack).get(0).to_f32(), 2.0);
//! ```
//!
//! Errors are in units in the last place (ulp) of the result; those measured are in `docs/math.md`. What `core` has for both targets
//! (`abs`, `copysign`, `clamp`, `to_bits`, `count_ones`, `leading_zeros`, `rotate_left`, ..) is not repeated here. `f32::exp` and others
//! of `std` do not exist on the device.

mod erf;
pub mod fast;
mod narrow;
mod trig;
mod wide;

use crate::arch;
use crate::element::{Float, sealed::Sealed, soft};
use crate::pack::Pack;
use crate::plain::Crosses;

/// What these functions take: a floating-point element, or a pack of them.
///
/// Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no floating-point element and no pack of them",
    label = "needs f32, f64, F16, Bf16, F8E4M3, F8E5M2 or a pack"
)]
pub trait Operand: Copy + Sealed {
    /// Each element by one of two functions: `wide` for `f64`, `narrow` for all others.
    #[doc(hidden)]
    fn each<const N: usize>(
        operands: [Self; N],
        narrow: impl Fn([f32; N]) -> f32,
        wide: impl Fn([f64; N]) -> f64,
    ) -> Self;
}

impl<T: Float> Operand for T {
    #[inline(always)]
    fn each<const N: usize>(
        operands: [Self; N],
        narrow: impl Fn([f32; N]) -> f32,
        wide: impl Fn([f64; N]) -> f64,
    ) -> Self {
        if T::CODE == f64::CODE {
            T::from_bits64(wide(operands.map(|x| f64::from_bits(x.to_bits64()))).to_bits())
        } else {
            T::from_f32(narrow(operands.map(Float::to_f32)))
        }
    }
}

impl<T: Float> Sealed for Pack<T> {}
impl<T: Float> Operand for Pack<T> {
    #[inline(always)]
    fn each<const N: usize>(
        operands: [Self; N],
        narrow: impl Fn([f32; N]) -> f32,
        wide: impl Fn([f64; N]) -> f64,
    ) -> Self {
        if T::CODE == f64::CODE {
            Pack::from_fn(|k| T::each(operands.map(|x| x.get(k)), &narrow, &wide))
        } else {
            let values = operands.map(Pack::to_f32s);
            Pack::from_f32s(|k| narrow(values.map(|of| of[k])))
        }
    }
}

// Processors differ in the NaN that they make. By integers: LLVM takes a selection by comparing floats away where it knows that one is NaN.

#[inline(always)]
fn one_nan(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { soft::NAN.to_bits() } else { bits })
}

#[inline(always)]
fn one_wide_nan(x: f64) -> f64 {
    let bits = x.to_bits();
    f64::from_bits(if bits & (u64::MAX >> 1) > f64::INFINITY.to_bits() { u64::MAX >> 1 } else { bits })
}

macro_rules! functions {
    ($nan:expr; $($(#[$doc:meta])* $name:ident($($x:ident),*), $narrow:expr, $wide:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<T: Operand>($($x: T),*) -> T {
            T::each([$($x),*], |[$($x),*]| $nan($narrow($($x),*)), |[$($x),*]| one_wide_nan($wide($($x),*)))
        }
    )*};
}

functions! {
    one_nan;
    /// e to the power of `x`.
    exp(x), narrow::exp, wide::exp;
    /// 2 to the power of `x`.
    exp2(x), narrow::exp2, wide::exp2;
    /// Natural logarithm; -infinity of zero, NaN below.
    ln(x), narrow::ln, wide::ln;
    /// Logarithm of base 2; -infinity of zero, NaN below.
    log2(x), narrow::log2, wide::log2;
    /// `x` to the power of `y`; special cases as C's `pow` has them.
    pow(x, y), narrow::pow, wide::pow;
    /// Square root, the nearest value; NaN below zero, -0 of -0.
    sqrt(x), arch::sqrt_f32, arch::sqrt_f64;
    /// 1 / sqrt(`x`); infinity of zero, with its sign, NaN below.
    rsqrt(x), narrow::rsqrt, wide::rsqrt;
    /// 1 / `x`, the nearest value.
    recip(x), |x: f32| 1.0 / x, |x: f64| 1.0 / x;
    /// Hyperbolic tangent.
    tanh(x), narrow::tanh, wide::tanh;
    /// Error function: 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to `x`.
    erf(x), narrow::erf, wide::erf;
    /// Sine of `x` in radians, of any size; NaN of infinity.
    sin(x), narrow::sin, trig::sin;
    /// Cosine of `x` in radians, of any size; NaN of infinity.
    cos(x), narrow::cos, trig::cos;
    /// The largest whole number that is not above `x`.
    floor(x), arch::floor_f32, arch::floor_f64;
    /// The smallest whole number that is not below `x`.
    ceil(x), arch::ceil_f32, arch::ceil_f64;
    /// `x` without its fraction.
    trunc(x), arch::trunc_f32, arch::trunc_f64;
    /// The nearest whole number, the even one of two.
    round_ties_even(x), arch::round_ties_even_f32, arch::round_ties_even_f64;
    /// The nearest whole number, of two the one further from zero: the `round` of Rust's floats.
    round(x), narrow::round, wide::round;
}

// Of these the instruction for `f32` gives the one NaN.
functions! {
    core::convert::identity;
    /// `x * y + z`, rounded once.
    fma(x, y, z), arch::fma_f32, arch::fma_f64;
    /// The smaller one, -0 below 0; of a number and NaN the number.
    min(x, y), arch::min_f32, arch::min_f64;
    /// The larger one, 0 above -0; of a number and NaN the number.
    max(x, y), arch::max_f32, arch::max_f64;
    /// The smaller one, -0 below 0; NaN if either is.
    min_nan(x, y), arch::min_nan_f32, arch::min_nan_f64;
    /// The larger one, 0 above -0; NaN if either is.
    max_nan(x, y), arch::max_nan_f32, arch::max_nan_f64;
}
