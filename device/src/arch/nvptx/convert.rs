//! Conversions of narrow floating-point numbers.

use core::arch::asm;

/// Rounds to binary16.
#[inline(always)]
pub fn f16_from_f32(value: f32) -> u16 {
    let bits: u16;
    // SAFETY: arithmetic.
    unsafe {
        asm!("cvt.rn.f16.f32 {0}, {1};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
    };
    bits
}

/// Widens binary16.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let value: f32;
    // SAFETY: arithmetic.
    unsafe { asm!("cvt.f32.f16 {0}, {1};", out(reg32) value, in(reg16) bits, options(pure, nomem, nostack)) };
    value
}

// rustc derives the `sm_` features from `target-cpu`, but knows none for `sm_103` and `sm_121`: whoever compiles for those gives
// `--cfg fusewire_sm="80"` and `--cfg fusewire_sm="89"`. Without them the result is the same, only slower.
#[cfg(not(any(target_feature = "sm_80", fusewire_sm = "80")))]
pub use crate::element::soft::{bf16_from_f32, bf16x2_from_f32};
#[cfg(not(any(target_feature = "sm_89", fusewire_sm = "89")))]
pub use crate::element::soft::{e4m3_from_f32, e4m3_to_f32, e4m3x4_from_f32, e4m3x4_to_f32, e5m2_from_f32};

/// Rounds to bfloat16.
#[cfg(any(target_feature = "sm_80", fusewire_sm = "80"))]
#[inline(always)]
pub fn bf16_from_f32(value: f32) -> u16 {
    let bits: u16;
    // SAFETY: arithmetic.
    unsafe {
        asm!("cvt.rn.bf16.f32 {0}, {1};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
    };
    bits
}

/// Rounds two to bfloat16, the first into the low half.
#[cfg(any(target_feature = "sm_80", fusewire_sm = "80"))]
#[inline(always)]
pub fn bf16x2_from_f32(low: f32, high: f32) -> u32 {
    let bits: u32;
    // SAFETY: arithmetic.
    unsafe {
        asm!("cvt.rn.bf16x2.f32 {0}, {1}, {2};",
            out(reg32) bits, in(reg32) high, in(reg32) low, options(pure, nomem, nostack))
    };
    bits
}

/// Widens an 8-bit float with 5 exponent bits, the upper half of a binary16.
#[inline(always)]
pub fn e5m2_to_f32(bits: u8) -> f32 {
    f16_to_f32(u16::from(bits) << 8)
}

#[cfg(any(target_feature = "sm_89", fusewire_sm = "89"))]
mod fp8 {
    use super::asm;

    /// Rounds to an 8-bit float with 4 exponent bits.
    #[inline(always)]
    pub fn e4m3_from_f32(value: f32) -> u8 {
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.satfinite.e4m3x2.f32 {0}, 0f00000000, {1};",
                out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
        };
        bits as u8
    }

    /// Rounds four to 8-bit floats with 4 exponent bits, the first into the lowest byte.
    #[inline(always)]
    pub fn e4m3x4_from_f32([a, b, c, d]: [f32; 4]) -> u32 {
        let bits: u32;
        // SAFETY: arithmetic.
        unsafe {
            asm!("{{ .reg .b16 low, high;",
                "cvt.rn.satfinite.e4m3x2.f32 low, {2}, {1};",
                "cvt.rn.satfinite.e4m3x2.f32 high, {4}, {3};",
                "mov.b32 {0}, {{low, high}}; }}",
                out(reg32) bits, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(pure, nomem, nostack))
        };
        bits
    }

    /// Widens four 8-bit floats with 4 exponent bits, the lowest byte first.
    #[inline(always)]
    pub fn e4m3x4_to_f32(bits: u32) -> [f32; 4] {
        let (low, high): (u32, u32);
        // SAFETY: arithmetic.
        unsafe {
            asm!("{{ .reg .b16 low, high;",
                "mov.b32 {{low, high}}, {2};",
                "cvt.rn.f16x2.e4m3x2 {0}, low;",
                "cvt.rn.f16x2.e4m3x2 {1}, high; }}",
                out(reg32) low, out(reg32) high, in(reg32) bits, options(pure, nomem, nostack))
        };
        let half = |bits: u32| super::f16_to_f32(bits as u16);
        [half(low), half(low >> 16), half(high), half(high >> 16)]
    }

    /// Rounds to an 8-bit float with 5 exponent bits.
    #[inline(always)]
    pub fn e5m2_from_f32(value: f32) -> u8 {
        let bits: u16;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.satfinite.e5m2x2.f32 {0}, 0f00000000, {1};",
                out(reg16) bits, in(reg32) value, options(pure, nomem, nostack))
        };
        bits as u8
    }

    /// Widens an 8-bit float with 4 exponent bits.
    #[inline(always)]
    pub fn e4m3_to_f32(bits: u8) -> f32 {
        let half: u32;
        // SAFETY: arithmetic.
        unsafe {
            asm!("cvt.rn.f16x2.e4m3x2 {0}, {1};",
                out(reg32) half, in(reg16) u16::from(bits), options(pure, nomem, nostack))
        };
        super::f16_to_f32(half as u16)
    }
}
#[cfg(any(target_feature = "sm_89", fusewire_sm = "89"))]
pub use fp8::{e4m3_from_f32, e4m3_to_f32, e4m3x4_from_f32, e4m3x4_to_f32, e5m2_from_f32};
