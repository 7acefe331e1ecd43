//! The exact tier of `f64`: where one `f64` is not enough, a sum of two is carried. And what `f32` shares with it.
//!
//! On the device these are called, and not inlined: a pack has up to eight of each, and kernels of that size are not inlined themselves.

use crate::arch;
use core::f64::consts::{LN_2, LOG2_E};

const LN_2_LOW: f64 = 2.3190468138462996e-17;
const LOG2_E_LOW: f64 = 2.0355273740931033e-17;
const THIRD_LOW: f64 = 1.850371707708594e-17;

/// A number as the sum of two, the second below the last bit of the first.
type Sum = (f64, f64);

/// 1/n! for n = `first`, `first + step`, ..; each the nearest `f64` up to n = 18.
pub(super) const fn inverse_factorials<const N: usize>(first: usize, step: usize) -> [f64; N] {
    let mut terms = [0.0; N];
    let (mut n, mut factorial, mut at) = (0, 1.0, 0);
    while at < N {
        if n == first + step * at {
            terms[at] = 1.0 / factorial;
            at += 1;
        }
        n += 1;
        factorial *= n as f64;
    }
    terms
}

const EXP: [f64; 12] = inverse_factorials(2, 1);
/// 1/5, 1/7, ..: what follows s + s^3 / 3 in half the logarithm of (1 + s) / (1 - s).
const LOG: [f64; 11] = {
    let mut terms = [0.0; 11];
    let mut n = 0;
    while n < 11 {
        terms[n] = 1.0 / (2 * n + 5) as f64;
        n += 1;
    }
    terms
};

/// The polynomial with these coefficients, the constant first.
#[inline(always)]
pub(super) fn horner<const N: usize>(x: f64, coefficients: &[f64; N]) -> f64 {
    let mut sum = 0.0;
    for k in 0..N {
        sum = sum * x + coefficients[N - 1 - k];
    }
    sum
}

/// `t` as the nearest whole number and the rest, for |t| below 2^31.
#[inline(always)]
pub(super) fn split(t: f64) -> (i32, f64) {
    // At this size the last bit of an `f64` is worth 1, and the low half of its bits is the number.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let rounded = t + ROUND;
    (rounded.to_bits() as i32, t - (rounded - ROUND))
}

/// 2^k, for k from -1022 to 1023.
#[inline(always)]
pub(super) fn power_of_two(k: i32) -> f64 {
    f64::from_bits((k.wrapping_add(1023) as u64) << 52)
}

/// A positive normal `x` as 2^k * m, m from the square root of one half to that of two.
#[inline(always)]
pub(super) fn parts(x: f64) -> (f64, f64) {
    const LEAST: u64 = core::f64::consts::FRAC_1_SQRT_2.to_bits();
    let bits = x.to_bits().wrapping_sub(LEAST);
    ((bits as i64 >> 52) as f64, f64::from_bits((bits & ((1 << 52) - 1)) + LEAST))
}

#[inline(always)]
fn product(a: f64, b: f64) -> Sum {
    let high = a * b;
    (high, arch::fma_f64(a, b, -high))
}

/// The logarithm of base 2 of a positive finite `x`, to 63 bits.
#[inline(always)]
fn log2_of(x: f64) -> Sum {
    let small = x < f64::MIN_POSITIVE;
    let (k, m) = parts(if small { x * power_of_two(54) } else { x });
    let k = if small { k - 54.0 } else { k };
    // s = (m - 1) / (m + 1), of which m - 1 is exact.
    let (f, d) = (m - 1.0, m + 1.0);
    let d_low = m - (d - 1.0);
    let s = f / d;
    let s_low = (arch::fma_f64(-s, d, f) - s * d_low) / d;
    // 1 + z/3 + z^2/5 + .., z = s^2
    let (z, z_low) = product(s, s);
    let z_low = z_low + 2.0 * s * s_low;
    let tail = z * horner(z, &LOG);
    let a = 1.0 / 3.0 + tail;
    let a_low = (1.0 / 3.0 - a + tail) + THIRD_LOW;
    let (p, p_low) = product(z, a);
    let p_low = p_low + (z * a_low + z_low * a);
    let u = 1.0 + p;
    let u_low = (1.0 - u + p) + p_low;
    let (w, w_low) = product(s, u);
    let w_low = w_low + (s * u_low + s_low * u);
    let (l, l_low) = product(w, 2.0 * LOG2_E);
    let l_low = l_low + (w * (2.0 * LOG2_E_LOW) + w_low * (2.0 * LOG2_E));
    let sum = k + l;
    (sum, (k - sum + l) + l_low)
}

