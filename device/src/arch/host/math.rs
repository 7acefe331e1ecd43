//! Functions of floating-point numbers: `std` where it rounds correctly, and the exact tier for what a GPU approximates.

use crate::element::{Bf16, F16, Float, soft};
use crate::math;

macro_rules! rounded {
    ($($name:ident, $wide:ident = $method:ident;)*) => {$(
        /// Rounded correctly.
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            x.$method()
        }
        /// Rounded correctly.
        #[inline(always)]
        pub fn $wide(x: f64) -> f64 {
            x.$method()
        }
    )*};
}
rounded! {
    sqrt_f32, sqrt_f64 = sqrt;
    floor_f32, floor_f64 = floor;
    ceil_f32, ceil_f64 = ceil;
    trunc_f32, trunc_f64 = trunc;
    round_ties_even_f32, round_ties_even_f64 = round_ties_even;
}

/// `x * y + z`, rounded once.
#[inline(always)]
pub fn fma_f32(x: f32, y: f32, z: f32) -> f32 {
    let sum = x.mul_add(y, z);
    if sum.is_nan() { soft::NAN } else { sum }
}

/// `x * y + z`, rounded once.
#[inline(always)]
pub fn fma_f64(x: f64, y: f64, z: f64) -> f64 {
    x.mul_add(y, z)
}

macro_rules! extremes {
    ($t:ty, $min:ident, $max:ident, $min_nan:ident, $max_nan:ident, $nan:expr) => {
        extremes!($t, $min, $min_nan, $nan, <, |);
        extremes!($t, $max, $max_nan, $nan, >, &);
    };
    ($t:ty, $name:ident, $name_nan:ident, $nan:expr, $before:tt, $zero:tt) => {
        /// As PTX has it: of a number and NaN the number.
        #[inline(always)]
        pub fn $name(x: $t, y: $t) -> $t {
            match (x.is_nan(), y.is_nan()) {
                (false, false) => $name_nan(x, y),
                (false, true) => x,
                (true, false) => y,
                (true, true) => $nan,
            }
        }
        /// As PTX has it with `.NaN`: NaN if either is.
        #[inline(always)]
        pub fn $name_nan(x: $t, y: $t) -> $t {
            if x.is_nan() || y.is_nan() {
                $nan
            } else if x == y {
                // The same bits, but for the sign of zero.
                <$t>::from_bits(x.to_bits() $zero y.to_bits())
            } else if x $before y {
                x
            } else {
                y
            }
        }
    };
}
extremes!(f32, min_f32, max_f32, min_nan_f32, max_nan_f32, soft::NAN);
extremes!(f64, min_f64, max_f64, min_nan_f64, max_nan_f64, f64::NAN);

macro_rules! approximated {
    ($($name:ident = $exact:ident;)*) => {$(
        /// Not approximated here.
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            math::$exact(x)
        }
    )*};
}
approximated! {
    exp2_approx = exp2;
    log2_approx = log2;
    sqrt_approx = sqrt;
    rsqrt_approx = rsqrt;
    recip_approx = recip;
    sin_approx = sin;
    cos_approx = cos;
    tanh_approx = tanh;
}

macro_rules! pairs {
    ($($name:ident = $exact:ident of $t:ident;)*) => {$(
        /// Two at a time; not approximated here.
        #[inline(always)]
        pub fn $name(pair: u32) -> u32 {
            let half = |bits: u16| u32::from($t::from_f32(math::$exact($t::from_bits(bits).to_f32())).to_bits());
            half(pair as u16) | half((pair >> 16) as u16) << 16
        }
    )*};
}
pairs! {
    exp2_approx_f16x2 = exp2 of F16;
    tanh_approx_f16x2 = tanh of F16;
    exp2_approx_bf16x2 = exp2 of Bf16;
    tanh_approx_bf16x2 = tanh of Bf16;
}
