//! The exact tier of `f32`: arithmetic of `f64`, rounded once at the end.
//!
//! Each function is off by less than 2^-38 of its value before that, so what comes out is the nearest `f32` unless the true value lies that
//! close to the middle between two. There is no fused multiply-add in it, and exponentials have no branch: the
//! host's compiler vectorises loops of them.

use super::wide::{self, horner, inverse_factorials, parts, power_of_two, split};
use crate::arch;
use core::f64::consts::{LN_2, LOG2_E};

/// 2 / ln 2 / (2n + 1): the logarithm of base 2 of (1 + s) / (1 - s), by powers of s^2.
const LOG2: [f64; 8] = {
    let mut terms = [0.0; 8];
    let mut n = 0;
    while n < 8 {
        terms[n] = 2.0 / LN_2 / (2 * n + 1) as f64;
        n += 1;
    }
    terms
};

const EXP: [f64; 9] = inverse_factorials(2, 1);

/// 2^t as 2^k * (1 + e), `t` of at most 2^31 in magnitude.
#[inline(always)]
fn exp2_parts(t: f64) -> (i32, f64) {
    let (k, rest) = split(t);
    let g = rest * LN_2;
    (k, g + g * g * horner(g, &EXP))
}

/// 2^t for what becomes an `f32`: beyond the bounds it is zero or infinite there.
#[inline(always)]
fn exp2_of(t: f64) -> f64 {
    let t = if t > 200.0 { 200.0 } else { t };
    let (k, e) = exp2_parts(if t < -200.0 { -200.0 } else { t });
    (1.0 + e) * power_of_two(k)
}

/// The logarithm of base 2 of what was a positive finite `f32`: normal as an `f64`.
#[inline(always)]
fn log2_of(x: f64) -> f64 {
    let (k, m) = parts(x);
    let s = (m - 1.0) / (m + 1.0);
    k + s * horner(s * s, &LOG2)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
#[cfg_attr(not(target_arch = "nvptx64"), inline)]
pub fn exp(x: f32) -> f32 {
    exp2_of(x as f64 * LOG2_E) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
#[cfg_attr(not(target_arch = "nvptx64"), inline)]
pub fn exp2(x: f32) -> f32 {
    exp2_of(x as f64) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn log2(x: f32) -> f32 {
    wide::logarithm(x as f64, log2_of) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn ln(x: f32) -> f32 {
    wide::logarithm(x as f64, |x| log2_of(x) * LN_2) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn pow(x: f32, y: f32) -> f32 {
    wide::power(x as f64, y as f64, |a, y| exp2_of(y * log2_of(a))) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn tanh(x: f32) -> f32 {
    wide::tangent(x as f64, |t| exp2_parts(t * LOG2_E)) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn erf(x: f32) -> f32 {
    super::erf::error_function(x as f64, |t| exp2_of(t * LOG2_E)) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn sin(x: f32) -> f32 {
    super::trig::sin(x as f64) as f32
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn cos(x: f32) -> f32 {
    super::trig::cos(x as f64) as f32
}

/// PTX has no such rounding. What is cut off is exact, and one half of it counts as more.
#[inline(always)]
pub fn round(x: f32) -> f32 {
    let whole = arch::trunc_f32(x);
    if (x - whole).abs() >= 0.5 { whole + 1f32.copysign(x) } else { whole }
}

#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    (1.0 / arch::sqrt_f64(x as f64)) as f32
}
