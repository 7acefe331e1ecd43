//! `F16`, `Bf16`, `F8E4M3`, `F8E5M2`.
//!
//! Formats: IEEE 754 binary16; bfloat16; OCP 8-bit floating point (e4m3 without infinities, e5m2). Results follow PTX
//! `cvt.rn` (`cvt.rn.satfinite` for 8-bit types): NaN becomes the one canonical NaN, 8-bit types saturate instead of overflowing,
//! infinities included. Widened NaN is `0x7fff_ffff`; a bfloat16 keeps its bits.
//!
//! Arithmetic goes through `f32` and rounds once more. For sums, differences and products of two values that equals the correctly
//! rounded result, since 24 bits are at least `2 * 11 + 2`.

use super::Float;
use crate::arch;
use core::ops::{Add, Mul, Neg, Sub};

macro_rules! narrow {
    ($(#[$doc:meta])* $name:ident, $bits:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name($bits);

        impl $name {
            /// The value with these bits.
            #[inline(always)]
            pub const fn from_bits(bits: $bits) -> Self {
                Self(bits)
            }
            /// The bits.
            #[inline(always)]
            pub const fn to_bits(self) -> $bits {
                self.0
            }
        }

        impl PartialEq for $name {
            #[inline(always)]
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            #[inline(always)]
            fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(&self.to_f32(), f)
            }
        }
    };
}

narrow!(
    /// IEEE 754 binary16.
    F16,
    u16
);
narrow!(
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    u16
);
narrow!(
    /// 8-bit float, 4 exponent bits, 3 mantissa bits, no infinities; largest value 448.
    F8E4M3,
    u8
);
narrow!(
    /// 8-bit float, 5 exponent bits, 2 mantissa bits; largest value 57,344.
    F8E5M2,
    u8
);

macro_rules! float {
    ($name:ident, $from:path, $to:path) => {
        impl Float for $name {
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                Self($from(value))
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                $to(self.0)
            }
        }

        arithmetic!($name, Add, add);
        arithmetic!($name, Sub, sub);
        arithmetic!($name, Mul, mul);

        impl Neg for $name {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Self::from_f32(-self.to_f32())
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $op:ident, $method:ident) => {
        impl $op for $name {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self::from_f32(self.to_f32().$method(other.to_f32()))
            }
        }
    };
}

float!(F16, arch::f16_from_f32, arch::f16_to_f32);
float!(Bf16, arch::bf16_from_f32, bf16_to_f32);
float!(F8E4M3, arch::e4m3_from_f32, arch::e4m3_to_f32);
float!(F8E5M2, arch::e5m2_from_f32, arch::e5m2_to_f32);

/// A bfloat16 is the upper half of an `f32`, NaN included.
#[inline(always)]
fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}
