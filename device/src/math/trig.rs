//! Sine and cosine. An argument is reduced by as many bits of 2 / pi as it takes, in integers: there is one way for all sizes.

use super::wide::{horner, inverse_factorials, power_of_two};
use crate::arch;
use core::f64::consts::{FRAC_PI_2, FRAC_PI_4};

const FRAC_PI_2_LOW: f64 = 6.123233995736766e-17;

/// 2 / pi, binary digits behind the point; in front of them a word of zeros.
const TWO_OVER_PI: [u64; 20] = [
    0,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
];

const SIN: [f64; 8] = inverse_factorials(3, 2);
const COS: [f64; 8] = inverse_factorials(4, 2);

/// `a` less the nearest multiple of pi / 2, as a sum of two numbers, and that multiple, of which the last two bits count.
#[inline(always)]
fn reduce(a: f64) -> (u32, f64, f64) {
    if a <= FRAC_PI_4 {
        return (0, a, 0.0);
    }
    // a = m * 2^e. The 192 digits from where a product with m begins to be less than 8 decide; those in front add multiples of 8.
    let e = (a.to_bits() >> 52) as i32 - 1075;
    let m = (a.to_bits() & ((1 << 52) - 1)) | 1 << 52;
    let first = (e - 3 + 64) as u32;
    let digits = |k: usize| {
        let (word, shift) = (first as usize / 64 + k, first % 64);
        // None is past the end, which the compiler does not know.
        let word_at = |k: usize| TWO_OVER_PI.get(k).copied().unwrap_or(0) as u128;
        ((word_at(word) << 64 | word_at(word + 1)) >> (64 - shift)) as u64
    };
    let low = m as u128 * digits(2) as u128;
    let mid = m as u128 * digits(1) as u128 + (low >> 64);
    let high = m.wrapping_mul(digits(0)).wrapping_add((mid >> 64) as u64);
    // Three bits are whole, mod 8. The rest is a fraction, of which 128 bits are kept.
    let fraction = ((high as u128) << 64 | mid as u64 as u128) << 3 | (low as u64 >> 61) as u128;
    let above = fraction >> 127 != 0;
    let size = if above { fraction.wrapping_neg() } else { fraction };
    let zeros = size.leading_zeros() & 127;
    let digits = size << zeros;
    let scale = power_of_two(-53 - zeros as i32);
    let f = (digits >> 75) as u64 as f64 * scale;
    let f_low = ((digits >> 22) as u64 & ((1 << 53) - 1)) as f64 * (scale * power_of_two(-53));
    let y = f * FRAC_PI_2;
    let y_low = arch::fma_f64(f, FRAC_PI_2, -y) + (f * FRAC_PI_2_LOW + f_low * FRAC_PI_2);
    let quarter = (high >> 61) as u32 + u32::from(above);
    if above { (quarter, -y, -y_low) } else { (quarter, y, y_low) }
}

/// The sine of the sum, at most pi / 4 in magnitude.
#[inline(always)]
fn sin_of(y: f64, low: f64) -> f64 {
    let z = y * y;
    y + (low * (1.0 - 0.5 * z) - y * z * horner(-z, &SIN))
}

/// The cosine of the sum, at most pi / 4 in magnitude.
#[inline(always)]
fn cos_of(y: f64, low: f64) -> f64 {
    let z = y * y;
    let half = 0.5 * z;
    let near = 1.0 - half;
    near + (((1.0 - near) - half) + (z * z * horner(-z, &COS) - y * low))
}

#[inline(always)]
fn turned(quarter: u32, y: f64, low: f64) -> f64 {
    let value = if quarter & 1 == 0 { sin_of(y, low) } else { cos_of(y, low) };
    if quarter & 2 == 0 { value } else { -value }
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn sin(x: f64) -> f64 {
    let a = x.abs();
    if a < f64::INFINITY {
        let (quarter, y, low) = reduce(a);
        let value = turned(quarter, y, low);
        if x.is_sign_negative() { -value } else { value }
    } else {
        f64::NAN
    }
}

#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn cos(x: f64) -> f64 {
    let a = x.abs();
    if a < f64::INFINITY {
        let (quarter, y, low) = reduce(a);
        turned(quarter.wrapping_add(1), y, low)
    } else {
        f64::NAN
    }
}
