//! Narrow floats by integer arithmetic: what the host does, and a device without the instruction.
//!
//! The functions take and give bits. Each agrees with the PTX instruction of its documentation on every input.

/// What every NaN becomes when it is widened.
pub const NAN: f32 = f32::from_bits(0x7fff_ffff);

/// Rounds `value` to a format of `E` exponent and `M` mantissa bits. Magnitudes above `max` become `over`, NaN becomes `nan`.
#[inline(always)]
fn round<const E: u32, const M: u32>(value: f32, max: u32, over: u32, nan: u32) -> u32 {
    let bits = value.to_bits();
    let sign = (bits >> 31) << (E + M);
    let a = bits & 0x7fff_ffff;
    let bias = (1u32 << (E - 1)) - 1;
    // All cases, then the one that is wanted: without branches, of which every copy of a kernel's body would have some.
    // A subnormal is a multiple of 2^(1 - bias - M), and so is each `f32` from this one to its double: the sum rounds to a multiple.
    let anchor = f32::from_bits((127 + 24 - bias - M) << 23);
    let subnormal = (f32::from_bits(a) + anchor).to_bits().wrapping_sub(anchor.to_bits());
    let lsb = (a >> (23 - M)) & 1;
    let normal = ((a + ((1 << (22 - M)) - 1) + lsb) >> (23 - M)).wrapping_sub((127 - bias) << M);
    let magnitude = if a < (128 - bias) << 23 { subnormal } else { normal };
    let magnitude = if magnitude > max { over } else { magnitude };
    if a > 0x7f80_0000 { nan } else { sign | magnitude }
}

/// The `f32` of a finite magnitude in a format of `E` exponent and `M` mantissa bits.
#[inline(always)]
fn widen<const E: u32, const M: u32>(magnitude: u32) -> f32 {
    let bias = (1u32 << (E - 1)) - 1;
    if cfg!(target_arch = "nvptx64") {
        return by_product::<E, M>(magnitude);
    }
    if magnitude >> M == 0 {
        // Subnormal: exact product of two floats. 2^(1 - bias - M) is normal in f32 for every format here.
        magnitude as f32 * f32::from_bits((127 + 1 - bias - M) << 23)
    } else {
        f32::from_bits((magnitude << (23 - M)) + ((127 - bias) << 23))
    }
}

/// The same as the product of two floats, exact. Processors take their time where the first one is subnormal; GPUs do not.
#[inline(always)]
fn by_product<const E: u32, const M: u32>(magnitude: u32) -> f32 {
    let bias = (1u32 << (E - 1)) - 1;
    f32::from_bits(magnitude << (23 - M)) * f32::from_bits((254 - bias) << 23)
}

#[inline(always)]
fn signed(magnitude: f32, negative: bool) -> f32 {
    f32::from_bits(magnitude.to_bits() | (u32::from(negative) << 31))
}

/// `cvt.rn.f16.f32`.
#[inline(always)]
pub fn f16_from_f32(value: f32) -> u16 {
    round::<5, 10>(value, 0x7bff, 0x7c00, 0x7fff) as u16
}

/// `cvt.f32.f16`, NaN made canonical.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let m = u32::from(bits & 0x7fff);
    let v = match m {
        0x7c00 => f32::INFINITY,
        m if m > 0x7c00 => return NAN,
        m => widen::<5, 10>(m),
    };
    signed(v, bits >> 15 == 1)
}

/// `cvt.rn.bf16.f32`.
#[inline(always)]
pub fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let (nan, rounded) =
        (bits & 0x7fff_ffff > 0x7f80_0000, bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16);
    // Processors work out both for several at once; branches would keep them from that.
    #[cfg(not(target_arch = "nvptx64"))]
    return core::hint::select_unpredictable(nan, 0x7fff, rounded as u16);
    #[cfg(target_arch = "nvptx64")]
    if nan { 0x7fff } else { rounded as u16 }
}

/// `cvt.rn.satfinite.e4m3x2.f32`, one half of it.
#[inline(always)]
pub fn e4m3_from_f32(value: f32) -> u8 {
    round::<4, 3>(value, 0x7e, 0x7e, 0x7f) as u8
}

/// `cvt.rn.f16x2.e4m3x2`, one half of it, then `cvt.f32.f16`, NaN made canonical.
#[inline(always)]
pub fn e4m3_to_f32(bits: u8) -> f32 {
    let m = u32::from(bits & 0x7f);
    if m == 0x7f {
        return NAN;
    }
    signed(widen::<4, 3>(m), bits >> 7 == 1)
}

/// `cvt.rn.bf16x2.f32`: two at once, the first in the low half.
#[inline(always)]
pub fn bf16x2_from_f32(low: f32, high: f32) -> u32 {
    u32::from(bf16_from_f32(low)) | u32::from(bf16_from_f32(high)) << 16
}

/// `cvt.rn.satfinite.e4m3x2.f32` twice: four at once, the first in the lowest byte.
#[inline(always)]
pub fn e4m3x4_from_f32(values: [f32; 4]) -> u32 {
    let [a, b, c, d] = values;
    u32::from_le_bytes([e4m3_from_f32(a), e4m3_from_f32(b), e4m3_from_f32(c), e4m3_from_f32(d)])
}

/// `cvt.rn.f16x2.e4m3x2` twice, then `cvt.f32.f16` of all halves, the lowest byte first.
#[inline(always)]
pub fn e4m3x4_to_f32(bits: u32) -> [f32; 4] {
    let [a, b, c, d] = bits.to_le_bytes();
    [e4m3_to_f32(a), e4m3_to_f32(b), e4m3_to_f32(c), e4m3_to_f32(d)]
}

/// `cvt.rn.satfinite.e5m2x2.f32`, one half of it.
#[inline(always)]
pub fn e5m2_from_f32(value: f32) -> u8 {
    round::<5, 2>(value, 0x7b, 0x7b, 0x7f) as u8
}

/// `cvt.rn.f16x2.e5m2x2`, one half of it, then `cvt.f32.f16`, NaN made canonical.
#[inline(always)]
pub fn e5m2_to_f32(bits: u8) -> f32 {
    // The format is the upper half of binary16.
    f16_to_f32(u16::from(bits) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_widens_as_cases_do() {
        for magnitude in 0..0x7f {
            assert_eq!(by_product::<4, 3>(magnitude).to_bits(), widen::<4, 3>(magnitude).to_bits());
        }
        for magnitude in 0..0x7c00 {
            assert_eq!(by_product::<5, 10>(magnitude).to_bits(), widen::<5, 10>(magnitude).to_bits());
        }
    }
}
