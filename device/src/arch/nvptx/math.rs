//! Functions of floating-point numbers. Approximations flush subnormal numbers to zero: without that, the assembler puts two to five
//! instructions around each.

use core::arch::asm;

macro_rules! instructions {
    ($($name:ident($($x:ident),*) -> $t:ty, $class:ident = $ptx:literal;)*) => {$(
        #[doc = concat!("`", $ptx, "`.")]
        #[inline(always)]
        pub fn $name($($x: $t),*) -> $t {
            let value: $t;
            // SAFETY: arithmetic.
            unsafe {
                asm!(concat!($ptx, " {}", $(instructions!(@ $x),)* ";"),
                    out($class) value, $(in($class) $x,)* options(pure, nomem, nostack))
            };
            value
        }
    )*};
    (@ $x:ident) => { ", {}" };
}

instructions! {
    sqrt_f32(x) -> f32, reg32 = "sqrt.rn.f32";
    sqrt_f64(x) -> f64, reg64 = "sqrt.rn.f64";
    floor_f32(x) -> f32, reg32 = "cvt.rmi.f32.f32";
    floor_f64(x) -> f64, reg64 = "cvt.rmi.f64.f64";
    ceil_f32(x) -> f32, reg32 = "cvt.rpi.f32.f32";
    ceil_f64(x) -> f64, reg64 = "cvt.rpi.f64.f64";
    trunc_f32(x) -> f32, reg32 = "cvt.rzi.f32.f32";
    trunc_f64(x) -> f64, reg64 = "cvt.rzi.f64.f64";
    round_ties_even_f32(x) -> f32, reg32 = "cvt.rni.f32.f32";
    round_ties_even_f64(x) -> f64, reg64 = "cvt.rni.f64.f64";
    fma_f32(x, y, z) -> f32, reg32 = "fma.rn.f32";
    fma_f64(x, y, z) -> f64, reg64 = "fma.rn.f64";
    min_f32(x, y) -> f32, reg32 = "min.f32";
    min_f64(x, y) -> f64, reg64 = "min.f64";
    max_f32(x, y) -> f32, reg32 = "max.f32";
    max_f64(x, y) -> f64, reg64 = "max.f64";
    exp2_approx(x) -> f32, reg32 = "ex2.approx.ftz.f32";
    log2_approx(x) -> f32, reg32 = "lg2.approx.ftz.f32";
    sqrt_approx(x) -> f32, reg32 = "sqrt.approx.ftz.f32";
    rsqrt_approx(x) -> f32, reg32 = "rsqrt.approx.ftz.f32";
    recip_approx(x) -> f32, reg32 = "rcp.approx.ftz.f32";
    sin_approx(x) -> f32, reg32 = "sin.approx.ftz.f32";
    cos_approx(x) -> f32, reg32 = "cos.approx.ftz.f32";
}

// As in `convert`: `fusewire_sm` stands for architectures of which rustc knows no features.
#[cfg(any(target_feature = "sm_75", fusewire_sm = "80"))]
instructions! {
    tanh_approx(x) -> f32, reg32 = "tanh.approx.f32";
    tanh_approx_f16x2(x) -> u32, reg32 = "tanh.approx.f16x2";
    exp2_approx_f16x2(x) -> u32, reg32 = "ex2.approx.f16x2";
}

#[cfg(any(target_feature = "sm_80", fusewire_sm = "80"))]
mod of_sm_80 {
    // LLVM's intrinsics: inline PTX takes words, and the sign that `abs` clears in a word costs an instruction, in a float none.
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.fmin.nan.f"]
        fn fmin_nan(x: f32, y: f32) -> f32;
        #[link_name = "llvm.nvvm.fmax.nan.f"]
        fn fmax_nan(x: f32, y: f32) -> f32;
    }

    /// `min.NaN.f32`.
    #[inline(always)]
    pub fn min_nan_f32(x: f32, y: f32) -> f32 {
        // SAFETY: arithmetic.
        unsafe { fmin_nan(x, y) }
    }

    /// `max.NaN.f32`.
    #[inline(always)]
    pub fn max_nan_f32(x: f32, y: f32) -> f32 {
        // SAFETY: arithmetic.
        unsafe { fmax_nan(x, y) }
    }
}
#[cfg(any(target_feature = "sm_80", fusewire_sm = "80"))]
pub use of_sm_80::*;

#[cfg(any(target_feature = "sm_90", fusewire_sm = "90"))]
instructions! {
    tanh_approx_bf16x2(x) -> u32, reg32 = "tanh.approx.bf16x2";
    exp2_approx_bf16x2(x) -> u32, reg32 = "ex2.approx.ftz.bf16x2";
}

macro_rules! nan_of_either {
    ($($name:ident = $of:ident($t:ty);)*) => {$(
        /// NaN if either is; there is no instruction.
        #[inline(always)]
        pub fn $name(x: $t, y: $t) -> $t {
            if x.is_nan() || y.is_nan() { <$t>::from_bits(<$t>::MAX.to_bits() | <$t>::INFINITY.to_bits()) } else { $of(x, y) }
        }
    )*};
}
nan_of_either! {
    min_nan_f64 = min_f64(f64);
    max_nan_f64 = max_f64(f64);
}
#[cfg(not(any(target_feature = "sm_80", fusewire_sm = "80")))]
nan_of_either! {
    min_nan_f32 = min_f32(f32);
    max_nan_f32 = max_f32(f32);
}

/// By `ex2.approx` and `rcp.approx`.
#[cfg(not(any(target_feature = "sm_75", fusewire_sm = "80")))]
#[inline(always)]
pub fn tanh_approx(x: f32) -> f32 {
    let t = exp2_approx(x * (2.0 * core::f32::consts::LOG2_E));
    1.0 - 2.0 * recip_approx(t + 1.0)
}

macro_rules! pairs_as_f32 {
    ($($name:ident = $of:ident, $widen:path, $round:path;)*) => {$(
        /// One by one, as `f32`; there is no instruction.
        #[inline(always)]
        pub fn $name(pair: u32) -> u32 {
            let half = |bits: u16| u32::from($round($of($widen(bits))));
            half(pair as u16) | half((pair >> 16) as u16) << 16
        }
    )*};
}
#[cfg(not(any(target_feature = "sm_75", fusewire_sm = "80")))]
pairs_as_f32! {
    tanh_approx_f16x2 = tanh_approx, super::f16_to_f32, super::f16_from_f32;
    exp2_approx_f16x2 = exp2_approx, super::f16_to_f32, super::f16_from_f32;
}
#[cfg(not(any(target_feature = "sm_90", fusewire_sm = "90")))]
pairs_as_f32! {
    tanh_approx_bf16x2 = tanh_approx, bf16_to_f32, super::bf16_from_f32;
    exp2_approx_bf16x2 = exp2_approx, bf16_to_f32, super::bf16_from_f32;
}

#[cfg(not(any(target_feature = "sm_90", fusewire_sm = "90")))]
#[inline(always)]
fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}
