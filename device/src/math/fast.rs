//! The GPU's approximations: a few instructions each, for `f32`, the narrow elements and packs of them.
//!
//! Subnormal arguments and results count as zero, as with `-use_fast_math` in CUDA C++. The host has the exact tier instead, so bits differ
//! between the two. `docs/math.md` has the errors.

use super::{Operand, narrow};
use crate::arch;
use crate::element::{Bf16, F8E4M3, F8E5M2, F16};
use crate::pack::Pack;
use core::f32::consts::{LN_2, LOG2_E};

/// What these functions take. GPUs approximate no `f64`.
#[diagnostic::on_unimplemented(
    message = "there is no fast math for `{Self}`",
    label = "needs f32, F16, Bf16, F8E4M3, F8E5M2 or a pack of them",
    note = "`math` has the same functions for f64"
)]
pub trait Fast: Operand {
    /// 2 to the power of each.
    #[doc(hidden)]
    #[inline(always)]
    fn each_exp2(self) -> Self {
        each([self], |[x]| arch::exp2_approx(x))
    }
    /// The hyperbolic tangent of each.
    #[doc(hidden)]
    #[inline(always)]
    fn each_tanh(self) -> Self {
        each([self], |[x]| arch::tanh_approx(x))
    }
}

impl Fast for f32 {}
impl Fast for F16 {}
impl Fast for Bf16 {}
impl Fast for F8E4M3 {}
impl Fast for F8E5M2 {}
impl Fast for Pack<f32> {}
impl Fast for Pack<F8E4M3> {}
impl Fast for Pack<F8E5M2> {}

// Two at a time.
impl Fast for Pack<F16> {
    #[inline(always)]
    fn each_exp2(self) -> Self {
        Pack::from_words(self.words().map(arch::exp2_approx_f16x2))
    }
    #[inline(always)]
    fn each_tanh(self) -> Self {
        Pack::from_words(self.words().map(arch::tanh_approx_f16x2))
    }
}

impl Fast for Pack<Bf16> {
    #[inline(always)]
    fn each_exp2(self) -> Self {
        Pack::from_words(self.words().map(arch::exp2_approx_bf16x2))
    }
    #[inline(always)]
    fn each_tanh(self) -> Self {
        Pack::from_words(self.words().map(arch::tanh_approx_bf16x2))
    }
}

#[inline(always)]
fn each<T: Operand, const N: usize>(operands: [T; N], f: impl Fn([f32; N]) -> f32) -> T {
    // No operand is an `f64`.
    T::each(operands, f, |wide| wide[0])
}

/// 2 to the power of `x`: `ex2.approx`, two at a time in packs of [`F16`] and [`Bf16`].
#[inline(always)]
pub fn exp2<T: Fast>(x: T) -> T {
    x.each_exp2()
}

/// e to the power of `x`: `ex2.approx` of `x * log2(e)`, whose rounding the result has as an error that grows with |x|.
#[inline(always)]
pub fn exp<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::exp2_approx(x * LOG2_E))
}

/// Logarithm of base 2: `lg2.approx`.
#[inline(always)]
pub fn log2<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::log2_approx(x))
}

/// Natural logarithm: `lg2.approx`, scaled.
#[inline(always)]
pub fn ln<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::log2_approx(x) * LN_2)
}

/// `x` to the power of `y`, `x` not negative: `lg2.approx` and `ex2.approx`. The error grows with the logarithm of the result.
#[inline(always)]
pub fn pow<T: Fast>(x: T, y: T) -> T {
    each([x, y], |[x, y]| arch::exp2_approx(y * arch::log2_approx(x)))
}

/// Square root: `sqrt.approx`.
#[inline(always)]
pub fn sqrt<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::sqrt_approx(x))
}

/// 1 / sqrt(`x`): `rsqrt.approx`.
#[inline(always)]
pub fn rsqrt<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::rsqrt_approx(x))
}

/// 1 / `x`: `rcp.approx`.
#[inline(always)]
pub fn recip<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::recip_approx(x))
}

/// Sine of `x` in radians: `sin.approx`, for `x` from -pi to pi. Beyond, the error grows with |x|.
#[inline(always)]
pub fn sin<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::sin_approx(x))
}

/// Cosine of `x` in radians: `cos.approx`, for `x` from -pi to pi. Beyond, the error grows with |x|.
#[inline(always)]
pub fn cos<T: Fast>(x: T) -> T {
    each([x], |[x]| arch::cos_approx(x))
}

/// Hyperbolic tangent: `tanh.approx`, good to 11 bits; two at a time in packs of [`F16`] and [`Bf16`].
#[inline(always)]
pub fn tanh<T: Fast>(x: T) -> T {
    x.each_tanh()
}

/// Error function: two polynomials and `ex2.approx`.
#[inline(always)]
pub fn erf<T: Fast>(x: T) -> T {
    each([x], |[x]| if cfg!(target_arch = "nvptx64") { erf_by(x, arch::exp2_approx) } else { narrow::erf(x) })
}

/// The error function by an exponential.
#[doc(hidden)]
#[inline(always)]
pub fn erf_by(x: f32, exp2: impl Fn(f32) -> f32) -> f32 {
    // erf(x) / x - 1 by powers of x^2, to 1; the logarithm of base 2 of 1 - erf(x), from 1 to 4. Both minimax, off by 2^-29 of erf.
    const SMALL: [f32; 7] = [
        0.128_379_17,
        -0.376_126_26,
        0.112_835_854,
        -0.026_853_813,
        0.005_188_33,
        -0.000_801_021_6,
        7.853_939e-05,
    ];
    const LARGE: [f32; 7] = [
        -0.000_494_722_5,
        -1.626_037_4,
        -0.920_663_54,
        -0.148_737_62,
        0.031_498_55,
        -0.004_250_679_6,
        0.000_268_683_07,
    ];
    // Both, without a branch.
    let polynomial =
        |x: f32, of: &[f32; 7]| of[..6].iter().rev().fold(of[6], |sum, c| arch::fma_f32(sum, x, *c));
    let a = x.abs();
    let near = arch::fma_f32(polynomial(x * x, &SMALL), x, x);
    // Beyond 4 the result is 1.
    let far = (1.0 - exp2(polynomial(arch::min_nan_f32(a, 4.0), &LARGE))).copysign(x);
    if a < 1.0 { near } else { far }
}