/// 2^(t + low) as 2^k * (1 + e), `t` of at most 2^31 in magnitude.
#[inline(always)]
fn exp2_parts((t, low): Sum) -> (i32, f64) {
    let (k, short) = split(t);
    let rest = short + low;
    let rest_low = (short - rest) + low;
    let (g, g_low) = product(rest, LN_2);
    let g_low = g_low + (rest * LN_2_LOW + rest_low * LN_2);
    (k, g + (g * g * horner(g, &EXP) + (g_low + g_low * g)))
}

/// 2^(t + low).
#[inline(always)]
fn exp2_of((t, low): Sum) -> f64 {
    // Where the result is infinite or zero, `low` may be anything.
    let (t, low) = if t > 1100.0 { (1100.0, 0.0) } else { (t, low) };
    let (k, e) = exp2_parts(if t < -1100.0 { (-1100.0, 0.0) } else { (t, low) });
    // In two steps, for neither infinity nor what is subnormal is a power of two to multiply by.
    (1.0 + e) * power_of_two(k >> 1) * power_of_two(k - (k >> 1))
}

#[inline(always)]
fn times_log2_e(x: f64) -> Sum {
    let (t, low) = product(x, LOG2_E);
    (t, low + x * LOG2_E_LOW)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn exp(x: f64) -> f64 {
    exp2_of(times_log2_e(x))
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn exp2(x: f64) -> f64 {
    exp2_of((x, 0.0))
}

/// A logarithm `of` positive finite numbers, for all.
#[inline(always)]
pub(super) fn logarithm(x: f64, of: impl FnOnce(f64) -> f64) -> f64 {
    if x > 0.0 && x < f64::INFINITY {
        of(x)
    } else if x == 0.0 {
        f64::NEG_INFINITY
    } else if x > 0.0 {
        x
    } else {
        f64::NAN
    }
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn log2(x: f64) -> f64 {
    logarithm(x, |x| {
        let (high, low) = log2_of(x);
        high + low
    })
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn ln(x: f64) -> f64 {
    logarithm(x, |x| {
        let (high, low) = log2_of(x);
        let (l, l_low) = product(high, LN_2);
        l + (l_low + (high * LN_2_LOW + low * LN_2))
    })
}

/// A power `of` a positive finite base and a finite exponent, for all of both.
#[inline(always)]
pub(super) fn power(x: f64, y: f64, of: impl FnOnce(f64, f64) -> f64) -> f64 {
    if y == 0.0 || x == 1.0 {
        return 1.0;
    }
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    let a = x.abs();
    let whole = y.abs() >= power_of_two(53) || (y as i64) as f64 == y;
    let odd = whole && y.abs() < power_of_two(53) && y as i64 & 1 == 1;
    let sign = if odd { 1f64.copysign(x) } else { 1.0 };
    if a == 0.0 || a == f64::INFINITY {
        return if (a == 0.0) == (y > 0.0) { 0f64.copysign(sign) } else { f64::INFINITY.copysign(sign) };
    }
    if x < 0.0 && !whole {
        return f64::NAN;
    }
    if y.abs() == f64::INFINITY {
        return match a == 1.0 {
            true => 1.0,
            false if (a > 1.0) == (y > 0.0) => f64::INFINITY,
            false => 0.0,
        };
    }
    sign * of(a, y)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn pow(x: f64, y: f64) -> f64 {
    power(x, y, |a, y| {
        let (l, l_low) = log2_of(a);
        let (t, low) = product(y, l);
        exp2_of((t, low + y * l_low))
    })
}

/// The hyperbolic tangent by e^t = 2^k * (1 + e), k not negative.
#[inline(always)]
pub(super) fn tangent(x: f64, exp_parts: impl FnOnce(f64) -> (i32, f64)) -> f64 {
    let a = x.abs();
    if a > 22.0 {
        return 1f64.copysign(x);
    }
    // Below, x^3 / 3 does not reach the last bit. It would be lost in products that underflow.
    if a < power_of_two(-28) {
        return x;
    }
    let (k, e) = exp_parts(2.0 * a);
    let scale = power_of_two(k);
    // e^2a - 1
    let t = scale * e + (scale - 1.0);
    (t / (t + 2.0)).copysign(x)
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn tanh(x: f64) -> f64 {
    tangent(x, |t| exp2_parts(times_log2_e(t)))
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn erf(x: f64) -> f64 {
    super::erf::error_function(x, exp)
}

#[inline(always)]
pub fn round(x: f64) -> f64 {
    let whole = arch::trunc_f64(x);
    if (x - whole).abs() >= 0.5 { whole + 1f64.copysign(x) } else { whole }
}

#[inline(always)]
pub fn rsqrt(x: f64) -> f64 {
    1.0 / arch::sqrt_f64(x)
}
