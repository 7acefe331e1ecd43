//! What arguments are made of, on both sides.

use super::{Plain, RawSlice};
use crate::element::{Bf16, Element, F8E4M3, F8E5M2, F16};

/// What may cross from a launch to a kernel: the host's compiler and the device's compare it, field by field.
///
/// # Safety
/// Same layout on host and device. Types that are not the same have different codes.
pub unsafe trait Crosses: Copy + Send + Sync + 'static {
    /// Number of this type.
    const CODE: u64;
}

/// The code of a field of the arguments' raw struct, as the struct declares it.
#[doc(hidden)]
pub const fn code_of<R, T: Crosses>(_: fn(&R) -> &T) -> u64 {
    T::CODE
}

/// The code of a type that is made of another: FNV-1a over words.
#[doc(hidden)]
pub const fn made_of(what: u64, of: u64) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let words = [what, of];
    let mut k = 0;
    while k < 16 {
        hash = (hash ^ (words[k / 8] >> (8 * (k % 8)) & 0xff)).wrapping_mul(PRIME);
        k += 1;
    }
    hash
}

// SAFETY: two words; the code is of slices and the element.
unsafe impl<T: Element> Crosses for RawSlice<T> {
    const CODE: u64 = made_of(1, T::CODE);
}

macro_rules! plain { ($($t:ty, $code:expr;)*) => {$(
    // SAFETY: a primitive (or transparent wrapper of one) with the same layout on both targets; the codes below differ.
    unsafe impl Crosses for $t {
        const CODE: u64 = $code;
    }
    // SAFETY: as above.
    unsafe impl Plain for $t {}
)*} }
plain! {
    u8, 1; u16, 2; u32, 3; u64, 4; i8, 5; i16, 6; i32, 7; i64, 8; f32, 9; f64, 10; F16, 11; Bf16, 12; F8E4M3, 13; F8E5M2, 14;
    usize, 256; isize, 257; bool, 258;
}
// SAFETY: an array has the same layout on both targets; the code is of its length and elements.
unsafe impl<T: Plain, const N: usize> Crosses for [T; N] {
    const CODE: u64 = made_of(made_of(2, N as u64), T::CODE);
}
// SAFETY: an array of plain data has the same layout on both targets.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
