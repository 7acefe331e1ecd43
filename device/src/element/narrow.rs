//! `F16`, `Bf16`, `F8E4M3`, `F8E5M2`.
//!
//! Formats: IEEE 754 binary16; bfloat16; OCP 8-bit floating point (e4m3 without infinities, e5m2). Results follow PTX
//! `cvt.rn` (`cvt.rn.satfinite` for 8-bit types): NaN becomes the one canonical NaN, 8-bit types saturate instead of overflowing.

use super::Float;

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

/// Rounds `value` to a format of `E` exponent and `M` mantissa bits. Magnitudes above `max` become `over`, NaN becomes `nan`.
#[inline(always)]
fn round<const E: u32, const M: u32>(value: f32, max: u32, over: u32, nan: u32) -> u32 {
    let bits = value.to_bits();
    let sign = (bits >> 31) << (E + M);
    let a = bits & 0x7fff_ffff;
    if a > 0x7f80_0000 {
        return nan;
    }
    let bias = (1i32 << (E - 1)) - 1;
    let exponent = (a >> 23) as i32 - 127;
    let magnitude = if exponent < 1 - bias {
        let shift = (1 - bias - exponent) as u32 + (23 - M);
        if shift > 24 {
            0
        } else {
            let m = (a & 0x7f_ffff) | 0x80_0000;
            let (q, rest, half) = (m >> shift, m & ((1 << shift) - 1), 1 << (shift - 1));
            q + u32::from(rest > half || (rest == half && q & 1 == 1))
        }
    } else {
        let lsb = (a >> (23 - M)) & 1;
        let r = a + ((1 << (22 - M)) - 1) + lsb;
        (r >> (23 - M)) - (((127 - bias) as u32) << M)
    };
    sign | if magnitude > max { over } else { magnitude }
}

/// The `f32` of a finite magnitude in a format of `E` exponent and `M` mantissa bits.
#[inline(always)]
fn widen<const E: u32, const M: u32>(magnitude: u32) -> f32 {
    let bias = (1u32 << (E - 1)) - 1;
    if magnitude >> M == 0 {
        // Subnormal: exact product of two floats. 2^(1 - bias - M) is normal in f32 for every format here.
        magnitude as f32 * f32::from_bits((127 + 1 - bias - M) << 23)
    } else {
        f32::from_bits((magnitude << (23 - M)) + ((127 - bias) << 23))
    }
}

#[inline(always)]
fn signed(magnitude: f32, negative: bool) -> f32 {
    f32::from_bits(magnitude.to_bits() | (u32::from(negative) << 31))
}

impl Float for F16 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Self(round::<5, 10>(value, 0x7bff, 0x7c00, 0x7fff) as u16)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let m = u32::from(self.0 & 0x7fff);
        let v = match m {
            0x7c00 => f32::INFINITY,
            m if m > 0x7c00 => return f32::from_bits(0x7fff_ffff),
            m => widen::<5, 10>(m),
        };
        signed(v, self.0 >> 15 == 1)
    }
}

impl Float for Bf16 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if bits & 0x7fff_ffff > 0x7f80_0000 {
            return Self(0x7fff);
        }
        Self(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

impl Float for F8E4M3 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Self(round::<4, 3>(value, 0x7e, 0x7e, 0x7f) as u8)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let m = u32::from(self.0 & 0x7f);
        if m == 0x7f {
            return f32::from_bits(0x7fff_ffff);
        }
        signed(widen::<4, 3>(m), self.0 >> 7 == 1)
    }
}

impl Float for F8E5M2 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Self(round::<5, 2>(value, 0x7b, 0x7b, 0x7f) as u8)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        let m = u32::from(self.0 & 0x7f);
        let v = match m {
            0x7c => f32::INFINITY,
            m if m > 0x7c => return f32::from_bits(0x7fff_ffff),
            m => widen::<5, 2>(m),
        };
        signed(v, self.0 >> 7 == 1)
    }
}
